package fleet

import (
	"context"
	"fmt"
	"math"

	"github.com/posttrain/posttrain/rollout"
)

// Bounds of the parity probe, in nats a token.
const (
	probeTokens = 16   // drawn for each prompt
	usualTimes  = 3    // as far from the trainer as usual: more is an alarm
	leastAlarm  = 2e-3 // rounding of other kernels may reach this in float32
	mostNoise   = 0.5  // even in bfloat16 the same weights are nearer
)

// probe draws from fixed prompts after a swap and compares the server's log-probs with the trainer's. The prompts are
// the same after every swap, so that a cache of their keys and values which survives it shows, too.
func (f *Fleet) probe(ctx context.Context, s *server) error {
	if len(f.options.Probes) == 0 {
		return nil
	}
	off, err := f.distance(ctx, s)
	if err != nil {
		return err
	}
	f.probing.Lock()
	usual := f.usual
	limit := min(max(usualTimes*usual, leastAlarm), mostNoise)
	if !f.probed { // the first swap: there is nothing to compare with
		limit = mostNoise
	}
	if off <= limit {
		f.usual, f.probed = max(off, usual), true
	}
	f.probing.Unlock()
	if off <= limit {
		return nil
	}
	return mismatch{fmt.Errorf("%s: after the swap to %s its log-probs of %d fixed prompts are %.3g nats a token away "+
		"from the trainer's (at most %.2g is rounding): it has other weights (those before the swap, another model's, or "+
		"an adapter that counts twice or not at all), or it kept keys and values of old ones in a prefix cache", s.address,
		f.written.name, len(f.options.Probes), off, limit)}
}

// mismatch is a server that has other weights than it says. It ends a run: its samples would teach something else.
type mismatch struct{ error }

// distance is the mean absolute difference of a server's log-probs from the trainer's under the present weights.
func (f *Fleet) distance(ctx context.Context, s *server) (float64, error) {
	prompts, answers := f.options.Probes, [][]int32(nil)
	var theirs [][]float32
	for i, p := range prompts {
		c, err := f.ask(ctx, s, f.written, rollout.Request{Sampling: rollout.Sampling{MaxNew: probeTokens, Temperature: 1},
			Prompt: p, Seed: rollout.DrawSeed(0, i)})
		if err != nil {
			return 0, err
		}
		answers, theirs = append(answers, c.Tokens), append(theirs, c.Logps)
	}
	f.probing.Lock()
	defer f.probing.Unlock()
	ours, err := f.policy.Logps(prompts, answers)
	if err != nil {
		return 0, err
	}
	sum, n := 0.0, 0.0
	for i := range ours {
		for k := range ours[i] {
			sum, n = sum+math.Abs(float64(ours[i][k])-float64(theirs[i][k])), n+1
		}
	}
	return sum / n, nil
}
