package train

import (
	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// store keeps weights, gradients and moments where the engine wants them, and updates them.
//
// Promises, held by one test suite for every implementation: gradients add up until update, which clears them; an
// update with a norm that is not finite changes nothing; the same calls give the same bits.
type store interface {
	// weights are inputs of a program, in the order of the model's trained parameters; valid until the next update.
	weights() []compute.Buffer
	// sums are the gradients so far, which are donated to the program that adds the next ones and gives the sums; keep
	// false: their contents are of an earlier update. nil: add adds up.
	sums() (sums []compute.Buffer, keep bool, err error)
	// add takes gradients in the order of weights (nil: none for this one): the new sums, or what it adds.
	add(grads []compute.Buffer) error
	// addRows adds rows [len(ids), width] to the gradient of a table. Only where rows are looked up on the host.
	addRows(table int, ids []int32, rows []float32)
	// gradient copies the gradients so far to the host, one after the other in the order of weights, and clears them.
	gradient() ([]float32, error)
	// update is update number t and returns the gradients' global norm before clipping.
	update(optimizer AdamW, t int, rate float64) (norm float64, err error)
	// read copies weights and both moments to the host.
	read() (Tensors, error)
	tensorSource
	// write replaces parts by a source's, one tensor at a time. Without moments, no update may follow. After an error
	// the store can only be closed.
	write(from tensorSource, parts ...storedPart) error
	close()
}

// Tensors are the float32 arrays that a checkpoint holds, in the order of the model's trained parameters.
type Tensors struct {
	Weights, First, Second [][]float32
}

// tensorSource gives what a checkpoint holds, one tensor at a time: parameter i's in a part, valid until the next
// update or the next tensor.
type tensorSource interface {
	tensor(p storedPart, i int) ([]float32, error)
}

// storedPart is one of the three arrays of a parameter.
type storedPart int

const (
	theWeights storedPart = iota
	firstMoment
	secondMoment
)

func (t Tensors) tensor(p storedPart, i int) ([]float32, error) {
	return [][][]float32{t.Weights, t.First, t.Second}[p][i], nil
}

// newStore puts a model's trained weights where the engine wants them, with zero moments.
func newStore(e *backend.Engine, m *model.Model, u *backend.Uploader, half bool) (store, error) {
	if e.Wants.SharedMemory {
		return newHostStore(e, m)
	}
	return newGraphStore(e, m, u, half)
}
