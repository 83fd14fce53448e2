package train

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/batch"
)

// Objective is a loss over the log-probs of a packed batch, as a pure function in the graph.
type Objective interface {
	// Key is the cache key of the compiled graph: it covers every option that changes the graph.
	Key() string
	// Loss returns the SUM of the examples' losses (scalar; the trainer divides by the global count) and further
	// outputs that the objective wants to see on the host.
	Loss(lp LogProbs, inputs []*graph.Node) (loss *graph.Node, outputs []*graph.Node)
}

// LogProbs are the policy's log-probs in a batch, in float32. A reward model's are scores: of the text up to each slot,
// and in Sums up to the last slot of each answer.
type LogProbs struct {
	Tokens *graph.Node // [slots] log p(target); padding slots hold any finite value
	Real   *graph.Node // [slots] 1 for a slot of an answer, 0 for padding
	Sums   *graph.Node // [answers] summed over the answer's tokens
}

// Method is an objective, and what it needs of examples.
type Method interface {
	Objective
	// Weight is what examples count in the mean that the loss is: pairs, or predicted tokens.
	Weight(examples []Example) float64
	// Inputs are the objective's own inputs for the examples of a packed batch.
	Inputs(examples []Example, p *batch.Packed) []Input
	// Observe adds what the outputs of these examples say to the metrics, the loss among them.
	Observe(examples []Example, p *batch.Packed, outputs [][]float32, m *Metrics) error
}

// Input is a float32 array fed to an objective.
type Input struct {
	Data []float32
	Dims []int
}

// gatherLogProbs gathers what an objective may use from the model's log-probs [slots] and the slots' answers [slots].
func gatherLogProbs(tokens, answer *graph.Node, answers int) LogProbs {
	g := tokens.Graph()
	slots := tokens.Shape().Dim(0)
	ids := graph.Iota(g, shapeInt32(answers, 1), 0)
	member := graph.ConvertDType(graph.Equal(ids, graph.Reshape(answer, 1, slots)), tokens.DType())
	zero := graph.ScalarZero(g, answer.DType())
	own := graph.Mul(member, graph.Reshape(tokens, 1, slots))
	return LogProbs{
		Tokens: tokens,
		Real:   graph.ConvertDType(graph.GreaterOrEqual(answer, zero), tokens.DType()),
		// Masked sums, not a scatter, whose repeated indices race on onnx; nor a product, which GPUs may round to TF32.
		Sums: graph.ReduceSum(own, -1),
	}
}
