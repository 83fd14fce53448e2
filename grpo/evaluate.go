package grpo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// rewardMetric names the best checkpoint.
const rewardMetric = "eval_reward"

// CIScore is the contextual-integrity reward of tasks with keywords, for [Loop].Score.
func CIScore(o reward.Options) func(t *Task, completion string) reward.Score {
	return func(t *Task, completion string) reward.Score {
		return WithParts(reward.Evaluate(t.Keywords, completion, t.Prefilled, o))
	}
}

// WithParts names the parts of a contextual-integrity score, which become metrics.
func WithParts(s reward.Score) reward.Score {
	s.Parts = map[string]float64{
		"rewards/required/mean": s.RequiredShare(), "rewards/restricted/mean": s.RestrictedShare(),
		"integrity": one(s.Integrity()), "utility": one(s.Utility()), "complete": one(s.Integrity() && s.Utility()),
	}
	return s
}

// validate measures the held-out tasks, and shows some answers.
func (l *Loop) validate(ctx context.Context) (map[string]float64, error) {
	started := time.Now()
	values, rows, err := l.Validate(ctx)
	if err != nil {
		return nil, err
	}
	values["eval_runtime"] = time.Since(started).Seconds()
	l.Notice("step %d: %s %.3f (%s)", l.Step(), rewardMetric, values[rewardMetric], describe(values, rows[0].Parts))
	return values, l.show(rows)
}

// Validate measures the held-out tasks with the present weights and returns the means, by names that begin with
// "eval_", and the answers. The draws follow from the seed alone: two validations differ by the weights, not by luck.
func (l *Loop) Validate(ctx context.Context) (map[string]float64, []eval.Row, error) {
	seed, seeds := seedOf(l.Seed, "validation", 0, 0), make([]uint64, len(l.Held))
	for i := range seeds {
		seeds[i] = seedOf(seed, "evaluation", 0, i)
	}
	answer := l.Answer
	if answer == nil {
		answer = l.answer
	}
	rows, err := answer(ctx, seeds)
	if err == nil && len(rows) != len(l.Held) {
		err = fmt.Errorf("%d answers to %d prompts", len(rows), len(l.Held))
	}
	if err = explain(ctx, err); err != nil {
		return nil, nil, fmt.Errorf("validation after step %d: %w", l.Step(), err)
	}
	m := train.NewMetrics()
	for _, r := range rows {
		observe(m, r.Reward, r.Parts)
		m.Add("format", one(r.Format), 1)
		m.Add("completions/mean_length", float64(r.Tokens), 1)
		m.Add("completions/clipped_ratio", one(r.Reason == rollout.Length), 1)
	}
	return m.Means("eval_"), rows, nil
}

// answer draws one completion of every held-out task and scores it.
func (l *Loop) answer(ctx context.Context, seeds []uint64) ([]eval.Row, error) {
	s, requests, rows := l.Sampling, make([]rollout.Request, len(l.Held)), make([]eval.Row, len(l.Held))
	s.Temperature = l.Validation.Temperature
	for i, t := range l.Held {
		requests[i] = rollout.Request{Sampling: s, Prompt: t.Tokens, Seed: seeds[i]}
	}
	completions, err := l.Sampler.Sample(ctx, requests)
	for i, c := range completions {
		if c.Reason == rollout.Missing {
			return nil, rollout.ServerError{Err: fmt.Errorf("prompt %d: no server gives an answer", i)}
		}
		t := &l.Held[i]
		a := rollout.Answer{Text: c.Text, Tokens: len(c.Tokens), Reason: c.Reason}
		s := l.Score(t, c.Text)
		rows[i] = eval.NewRow(t.Source, data.Text{Plain: t.Prompt}, a, s)
		if t.Keywords.Required != nil || t.Keywords.Restricted != nil {
			rows[i].KeywordRow = eval.NewKeywordRow(t.Keywords, s)
		}
	}
	return rows, err
}

// observe adds a reward and its parts to the metrics.
func observe(m *train.Metrics, reward float64, parts map[string]float64) {
	m.Add("reward", reward, 1)
	for name, x := range parts {
		m.Add(name, x, 1)
	}
}

// describe lists the means of a validation's parts, those with a short name.
func describe(values map[string]float64, parts map[string]float64) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if !strings.Contains(name, "/") {
			words = append(words, fmt.Sprintf("%s %.3f", name, values["eval_"+name]))
		}
	}
	return strings.Join(append(words, fmt.Sprintf("format kept %.3f", values["eval_format"])), ", ")
}

// sampleRow is a line of samples.jsonl.
type sampleRow struct {
	Step int `json:"step"` // of the weights that wrote it
	eval.Row
}

// show writes the first few answers of a validation into samples.jsonl: always of the same tasks, so that one can watch
// them change.
func (l *Loop) show(rows []eval.Row) error {
	var lines []any
	for _, r := range rows[:min(l.Validation.Samples, len(rows))] {
		lines = append(lines, sampleRow{l.Step(), r})
	}
	if lines == nil || l.Folder == nil {
		return nil
	}
	return l.Folder.LogSamples(lines...)
}
