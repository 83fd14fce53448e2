package recipe

import (
	"fmt"
	"math/bits"
	"strings"
)

// This file chooses what nobody gave: batch, warm-up, rate and evaluations follow the data, the method and the model.
// The papers' values are in configs/mappo-paper-*.yaml.

// usual are the rates of a method for all weights of a model, for all of a large one, and for an adapter, as TRL's
// examples and the recipes of released models have them.
var usual = map[string]struct {
	whole, large, adapter float64
	method                string
}{
	"mappo":        {5e-6, 1e-6, 5e-5, "a preference loss"},
	"sft":          {2e-5, 2e-5, 2e-4, "demonstrations"},
	"reward-model": {1e-5, 1e-5, 1e-4, "a reward model"},
	"grpo":         {1e-6, 1e-6, 1e-5, "rewards"},
	"ci-rl":        {1e-6, 1e-6, 1e-5, "rewards"},
}

// large is how many parameters a large model has.
const large = 1_000_000_000

// The batch is the largest power of two that leaves an epoch at least 32 steps (batches). It is never below leastBatch, if
// there are so many examples, and never above the default. The warm-up is a tenth of the steps, and mostWarmup at most.
const (
	leastBatch  = 4
	batches     = 32
	tenth       = 10
	mostWarmup  = 100
	evaluations = 5
	shareWords  = "a 32nd"
	warmupWords = "a tenth of the steps (at most 100)"
)

// UseRate sets the rate that is usual for a command's method, if the user left it open. The size of the model is not
// known yet.
func (b *Base) UseRate(command string) { b.chooseRate(command, 0) }

// chooseRate says why it chose a rate, "" where the user gave one.
func (b *Base) chooseRate(command string, parameters int) (why string) {
	rates, ok := usual[command]
	if !ok || !b.Train.IsUnset("learning_rate") {
		return ""
	}
	rate, of := rates.whole, "all weights of"
	switch {
	case b.Adapting.On():
		rate, of = rates.adapter, "an adapter of"
	case parameters >= large:
		rate = rates.large
	}
	b.Train.LearningRate = rate
	return fmt.Sprintf("rate %v (%s, %s a model of %.1fM)", rate, rates.method, of, float64(parameters)/1e6)
}

// Choose gives the options that the user left open values for n examples in each of some rounds, writes them to the
// resolved config, and says which they are.
func (r *Run) Choose(n, rounds int, unit string, evaluates bool) {
	t, said, keys := &r.Train, []string(nil), []string(nil)
	say := func(key, format string, args ...any) {
		said, keys = append(said, fmt.Sprintf(format, args...)), append(keys, "train."+key)
	}
	if n > 0 && t.IsUnset("batch_size") {
		micro := t.MicroBatchSize
		t.BatchSize = batchFor(n, t.BatchSize)
		if t.MicroBatchSize = min(micro, t.BatchSize); !t.IsUnset("micro_batch_size") {
			t.MicroBatchSize, t.BatchSize = micro, max(micro, t.BatchSize)
		}
		say("batch_size", "batch %d (%s of %d %s, at least %d)", t.BatchSize, shareWords, n, unit, leastBatch)
	}
	steps := t.MaxSteps
	if steps == 0 && n > 0 {
		steps = t.Passes(n) * rounds
	}
	if t.IsUnset("warmup_steps") {
		t.WarmupSteps = min(steps/tenth, mostWarmup)
		say("warmup_steps", "warm-up %s (a tenth of %d)", Count(t.WarmupSteps, "step"), steps)
	}
	if why := r.chooseRate(r.Command, r.Model.Config.ParamCount()); why != "" {
		say("learning_rate", "%s", why)
	}
	if evaluates && t.IsUnset("eval_every") {
		t.EvalEvery = max(1, steps/evaluations)
		say("eval_every", "an evaluation every %s", Count(t.EvalEvery, "step"))
	}
	if t.Unset = nil; len(said) > 0 {
		r.Say("%s; set %s to choose", strings.Join(said, ", "), strings.Join(keys, ", "))
	}
	if r.Options != nil {
		r.resolved = r.Options.Resolved()
	}
}

// batchFor is a batch that n examples suit.
func batchFor(n, most int) int {
	most = min(n, most, max(n/batches, leastBatch))
	return 1 << (bits.Len(uint(most)) - 1)
}
