package grpo

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// group is a question with its answers and what they are worth.
type group struct {
	*ask.Question
	answers    []ask.Answer
	advantages []float64
	penalties  []float64 // [answers] KL that is taken from the rewards; nil: none
	degenerate bool      // all rewards are equal: it teaches nothing
}

// rolloutBatch is the rollout batch of a step.
type rolloutBatch struct {
	groups         []*group // [prompts] what is learnt from
	drawn          []*group // all that was sampled: with dynamic sampling, more
	used           int      // tasks
	missing        int      // completions that the sampler could not give
	unscored       int      // … and that the scorer has no reward for
	rollout, score float64  // seconds
}

// roll samples and scores the groups of a step. With dynamic sampling, groups of equal rewards make room for the
// tasks that follow, as often as the option says; what is equal then stays.
func (rs *Rollouts) roll(ctx context.Context) (*rolloutBatch, error) {
	r := &rolloutBatch{groups: make([]*group, rs.Options.Prompts)}
	open := train.Order(rs.Options.Prompts, 0, 0, false) // places to fill
	for round := 0; round <= rs.Options.DynamicSampling && len(open) > 0; round++ {
		fresh, err := rs.draw(ctx, r, len(open))
		if err != nil {
			return nil, err
		}
		for i, place := range open {
			r.groups[place] = fresh[i]
		}
		open = slices.DeleteFunc(open, func(place int) bool { return !r.groups[place].degenerate })
	}
	rs.weigh(r.groups)
	return r, nil
}

// weigh gives groups their advantages, of one reward or of several.
func (rs *Rollouts) weigh(groups []*group) {
	weights, number := rs.Weights, func(s ask.Score, k int) float64 { return s.Each[k] }
	if len(weights) == 0 {
		weights, number = []float64{1}, func(s ask.Score, _ int) float64 { return s.Value }
	}
	rewards := make([][][]float64, len(weights))
	for k := range rewards {
		for _, a := range groups {
			own := make([]float64, len(a.answers))
			for i, x := range a.answers {
				if own[i] = number(x.Score, k); x.Score.Skips(k) {
					own[i] = math.NaN()
				}
			}
			rewards[k] = append(rewards[k], own)
		}
	}
	if groups[0].penalties != nil {
		var taken [][]float64
		for _, a := range groups {
			taken = append(taken, a.penalties)
		}
		rewards, weights = append(rewards, taken), append(slices.Clone(weights), -1)
	}
	for i, advantages := range rs.Options.Combined(rewards, weights) {
		groups[i].advantages = advantages
	}
}

// penalise takes KL from the rewards, and weighs the groups again. groups are what training makes of them.
func (rs *Rollouts) penalise(all []*group, groups []Group) {
	for i, at := 0, 0; i < len(all); i++ {
		if all[i].penalties = []float64{}; len(all[i].answers) > 0 {
			all[i].penalties, at = rs.Options.penalties(groups[at]), at+1
		}
	}
	rs.weigh(all)
	all = slices.DeleteFunc(slices.Clone(all), func(a *group) bool { return len(a.answers) == 0 })
	for i := range groups {
		groups[i].Advantages = all[i].advantages
	}
}

// draw samples and scores groups of the next n tasks.
func (rs *Rollouts) draw(ctx context.Context, r *rolloutBatch, n int) ([]*group, error) {
	started := time.Now()
	fresh := rs.tasks(r.used, n)
	questions := make([]ask.Question, n)
	for i, a := range fresh {
		questions[i] = *a.Question
		questions[i].Sampling, questions[i].Samples = rs.Sampling, rs.Options.GroupSize
		questions[i].Seed = seedOf(rs.t.Seed, "rollout", rs.t.State.Step, r.used+i)
	}
	answers, err := ask.Sample(ctx, rs.watch(Sampling, n*rs.Options.GroupSize), questions)
	if err = explain(ctx, err); err != nil {
		return nil, fmt.Errorf("step %d: %w", rs.t.State.Step+1, err)
	}
	r.rollout += time.Since(started).Seconds()
	return fresh, rs.take(ctx, r, fresh, answers)
}

// take gives groups their answers, and scores them.
func (rs *Rollouts) take(ctx context.Context, r *rolloutBatch, groups []*group, answers [][]ask.Answer) error {
	started, drawn := time.Now(), 0
	var all []ask.Answer
	for i, a := range groups {
		drawn += len(answers[i])
		r.missing += a.take(answers[i])
		all = append(all, a.answers...)
	}
	if err := rs.score(ctx, all); err != nil {
		return fmt.Errorf("step %d: %w", rs.t.State.Step+1, err)
	}
	for _, a := range groups {
		n := len(a.answers)
		r.unscored += a.grade(all[:n])
		rs.weigh([]*group{a}) // alone: of several rewards the sums may be equal, and what each teaches not
		a.degenerate = !slices.ContainsFunc(a.advantages, func(x float64) bool { return x != 0 })
		if all = all[n:]; len(a.answers) > 0 {
			r.drawn = append(r.drawn, a)
		}
	}
	r.score, r.used = r.score+time.Since(started).Seconds(), r.used+len(groups)
	if len(r.drawn) == 0 {
		return fmt.Errorf("step %d: the sampler gave none of %d completions", rs.t.State.Step+1, drawn)
	}
	return nil
}

// grade keeps the answers that have a reward, and counts the others.
func (a *group) grade(scored []ask.Answer) (unscored int) {
	missing := func(x ask.Answer) bool { return x.Score.Missing != "" }
	a.answers = slices.DeleteFunc(slices.Clone(scored), missing)
	return len(scored) - len(a.answers)
}

// take keeps the answers that there are, and counts those that are missing.
func (a *group) take(answers []ask.Answer) (missing int) {
	for _, x := range answers {
		if x.Reason != rollout.Missing {
			x.To = a.Question
			a.answers = append(a.answers, x)
		}
	}
	return len(answers) - len(a.answers)
}

// tasks are the next n, after those that the running step has used. They run into the next epoch.
func (rs *Rollouts) tasks(used, n int) []*group {
	next := make([]*group, n)
	var order []int
	for i := range next {
		at := rs.t.State.Position + used + i
		epoch, at := at/len(rs.Tasks), at%len(rs.Tasks)
		if order == nil || at == 0 {
			order = train.Order(len(rs.Tasks), rs.t.Seed, rs.t.State.Epoch+epoch, rs.t.Options.Shuffle)
		}
		next[i] = &group{Question: &rs.Tasks[order[at]]}
	}
	return next
}

// explain says why no completion came: the run was interrupted, servers failed, or, as a rule, the weights are broken.
func explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return train.ErrInterrupted
	case errors.As(err, new(rollout.ServerError)):
		return train.ServerError{Err: fmt.Errorf("sampling: %w", err)}
	}
	return train.BadWeights{Err: fmt.Errorf("sampling: %w", err)}
}

// seedOf gives every request of a run a seed of its own.
func seedOf(seed uint64, purpose string, step, place int) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d %d", seed, purpose, step, place))
	return binary.LittleEndian.Uint64(sum[:])
}

// score gives answers their scores. It refuses rewards that are not finite in the graph, since no mean and no best
// checkpoint of them would mean anything, and to go on where most answers have none. What fails outside is a
// ServerError.
func (rs *Rollouts) score(ctx context.Context, answers []ask.Answer) error {
	rs.begin(fmt.Sprintf("scoring %d answers", len(answers)))
	scores, err := ask.Judged(ctx, rs.Judge, answers)
	if ctx.Err() != nil {
		return train.ErrInterrupted
	}
	missing, why := ask.Unscored(scores)
	if lost, _ := ask.Lost(scores); err == nil && (2*lost > len(answers) || missing == len(answers) && missing > 0) {
		err = fmt.Errorf("%d of %d completions have no reward: %s", missing, len(answers), why)
	}
	if err != nil {
		return train.ServerError{Err: err}
	}
	for i := range answers {
		answers[i].Score = scores[i]
	}
	return nil
}

func (a *group) rewards() []float64 {
	rewards := make([]float64, len(a.answers))
	for i, x := range a.answers {
		rewards[i] = x.Score.Value
	}
	return rewards
}

// training are the groups for the trainer.
func (r *rolloutBatch) training(maskTruncated bool) []Group {
	var groups []Group
	for _, a := range r.groups {
		if len(a.answers) > 0 {
			groups = append(groups, a.training(maskTruncated))
		}
	}
	return groups
}

func (a *group) training(maskTruncated bool) Group {
	g := Group{Group: batch.Group{Prompt: a.Tokens}, Advantages: a.advantages}
	for _, c := range a.answers {
		g.Answers, g.Trained = append(g.Answers, c.Tokens), append(g.Trained, c.Drawn)
		g.Sampled = append(g.Sampled, c.DrawnLogps())
		if maskTruncated {
			g.Masked = append(g.Masked, c.Reason == rollout.Length)
		}
	}
	if slices.ContainsFunc(a.answers, func(c ask.Answer) bool { return len(c.Logps) != len(c.Tokens) }) {
		g.Sampled = nil // the sampler does not say
	}
	return g
}

// tokens of all sequences, prompts and completions.
func (r *rolloutBatch) tokens() float64 {
	n := 0
	for _, a := range r.drawn {
		for _, c := range a.answers {
			n += len(a.Tokens) + len(c.Tokens)
		}
	}
	return float64(n)
}

// observe adds what was sampled to the metrics, groups that dynamic sampling dropped included.
func (r *rolloutBatch) observe(m *train.Metrics, noFormat bool) {
	apart := 0
	for _, a := range r.drawn {
		for _, x := range a.answers {
			s := x.Score
			apart += ask.LeftOut([]ask.Score{s})
			observe(m, s.Value, s.Parts)
			if !noFormat {
				m.Add("rewards/format/mean", float.Indicator(s.Fault == ""), 1)
			}
		}
		m.Add("reward_std", deviation(a.rewards()), 1)
		m.Add("frac_reward_zero_std", float.Indicator(a.degenerate), 1)
	}
	tokens := r.lengths(m)
	m.Add("time/rollout", r.rollout, 1)
	m.Add("time/score", r.score, 1)
	m.Add("rollout/tokens_per_second", tokens/r.rollout, r.rollout)
	m.Add("rollout/groups", float64(len(r.drawn)), 1)
	if r.missing > 0 {
		m.Add("rollout/missing", float64(r.missing), 1)
	}
	if apart > 0 {
		m.Add("rollout/not_its_own", float64(apart), 1)
	}
	if r.unscored > 0 {
		m.Add("rollout/unscored", float64(r.unscored), 1)
	}
}

// lengths adds what the completions' lengths are, and returns their sum in tokens.
func (r *rolloutBatch) lengths(m *train.Metrics) (tokens float64) {
	least, most := math.Inf(1), 0.0
	for _, a := range r.drawn {
		for _, c := range a.answers {
			n := float64(c.DrawnTokens())
			tokens, least, most = tokens+n, min(least, n), max(most, n)
			m.Add("completions/mean_length", n, 1)
			m.Add("completions/clipped_ratio", float.Indicator(c.Reason == rollout.Length), 1)
		}
	}
	m.Add("completions/min_length", least, 1)
	m.Add("completions/max_length", most, 1)
	return tokens
}

// deviation is the standard deviation of a group's rewards, with divisor n-1.
func deviation(x []float64) float64 {
	if len(x) < 2 {
		return 0
	}
	mean, squares := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares / float64(len(x)-1))
}
