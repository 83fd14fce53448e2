package grpo

import (
	"math"
	"testing"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// TestUpdatesOnAMesh: on 4 devices, updates by the clipped objective with a KL are the same as on one device.
func TestUpdatesOnAMesh(t *testing.T) {
	e := backendtest.Mesh(t, backend.Mesh{Data: 4, Shard: backend.ShardMoments})
	c := testkit.Config(t, "qwen3")
	c.Layers = 1
	m, o := model.Init(c, 7), DefaultOptions()
	o.Updates, o.KLCoef = 4, 0.1
	rule := train.AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MaxNorm: 1}}
	one, several := trainer(t, backendtest.Go(t), m, o), trainer(t, e, m, o)
	groups := rollouts(t, one, 3, 4, 4)
	for step := range 3 {
		var norms [2]float64
		for i, tr := range []*Trainer{one, several} {
			norms[i] = expect.Must(tr.Update(groups, rule, 1e-3, train.NewMetrics()))(t)
		}
		if d := math.Abs(norms[0] - norms[1]); d > 1e-4*norms[0] {
			t.Errorf("update %d: norm %v, on one device %v", step, norms[1], norms[0])
		}
	}
	x, y := weightsOf(t, one), weightsOf(t, several)
	for i := range x {
		for k := range x[i] {
			if d := math.Abs(float64(x[i][k] - y[i][k])); d > 1e-5 {
				t.Fatalf("%s: %v, on one device %v", m.Params[i].Name, y[i][k], x[i][k])
			}
		}
	}
}

func weightsOf(t *testing.T, tr *Trainer) [][]float32 {
	t.Helper()
	return expect.Must(tr.Learner.ReadWeights())(t)
}
