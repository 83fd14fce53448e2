package grpo

import (
	"errors"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/train"
)

// Group is one prompt's rollouts, ready to train on.
type Group struct {
	batch.Group
	Advantages []float64   // [answers]
	Masked     []bool      // [answers] true: the answer does not train; nil: all do
	Sampled    [][]float32 // [answers][tokens] the sampler's log-probs; nil: unknown
	Old        [][]float32 // [answers][tokens] the old policy's log-probs; nil: the policy of this very update
	Reference  [][]float32 // [answers][tokens] the reference's log-probs; nil: no KL
}

// Trainer measures groups and trains on them.
type Trainer struct {
	Learner *train.Learner
	Options Options
	Tokens  int  // tokens that go through the model at once; 0: as the engine wants
	Apart   bool // every answer repeats its prompt: slower, for tests and benchmarks
}

// Measure returns the log-probs [groups][answers][tokens] of every answer's tokens under weights (nil: the learner's own).
func (t *Trainer) Measure(groups []Group, weights []compute.Buffer) ([][][]float32, error) {
	return nil, errors.New("grpo: not there yet")
}

// Update is one optimiser update by the gradient of the objective on a minibatch. It adds to the metrics what the answers'
// log-probs of before the update say, and returns the gradient's norm before clipping.
func (t *Trainer) Update(groups []Group, rule train.AdamW, rate float64, m *train.Metrics) (norm float64, err error) {
	return 0, errors.New("grpo: not there yet")
}
