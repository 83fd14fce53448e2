package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/reward"
)

// rejection is rejection sampling on its way: the answers to scenarios, and what was counted.
type rejection struct {
	flags   bestFlags
	cases   []eval.Case
	samples []eval.Sample

	good      int // answers that are good enough
	met       int // scenarios with an answer that is good enough
	sum, best float64
}

// answer lets the model answer the scenarios whose prompts have at most so many tokens; 0: as many as the model takes.
func (s streams) answer(ctx context.Context, f samplingFlags, cases []eval.Case, seed uint64, limit int, o reward.Options) ([]eval.Case, []eval.Sample, error) {
	m, err := openSampler(f)
	if err != nil {
		return nil, nil, err
	}
	defer m.Close()
	room, chat := m.Model.Config.MaxPositions-1, m.Chat(nil)
	if limit > 0 {
		room = min(room, limit)
	}
	eval.SeedDraws(cases, seed)
	cases, left, err := eval.Fit(chat, cases, room)
	if err != nil {
		return nil, nil, err
	}
	if err := left.Err(); err != nil {
		return nil, nil, err
	}
	if left.Count > 0 {
		fmt.Fprintln(s.err, "warning:", left)
	}
	bar := s.newBar(len(cases))
	chat.Tick = func(done int) { bar.Step(done, nil) }
	samples, err := eval.Ask(ctx, chat, cases, o)
	bar.Close()
	return cases, samples, stopped(ctx, err)
}

// filter makes demonstrations of the answers that are good enough: of a scenario at most flags.keep (0: all), the best
// first, equal ones once. A prefill belongs to the completion, unless the chat template writes it.
func (r *rejection) filter() (demos []data.Demonstration) {
	r.best = math.Inf(-1)
	for i := range r.cases {
		c := &r.cases[i]
		good := r.keepers(i)
		if len(good) > 0 {
			r.met++
		}
		if keep := r.flags.keep; keep > 0 && len(good) > keep {
			good = good[:keep]
		}
		head := c.Prefill
		if c.Opened {
			head = ""
		}
		for _, g := range good {
			demos = append(demos, data.Demonstration{
				Prompt:     data.Text{Messages: c.Messages},
				Completion: data.Text{Messages: []data.Message{{Role: "assistant", Content: head + g.Answer.Text}}},
				Source:     fmt.Sprintf("scenario %d", i+1),
			})
		}
	}
	return demos
}

// keepers gives the distinct answers to case i that are good enough, the best first.
func (r *rejection) keepers(i int) (good []eval.Sample) {
	for _, s := range r.samples {
		if s.Item != i {
			continue
		}
		x := s.Score.Reward
		r.sum += x
		r.best = max(r.best, x)
		if x < r.flags.minReward {
			continue
		}
		r.good++
		if !slices.ContainsFunc(good, func(g eval.Sample) bool { return g.Answer.Text == s.Answer.Text }) {
			good = append(good, s)
		}
	}
	slices.SortStableFunc(good, func(x, y eval.Sample) int { return cmp.Compare(y.Score.Reward, x.Score.Reward) })
	return good
}
