package grpo

import (
	"context"
	"fmt"
	"time"

	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// With Ahead k, the rollout batch of step t is drawn from the weights that step t-k began with: the lag is fixed, so
// that servers which are fast or slow change no bit. At the start of a step its weights go to the sampler, which begins
// the batch of k steps later, and the step learns from the batch that was begun k steps ago. The first k steps of a
// run, and those after it was resumed, have no older weights: they are drawn from those of its start.

// begun is a rollout batch that is being drawn.
type begun struct {
	groups   []*answered
	requests []rollout.Request
	started  time.Time
	done     chan struct{} // closed when all are drawn

	completions []rollout.Completion
	err         error
	seconds     float64
}

// checkAhead refuses what cannot be drawn ahead.
func (rs *Rollouts) checkAhead() error {
	if rs.Ahead == 0 {
		return nil
	}
	if _, ok := rs.Sampler.(rollout.Starter); !ok {
		return fmt.Errorf("rollout.ahead %d: the sampler of this process has only the present weights: want 0, or "+
			"rollout.engine", rs.Ahead)
	}
	return rs.Options.CheckAhead(rs.Ahead)
}

// CheckAhead refuses options whose completions cannot be drawn ahead.
func (o Options) CheckAhead(steps int) error {
	switch {
	case steps > 0 && o.DynamicSampling > 0:
		return fmt.Errorf("rollout.ahead %d: with grpo.dynamic_sampling %d it is not known ahead which prompts a step "+
			"takes: want 0 for one of them", steps, o.DynamicSampling)
	case steps > 0 && o.ImportanceCap == 0:
		return fmt.Errorf("rollout.ahead %d: the completions are of older weights, which grpo.importance_cap corrects "+
			"for: want it above 0", steps)
	}
	return nil
}

// rollAhead begins the batch of Ahead steps later with the present weights, and takes that of this step.
func (rs *Rollouts) rollAhead(ctx context.Context) (*rolled, error) {
	rs.noteStart()
	for k := len(rs.ahead); k <= rs.Ahead && rs.t.State.Step+k < rs.Total(); k++ {
		b, err := rs.begin(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", rs.t.State.Step+1, explain(ctx, err))
		}
		rs.ahead = append(rs.ahead, b)
	}
	b, started := rs.ahead[0], time.Now()
	rs.ahead = rs.ahead[1:]
	if err := rs.finish(ctx, b); err != nil {
		return nil, fmt.Errorf("step %d: %w", rs.t.State.Step+1, err)
	}
	r := &rolled{places: b.groups, rollout: b.seconds, wait: time.Since(started).Seconds()}
	if err := rs.age(r, b.completions); err != nil {
		return nil, fmt.Errorf("step %d: %w", rs.t.State.Step+1, err)
	}
	err := rs.take(r, b.groups, b.completions)
	r.missing -= r.dropped
	return r, err
}

// begin lets the sampler draw the batch of k steps later.
func (rs *Rollouts) begin(ctx context.Context, k int) (*begun, error) {
	b := &begun{groups: rs.tasks(k*rs.Options.Prompts, rs.Options.Prompts), started: time.Now(), done: make(chan struct{})}
	b.requests = rs.requests(b.groups, rs.t.State.Step+k, 0)
	wait, err := rs.Sampler.(rollout.Starter).Start(ctx, b.requests)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(b.done)
		b.completions, b.err = wait()
		b.seconds = time.Since(b.started).Seconds()
	}()
	return b, nil
}

// finish waits for a batch. What is missing is asked for once more, of the present weights: servers may have come back.
func (rs *Rollouts) finish(ctx context.Context, b *begun) error {
	<-b.done
	if b.err != nil {
		return explain(ctx, b.err)
	}
	var missing []int
	var again []rollout.Request
	for i, c := range b.completions {
		if c.Reason == rollout.Missing {
			missing, again = append(missing, i), append(again, b.requests[i])
		}
	}
	if missing == nil {
		return nil
	}
	completions, err := rs.sample(ctx, again)
	if err != nil && (len(missing) == len(b.requests) || ctx.Err() != nil) {
		return err
	}
	for k, c := range completions {
		b.completions[missing[k]] = c
	}
	return nil
}

// noteStart notes the version that a step begins with, and forgets those that are too old.
func (rs *Rollouts) noteStart() {
	if rs.starts == nil {
		rs.starts = map[int]int{}
	}
	for version, step := range rs.starts {
		if step < rs.t.State.Step-rs.Ahead {
			delete(rs.starts, version)
		}
	}
	rs.starts[rs.t.Learner.Version()] = rs.t.State.Step
}

// age drops completions of weights that are more than Ahead steps old. One of weights that are not there yet is an
// error.
func (rs *Rollouts) age(r *rolled, completions []rollout.Completion) error {
	for i, c := range completions {
		if c.Reason == rollout.Missing {
			continue
		}
		if now := rs.t.Learner.Version(); c.Version > now {
			return fmt.Errorf("completion %d is of version %d of the weights, but the policy has version %d: another "+
				"run gives the servers its weights", i, c.Version, now)
		}
		if step, known := rs.starts[c.Version]; known {
			r.ages = append(r.ages, rs.t.State.Step-step)
		} else {
			r.dropped, completions[i] = r.dropped+1, rollout.Completion{Reason: rollout.Missing}
		}
	}
	return nil
}

// observeAges adds how old the completions' weights are.
func (r *rolled) observeAges(m *train.Metrics) {
	for _, age := range r.ages {
		m.Add("rollout/age", float64(age), 1)
	}
	if r.dropped > 0 {
		m.Add("rollout/dropped", float64(r.dropped), 1)
	}
	if r.ages != nil {
		m.Add("time/wait", r.wait, 1)
	}
}

// Stop waits for batches that are not needed any more, whose context has ended.
func (rs *Rollouts) Stop() {
	for _, b := range rs.ahead {
		<-b.done
	}
	rs.ahead = nil
}
