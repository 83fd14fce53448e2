package losses

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
)

// BradleyTerry is the loss of a reward model on a pair: -log σ(r(chosen) - r(rejected) - margin), where the model gives
// each answer a score r. As in TRL's RewardTrainer, Center·(r(chosen) + r(rejected))² holds the scores near 0.
type BradleyTerry struct {
	Center float64
}

// Key is the cache key of the compiled graph.
func (o BradleyTerry) Key() string { return fmt.Sprintf("bradley-terry %v", o.Center) }

// Graph builds the loss of every pair from its scores and margin, each [pairs].
func (o BradleyTerry) Graph(chosen, rejected, margin *graph.Node) *graph.Node {
	loss := logistic(graph.Sub(graph.Sub(chosen, rejected), margin), 0)
	if o.Center == 0 {
		return loss
	}
	return graph.Add(loss, graph.MulScalar(graph.Square(graph.Add(chosen, rejected)), o.Center))
}

// Host computes in float64 what Graph builds, of one pair.
func (o BradleyTerry) Host(chosen, rejected, margin float64) float64 {
	sum := chosen + rejected
	return softplus(margin-chosen+rejected) + o.Center*sum*sum
}
