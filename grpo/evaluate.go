package grpo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// rewardMetric names the best checkpoint.
const rewardMetric = "eval_reward"

// Evaluate implements [train.Source]: it measures the held-out tasks, and shows some answers.
func (rs *Rollouts) Evaluate(ctx context.Context) (map[string]float64, error) {
	started := time.Now()
	values, answers, err := rs.Validate(ctx)
	if err != nil {
		return nil, err
	}
	values["eval_runtime"] = time.Since(started).Seconds()
	more := ""
	if words := describe(values, answers[0].Parts); words != "" {
		more = " (" + words + ")"
	}
	rs.t.Notice("step %d: %s %.3f%s", rs.t.Step(), rewardMetric, values[rewardMetric], more)
	return values, rs.show(answers)
}

// Answer is a completion of a held-out task with its score.
type Answer struct {
	rollout.Completion
	Score
}

// Validate measures the held-out tasks with the present weights and returns the means, by names that begin with
// "eval_", and one answer to each task. The draws follow from the seed alone: two validations differ by the weights,
// not by luck.
func (rs *Rollouts) Validate(ctx context.Context) (map[string]float64, []Answer, error) {
	answers, err := rs.Ask(ctx, rs.Held, seedOf(rs.t.Seed, "validation", 0, 0), func(int) {})
	if err != nil {
		return nil, nil, fmt.Errorf("validation after step %d: %w", rs.t.Step(), err)
	}
	m := train.NewMetrics()
	for _, a := range answers {
		if a.Missing != "" {
			continue
		}
		observe(m, a.Reward, a.Parts)
		if !rs.Formless {
			m.Add("format", one(a.Fault == ""), 1)
		}
		m.Add("completions/mean_length", float64(a.DrawnTokens()), 1)
		m.Add("completions/clipped_ratio", one(a.Reason == rollout.Length), 1)
	}
	return m.Means("eval_"), answers, nil
}

// Ask draws one completion of each task with the present weights, at the temperature of validation, and scores them.
// The draws follow from the seed and the tasks' places. tick gets the number of tasks that are answered.
func (rs *Rollouts) Ask(ctx context.Context, tasks []Task, seed uint64, tick func(done int)) ([]Answer, error) {
	answers, err := rs.answer(ctx, tasks, seed, tick)
	if err = explain(ctx, err); err != nil {
		return nil, err
	}
	replies := make([]Reply, len(answers))
	for i, a := range answers {
		replies[i] = Reply{&tasks[i], a.Text, a.World}
	}
	scores, err := rs.scores(ctx, replies)
	for i := range scores {
		answers[i].Score = scores[i]
	}
	return answers, err
}

// together is how many tasks are answered at a time.
const together = 128

// answer draws one completion of every task.
func (rs *Rollouts) answer(ctx context.Context, tasks []Task, seed uint64, tick func(int)) (answers []Answer,
	err error) {
	s := rs.Sampling
	s.Temperature = rs.Validation.Temperature
	for from := 0; from < len(tasks); from += together {
		held := tasks[from:min(from+together, len(tasks))]
		requests := make([]rollout.Request, len(held))
		for i, t := range held {
			requests[i] = rollout.Request{Sampling: s, Prompt: t.Tokens, Open: t.Open,
				Seed: seedOf(seed, "evaluation", 0, from+i)}
		}
		completions, err := rs.Sampler.Sample(ctx, requests)
		if err != nil {
			return nil, err
		}
		if len(completions) != len(held) {
			return nil, fmt.Errorf("%d completions of %d prompts", len(completions), len(held))
		}
		for i, c := range completions {
			if c.Reason == rollout.Missing {
				return nil, rollout.ServerError{Err: fmt.Errorf("prompt %d: no server gives an answer", from+i)}
			}
			answers = append(answers, Answer{Completion: c})
		}
		tick(len(answers))
	}
	return answers, nil
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
func (rs *Rollouts) show(answers []Answer) error {
	if rs.Row == nil || rs.t.Folder == nil {
		return nil
	}
	var lines []any
	for i, a := range answers[:min(rs.Validation.Samples, len(answers))] {
		t := &rs.Held[i]
		lines = append(lines, rs.Row(rs.t.Step(), t, a.Completion, a.Score))
	}
	if lines == nil {
		return nil
	}
	return rs.t.Folder.LogSamples(lines...)
}
