package lm

import (
	"math/rand/v2"
	"slices"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/adamw"
)

// local is an agent's training for itself, from theta, with a fresh AdamW.
type local struct {
	policy *Policy
	rule   adamw.Rule
	how    protocol.Local
	theta  []float64
	order  *rand.Rand // of the items in each epoch
}

// train makes epochs over n items in minibatches of size, and returns the change of the weights. gradient is that of
// the loss on some of the items at given weights.
func (l local) train(n, size int, gradient func(part []int, weights []float64) ([]float32, error)) ([]float64, error) {
	weights, tensors := federated.Narrow(l.theta), l.policy.identity.Tensors
	state := protocol.NewAdamW(weights, tensors) // it shares the weights
	for t := 1; t <= l.how.Epochs*((n+size-1)/size); {
		for part := range slices.Chunk(l.order.Perm(n), size) {
			g, err := gradient(part, federated.Widen(weights))
			if err != nil {
				return nil, err
			}
			state.Update(l.rule, protocol.Split(g, tensors), t, l.how.LR, adamw.InOrder)
			t++
		}
	}
	return federated.Difference(federated.Widen(weights), l.theta), nil
}
