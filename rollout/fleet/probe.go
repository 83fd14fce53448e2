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
	off, err := f.distance(ctx, s, f.options.Probes, "", 1)
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
	cause, err := f.diagnose(ctx, s, off)
	if err != nil {
		return err
	}
	return mismatch{fmt.Errorf("%s: after the swap to %s its log-probs of %d fixed prompts are %.3g nats a token away "+
		"from the trainer's (at most %.2g is rounding): %s", s.address, f.written.name, len(f.options.Probes), off, limit,
		cause)}
}

// mismatch is a server that has other weights than it says. It ends a run: its samples would teach something else.
type mismatch struct{ error }

// suspect is what may be wrong with a server that draws unlike the trainer.
type suspect struct {
	fresh  bool    // asked with prompts that it has not seen
	folder string  // of the weights that it may have
	scale  float64 // of an adapter's product
	words  string
}

// suspects are tried in this order.
func (f *Fleet) suspects() []suspect {
	all := []suspect{{true, "", 1, "prompts that it has not seen agree, so it kept keys and values of the weights " +
		"before (a stale prefix cache): let it flush its cache at a swap"}}
	if f.written.before != "" {
		all = append(all, suspect{false, f.written.before, 1, "it still has the weights before the swap"})
	}
	if f.options.Engine != SGLang {
		for _, scale := range []float64{2, 0.5, 0} {
			all = append(all, suspect{false, f.written.folder, scale, fmt.Sprintf("its adapter's product is %v times "+
				"what it should be (lora_alpha, or an adapter that is loaded twice or not at all)", scale)})
		}
	}
	return all
}

// diagnose says which weights a server seems to have: those that are less than half as far away as the right ones.
func (f *Fleet) diagnose(ctx context.Context, s *server, off float64) (cause string, err error) {
	for _, x := range f.suspects() {
		prompts := f.options.Probes
		if x.fresh {
			prompts = f.freshProbes()
		}
		d, err := f.distance(ctx, s, prompts, x.folder, x.scale)
		if err != nil {
			return "", err
		}
		if 2*d < off {
			return x.words, nil
		}
	}
	if f.written.before == "" {
		return "it serves another model, or loaded the weights in part, in other places, or scaled", nil
	}
	return "it has neither the new weights nor those before: they were loaded in part, in other places, or scaled", nil
}

// freshProbes are the prompts with another beginning after each swap, which no cache has seen.
func (f *Fleet) freshProbes() (fresh [][]int32) {
	for i, p := range f.options.Probes {
		first := int32((f.written.version*len(f.options.Probes) + i) % f.config.VocabSize)
		fresh = append(fresh, append([]int32{first}, p...))
	}
	return fresh
}

// distance is the mean absolute difference of a server's log-probs from the trainer's under the present weights, or
// those of a folder.
func (f *Fleet) distance(ctx context.Context, s *server, prompts [][]int32, folder string,
	scale float64) (float64, error) {
	var answers [][]int32
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
	ours, err := f.policy.Logps(prompts, answers, folder, scale)
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
