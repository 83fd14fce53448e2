package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

// rejection is rejection sampling on its way: scenarios, the answers to them, and what was counted.
type rejection struct {
	streams
	flags bestFlags
	cases []answered
	opens bool // the chat template opens the think block

	sampled, good int // answers, and those of them that are good enough
	met           int // scenarios with an answer that is good enough
	sum, best     float64
}

// ask lets the model answer the scenarios whose prompts are not too long.
func (r *rejection) ask(ctx context.Context, m *local.Model, items []ci.Item, order func(i int) uint64) error {
	chat := m.Chat(nil)
	conversations, err := r.conversations(chat, items, order, m.Model.Config.MaxPositions-1)
	if err != nil {
		return err
	}
	bar := r.newBar(len(conversations))
	chat.Tick = func(done int) { bar.Step(done, nil) }
	answers, err := chat.Answer(ctx, conversations)
	bar.Close()
	if err != nil {
		return stopped(ctx, err)
	}
	for i := range r.cases {
		for _, a := range answers[i] {
			r.cases[i].texts = append(r.cases[i].texts, a.Text)
		}
	}
	return nil
}

// conversations puts the scenarios, less those with over-long prompts, which it counts; room is what the model takes.
func (r *rejection) conversations(chat *rollout.Local, items []ci.Item, order func(i int) uint64, room int) ([]rollout.Conversation, error) {
	limit := room
	if r.flags.maxPrompt > 0 {
		limit = min(limit, r.flags.maxPrompt)
	}
	var all []rollout.Conversation
	var prompts [][]int32
	for i, item := range items {
		c := r.flags.conversation(ci.Prompt(item, r.flags.prompt, order(i)), r.flags.seed, i)
		if r.flags.prefill {
			c.Prefill = ci.ThinkPrefill
		}
		ids, err := chat.Prompt(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item.Source, err)
		}
		all, prompts = append(all, c), append(prompts, ids)
		r.cases = append(r.cases, answered{item: item, prompt: c.Messages})
	}
	l := batch.LimitPrompts(prompts, limit)
	if len(l.Keep) == 0 {
		return nil, fmt.Errorf("all %d prompts are too long: the longest has %d tokens, and %d are allowed", len(items), l.Longest, limit)
	}
	if l.Dropped > 0 {
		fmt.Fprintf(r.err, "%d of %d scenarios left out: their prompts have more than %d tokens\n", l.Dropped, len(items), limit)
	}
	r.cases = data.Pick(r.cases, l.Keep)
	var err error
	r.opens, err = chat.Encoder.Opens(data.Text{Messages: r.cases[0].prompt}, ci.ThinkPrefill)
	return data.Pick(all, l.Keep), err
}

// filter makes demonstrations of the answers that are good enough: of a scenario at most flags.keep (0: all), the best
// first, equal ones once. A prefill belongs to the completion, unless the chat template writes it.
func (r *rejection) filter() (demos []data.Demonstration) {
	r.best = math.Inf(-1)
	head := ""
	if r.flags.prefill && !r.opens {
		head = ci.ThinkPrefill
	}
	for i, a := range r.cases {
		good := r.score(a)
		if len(good) > 0 {
			r.met++
		}
		if keep := r.flags.keep; keep > 0 && len(good) > keep {
			good = good[:keep]
		}
		for _, g := range good {
			demos = append(demos, data.Demonstration{
				Prompt:     data.Text{Messages: a.prompt},
				Completion: data.Text{Messages: []data.Message{{Role: "assistant", Content: head + g.text}}},
				Source:     fmt.Sprintf("scenario %d", i+1),
			})
		}
	}
	return demos
}

// rewarded is an answer with its reward.
type rewarded struct {
	text   string
	reward float64
}

// score gives the distinct answers to a scenario that are good enough, the best first.
func (r *rejection) score(a answered) (good []rewarded) {
	for _, text := range a.texts {
		x := reward.Evaluate(reward.Of(&a.item), text, r.flags.prefill || r.opens, r.flags.rule).Reward
		r.sampled++
		r.sum += x
		r.best = max(r.best, x)
		if x < r.flags.minReward {
			continue
		}
		r.good++
		if !slices.ContainsFunc(good, func(g rewarded) bool { return g.text == text }) {
			good = append(good, rewarded{text, x})
		}
	}
	slices.SortStableFunc(good, func(x, y rewarded) int { return cmp.Compare(y.reward, x.reward) })
	return good
}
