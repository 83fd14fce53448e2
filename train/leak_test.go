package train

import (
	"testing"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// TestStepsDoNotLeak: tensors of ONNX Runtime are invisible to Go's collector, so that one forgotten output a step is
// memory lost for good. A step here makes 1.2 MB of gradients.
func TestStepsDoNotLeak(t *testing.T) {
	config := testkit.Config(t, "llama")
	config.VocabSize = 20000 // × 16 numbers
	m := model.Init(config, 1)
	l := learner(t, backendtest.ONNX(t), m)
	groups := testkit.Groups(4, 4, 2)
	method := mappo()
	p := batch.Pack(groups, batch.Layout{Share: true, Pad: 4})
	steps := func(n int) {
		for range n {
			if _, _, err := l.Accumulate(p, method, method.Inputs(pairsOf(groups), p), 0.25); err != nil {
				t.Fatal(err)
			}
			expect.Must(l.Update(AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}},
				1e-4))(t)
			expect.Must(l.Sums(p))(t)
		}
	}
	steps(20)
	before := testkit.Resident(t)
	steps(100)
	if grown := testkit.Resident(t) - before; grown > 40<<20 {
		t.Errorf("100 steps of 1.2 MB of gradients each left %d MB behind", grown>>20)
	}
}
