package best

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/scenarios"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Result is what the model answered and what was kept.
type Result struct {
	Samples        []eval.Sample
	Demonstrations []data.Demonstration // of Run
	Pairs          []data.Preference    // of Pairs
	Summary        string               // in words
}

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Run keeps the good answers to each scenario as demonstrations, and writes them to Options.Out. A nil Reporter is
// silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	cases, samples, err := ask(ctx, Spec, o, r)
	if err != nil {
		return nil, err
	}
	k := &keeper{o: o, best: math.Inf(-1)}
	demos := k.filter(cases, samples)
	mean := k.sum / float64(len(samples))
	if len(demos) == 0 {
		return nil, fmt.Errorf("no answer has a reward of %v or more: the best of %d has %.2f, the mean is %.2f; "+
			"lower --min-reward, or sample more answers or at another temperature",
			o.MinReward, len(samples), k.best, mean)
	}
	if err := data.WriteDemonstrations(o.Out, demos); err != nil {
		return nil, err
	}
	return &Result{Samples: samples, Demonstrations: demos, Summary: fmt.Sprintf("%s: %d demonstrations\n"+
		"%d of %d answers have a reward of %v or more (mean reward %.3f), to %d of %d scenarios\n",
		o.Out, len(demos), k.good, len(samples), o.MinReward, mean, k.met, len(cases))}, nil
}

// Pairs pairs the best answer to each scenario with the worst, as the MaPPO paper does, and writes the pairs to
// Options.Out. A nil Reporter is silent.
func Pairs(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	cases, samples, err := ask(ctx, pairsSpec, o, r)
	if err != nil {
		return nil, err
	}
	groups, scores := groupsOf(cases, samples)
	pairs, tally, err := scorer.Pairs(groups, scores)
	if err != nil {
		return nil, err
	}
	if err := data.WritePreferences(o.Out, pairs); err != nil {
		return nil, err
	}
	return &Result{Samples: samples, Pairs: pairs, Summary: fmt.Sprintf("%s: %v\n", o.Out, tally)}, nil
}

// groupsOf lists the answers to each scenario, and all their scores.
func groupsOf(cases []eval.Case, samples []eval.Sample) (groups []scorer.Group, scores []scorer.Score) {
	for i, answers := range byCase(cases, samples) {
		g := scorer.Group{Prompt: data.Text{Messages: cases[i].Messages}, Source: fmt.Sprintf("scenario %d", i+1)}
		for _, a := range answers {
			g.Answers = append(g.Answers, a.Answer.Text)
			scores = append(scores, scorer.Score{Value: reward.Unit(a.Score.Reward)})
		}
		groups = append(groups, g)
	}
	return groups, scores
}

// ask lets the model answer the scenarios.
func ask(
	ctx context.Context, spec *config.Spec[Options], o Options, r run.Reporter,
) ([]eval.Case, []eval.Sample, error) {
	if err := spec.Verify(&o); err != nil {
		return nil, nil, err
	}
	r = run.Listen(r)
	set, err := o.Read(r)
	if err != nil {
		return nil, nil, err
	}
	if o.Data != "" { // whatever the part, the prompts are in the order of training
		set.Order = func(i int) uint64 { return ci.Order(o.SplitSeed, ci.Train, i) }
	}
	if o.Templates {
		return ideal(o, set)
	}
	m, err := local.OpenWith(local.Options{Backend: o.Backend, Model: o.Model, Adapter: o.Adapter, CacheGB: o.CacheGB,
		Chat: o.Chat})
	if err != nil {
		return nil, nil, err
	}
	defer m.Close()
	recipe.ReportEngine(m.Engine, r)
	cases, err := o.Cases(set, o.Answers)
	if err != nil {
		return nil, nil, err
	}
	eval.SeedDraws(cases, o.Seed)
	if cases, _, err = o.Fit(m, cases, r); err != nil {
		return nil, nil, err
	}
	open := func(tick func(done int)) (rollout.Chat, error) { return m.Chat(tick), nil }
	samples, err := o.Ask(ctx, r, cases, open)
	return cases, samples, err
}

// ideal answers the scenarios by templates. The prefill belongs to the prompt, as in what a model writes.
func ideal(o Options, set scenarios.Set) (cases []eval.Case, samples []eval.Sample, err error) {
	if cases, err = o.Cases(set, 1); err != nil {
		return nil, nil, err
	}
	for i, c := range cases {
		text := strings.TrimPrefix(ci.Ideal(*c.Item, o.Prompt, set.Order(i)), c.Prefill)
		s := eval.Score(i, c.Item, text, o.Prefill, o.Reward)
		s.Case, s.Answer = &cases[i], rollout.Answer{Text: text}
		samples = append(samples, s)
	}
	return cases, samples, nil
}

// byCase groups the samples of each case.
func byCase(cases []eval.Case, samples []eval.Sample) [][]eval.Sample {
	groups := make([][]eval.Sample, len(cases))
	for _, s := range samples {
		groups[s.Item] = append(groups[s.Item], s)
	}
	return groups
}

// keeper chooses answers and counts.
type keeper struct {
	o         Options
	good      int // answers that are good enough
	met       int // scenarios with an answer that is good enough
	sum, best float64
}

// filter makes demonstrations of the answers that are good enough. A prefill belongs to the completion, unless the chat
// template writes it.
func (k *keeper) filter(cases []eval.Case, samples []eval.Sample) (demos []data.Demonstration) {
	for i, answers := range byCase(cases, samples) {
		c, good := cases[i], k.choose(answers)
		if len(good) > 0 {
			k.met++
		}
		if k.o.Keep > 0 && len(good) > k.o.Keep {
			good = good[:k.o.Keep]
		}
		head := c.Prefill
		if c.Opened {
			head = ""
		}
		for _, g := range good {
			answer := data.Message{Role: "assistant", Content: head + g.Answer.Text}
			demos = append(demos, data.Demonstration{
				Prompt:     data.Text{Messages: c.Messages},
				Completion: data.Text{Messages: []data.Message{answer}},
				Source:     fmt.Sprintf("scenario %d", i+1),
			})
		}
	}
	return demos
}

// choose gives the distinct answers to a scenario that are good enough, the best first.
func (k *keeper) choose(answers []eval.Sample) (good []eval.Sample) {
	for _, a := range answers {
		x := a.Score.Reward
		k.sum += x
		k.best = max(k.best, x)
		if x < k.o.MinReward {
			continue
		}
		k.good++
		if !slices.ContainsFunc(good, func(g eval.Sample) bool { return g.Answer.Text == a.Answer.Text }) {
			good = append(good, a)
		}
	}
	slices.SortStableFunc(good, func(x, y eval.Sample) int { return cmp.Compare(y.Score.Reward, x.Score.Reward) })
	return good
}
