package grpo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// rewardMetric names the best checkpoint.
const rewardMetric = "eval_reward"

// Evaluate implements [train.Source]: it measures the held-out tasks, and shows some answers.
func (rs *Rollouts) Evaluate(ctx context.Context) (map[string]float64, error) {
	values, answers, err := rs.Validate(ctx)
	if err != nil {
		return nil, err
	}
	more := ""
	if words := describe(values, answers[0].Score.Parts); words != "" {
		more = " (" + words + ")"
	}
	rs.t.Notice("step %d: %s %.3f%s", rs.t.Step(), rewardMetric, values[rewardMetric], more)
	return values, rs.show(answers)
}

// Validate measures the held-out tasks with the present weights and returns the means, by names that begin with
// "eval_", and one answer to each task. The draws follow from the seed alone: two validations differ by the weights,
// not by luck.
func (rs *Rollouts) Validate(ctx context.Context) (map[string]float64, []ask.Answer, error) {
	answers, err := rs.Answer(ctx, rs.ForTest(rs.Held, seedOf(rs.t.Seed, "validation", 0, 0)))
	if err != nil {
		return nil, nil, fmt.Errorf("validation after step %d: %w", rs.t.Step(), err)
	}
	m := train.NewMetrics()
	for _, a := range answers {
		if a.Score.Missing != "" {
			continue
		}
		observe(m, a.Score.Value, a.Score.Parts)
		if !rs.NoFormat {
			m.Add("format", float.Indicator(a.Score.Fault == ""), 1)
		}
		m.Add("completions/mean_length", float64(a.DrawnTokens()), 1)
		m.Add("completions/clipped_ratio", float.Indicator(a.Reason == rollout.Length), 1)
	}
	return m.Means("eval_"), answers, nil
}

// ForTest are questions that are answered once, at the temperature of validation. Their draws follow from the seed and
// their places.
func (rs *Rollouts) ForTest(tasks []ask.Question, seed uint64) []ask.Question {
	questions := slices.Clone(tasks)
	for i := range questions {
		q := &questions[i]
		q.Sampling, q.OneDraw, q.Seed = rs.Sampling, true, seedOf(seed, "evaluation", 0, i)
		q.Temperature = rs.Validation.Temperature
	}
	return questions
}

// Answer draws the completions of questions that have one each, with the present weights, and scores them.
func (rs *Rollouts) Answer(ctx context.Context, questions []ask.Question) ([]ask.Answer, error) {
	model := ask.Local{Sampler: rs.watch("answering", len(questions))}
	groups, err := model.Answer(ctx, questions)
	if err = explain(ctx, err); err != nil {
		return nil, err
	}
	answers := slices.Concat(groups...)
	return answers, rs.score(ctx, answers)
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
	if kept, has := values["eval_format"]; has {
		words = append(words, fmt.Sprintf("format kept %.3f", kept))
	}
	return strings.Join(words, ", ")
}

// show writes the first few answers of a validation into samples.jsonl: always of the same tasks, so that one can watch
// them change.
func (rs *Rollouts) show(answers []ask.Answer) error {
	if rs.Row == nil || rs.t.Folder == nil {
		return nil
	}
	var lines []any
	for _, a := range answers[:min(rs.Validation.Samples, len(answers))] {
		lines = append(lines, rs.Row(rs.t.Step(), a))
	}
	if lines == nil {
		return nil
	}
	return rs.t.Folder.LogSamples(lines...)
}
