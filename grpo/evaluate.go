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
		s := reward.Evaluate(t.Keywords, completion, t.Prefilled, o)
		s.Parts = map[string]float64{
			"rewards/required/mean": s.RequiredShare(), "rewards/restricted/mean": s.RestrictedShare(),
			"integrity": one(s.Integrity()), "utility": one(s.Utility()), "complete": one(s.Integrity() && s.Utility()),
		}
		return s
	}
}

// validate draws one completion of every held-out task from the present weights, scores them, and shows the first. The
// draws follow from the seed alone: two validations differ by the weights, not by luck.
func (l *Loop) validate(ctx context.Context) (map[string]float64, error) {
	started, s, seed := time.Now(), l.Sampling, seedOf(l.Seed, "validation", 0, 0)
	s.Temperature = l.Validation.Temperature
	requests := make([]rollout.Request, len(l.Held))
	for i, t := range l.Held {
		requests[i] = rollout.Request{Sampling: s, Prompt: t.Tokens, Seed: seedOf(seed, "evaluation", 0, i)}
	}
	completions, err := l.sample(ctx, requests)
	if err != nil {
		return nil, fmt.Errorf("validation after step %d: %w", l.Step(), err)
	}
	m, scores := train.NewMetrics(), make([]reward.Score, len(completions))
	for i, c := range completions {
		scores[i] = l.Score(&l.Held[i], c.Text)
		observe(m, scores[i])
		m.Add("format", one(scores[i].Fault == ""), 1)
		m.Add("completions/mean_length", float64(len(c.Tokens)), 1)
		m.Add("completions/clipped_ratio", one(c.Reason == rollout.Length), 1)
	}
	values := m.Means("eval_")
	values["eval_runtime"] = time.Since(started).Seconds()
	l.Notice("step %d: %s %.3f (%s)", l.Step(), rewardMetric, values[rewardMetric], describe(values, scores[0].Parts))
	return values, l.show(completions, scores)
}

// observe adds a reward and its parts to the metrics.
func observe(m *train.Metrics, s reward.Score) {
	m.Add("reward", s.Reward, 1)
	for name, x := range s.Parts {
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

// show writes the first few completions of a validation into samples.jsonl: always of the same tasks, so that one can
// watch them change.
func (l *Loop) show(completions []rollout.Completion, scores []reward.Score) error {
	var lines []any
	for i, t := range l.Held[:min(l.Validation.Samples, len(l.Held))] {
		c, s := completions[i], scores[i]
		a := rollout.Answer{Text: c.Text, Tokens: len(c.Tokens), Reason: c.Reason}
		row := eval.NewRow(t.Source, data.Text{Plain: t.Prompt}, a, s)
		if t.Keywords.Required != nil || t.Keywords.Restricted != nil {
			row.KeywordRow = eval.NewKeywordRow(t.Keywords, s)
		}
		lines = append(lines, sampleRow{l.Step(), row})
	}
	if lines == nil || l.Folder == nil {
		return nil
	}
	return l.Folder.LogSamples(lines...)
}
