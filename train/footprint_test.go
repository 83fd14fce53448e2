package train

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestTrainingNeedsNoHostWeights: a learner trains on when the model's own weights are gone, as recipes leave it.
func TestTrainingNeedsNoHostWeights(t *testing.T) {
	groups := testkit.Groups(3, 4, 2)
	method, p := mappo(), batch.Pack(groups, batch.Layout{Pad: 4})
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		m := testkit.Model(t, "llama")
		l := learner(t, e, m)
		m.Release()
		var live []unsafe.Pointer
		for range 3 {
			for range 2 {
				if _, _, err := l.Accumulate(p, method, method.Inputs(pairsOf(groups), p), 0.1); err != nil {
					t.Fatal(err)
				}
			}
			expect.Must(l.Update(AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-3, MaxNorm: 1}},
				1e-3))(t)
			if s, ok := l.store.(*graphStore); ok && e.Name == "xla" {
				now := addresses(t, slices.Concat(s.p, s.m, s.v, s.grads))
				if live != nil && !slices.Equal(now, live) {
					t.Error("weights, moments or gradients moved to other memory: they need it twice")
				}
				live = now
			}
		}
		state, updates, err := l.Read()
		expect.OK(t, err)
		expect.OK(t, l.Write(state, updates))
	})
}

// addresses are where buffers on a CPU are, sorted: tensors of one shape may change places.
func addresses(t *testing.T, buffers []compute.Buffer) (all []unsafe.Pointer) {
	t.Helper()
	for _, b := range buffers {
		flat := expect.Must(b.Data())(t)
		all = append(all, unsafe.Pointer(unsafe.SliceData(flat.([]float32))))
	}
	slices.SortFunc(all, func(a, b unsafe.Pointer) int {
		if uintptr(a) < uintptr(b) {
			return -1
		}
		return 1
	})
	return all
}

func TestFootprintAddsUp(t *testing.T) {
	f := Footprint{Parameters: 134_515_008, Weights: 4, Moments: 4, Gradients: 4, Reference: 2}
	const want = "memory: 14 bytes for each of 134.5M parameters (weights 4, moments 4, gradients 4, reference 2), " +
		"1.88 GB, and activations"
	if f.String() != want {
		t.Errorf("%s\nwant %s", f, want)
	}
	f = Footprint{Parameters: 4_884_480, Weights: 4, Moments: 8, Gradients: 8, Frozen: 134_515_008, FrozenBytes: 4 * 134_515_008}
	const wantLoRA = "memory: 4 bytes for each of 134.5M frozen parameters and 20 bytes for each of 4.9M parameters of " +
		"the adapter (weights 4, moments 8, gradients 8), 0.64 GB, and activations"
	if f.String() != wantLoRA {
		t.Errorf("%s\nwant %s", f, wantLoRA)
	}
}
