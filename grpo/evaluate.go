package grpo

import (
	"context"
	"fmt"
	"time"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/run"
)

// bestMetric is what names the best checkpoint.
const bestMetric = "eval_reward"

// measured are tasks with one completion each.
type measured struct {
	tasks       []Task
	completions []rollout.Completion
	scores      []reward.Score
}

// evaluate draws one completion of every task from the present weights, and scores it. The draws follow from the seed alone: two
// evaluations with one seed differ by the weights, not by luck.
func (l *Loop) evaluate(ctx context.Context, tasks []Task, s rollout.Sampling, seed uint64) (m *measured, err error) {
	requests := make([]rollout.Request, len(tasks))
	for i, t := range tasks {
		requests[i] = rollout.Request{Sampling: s, Prompt: t.Tokens, Seed: seedOf(seed, "evaluation", 0, i)}
	}
	m = &measured{tasks: tasks, scores: make([]reward.Score, len(tasks))}
	if m.completions, err = l.sample(ctx, requests); err != nil {
		return nil, err
	}
	for i, c := range m.completions {
		m.scores[i] = reward.Evaluate(tasks[i].Keywords, c.Text, tasks[i].Prefilled, l.Reward)
	}
	return m, nil
}

func (m *measured) tally() *eval.CI {
	c := &eval.CI{}
	for i, s := range m.scores {
		c.Add(s, len(m.tasks[i].Keywords.Required))
	}
	return c
}

// values are the metrics of a validation.
func (m *measured) values() map[string]float64 {
	c, length, cut := m.tally(), 0.0, 0.0
	for _, x := range m.completions {
		length += float64(len(x.Tokens))
		cut += one(x.Reason == rollout.Length)
	}
	n := float64(len(m.completions))
	return map[string]float64{bestMetric: c.Reward(), "eval_integrity": c.Integrity.Value(), "eval_utility": c.Utility.Value(),
		"eval_complete": c.Complete.Value(), "eval_format": c.Format.Value(),
		"eval_completions/mean_length": length / n, "eval_completions/clipped_ratio": cut / n}
}

// toValidate tells whether the present step is still to be validated.
func (l *Loop) toValidate(last bool) bool {
	step := l.state.Step
	return len(l.Held) > 0 && l.validated != step && (step == 0 || last || due(step, l.Validation.Every))
}

// validate measures the held-out tasks, logs what came out, and tells whether it is the best so far.
func (l *Loop) validate(ctx context.Context) (best bool, err error) {
	s, started := l.Sampling, time.Now()
	s.Temperature = l.Validation.Temperature
	m, err := l.evaluate(ctx, l.Held, s, seedOf(l.Seed, "validation", 0, 0))
	if err != nil {
		return false, fmt.Errorf("validation after step %d: %w", l.state.Step, err)
	}
	values := m.values()
	values["eval_runtime"] = time.Since(started).Seconds()
	if err := l.Folder.Log(run.Record{Step: l.state.Step, Epoch: l.epoch(), Values: values}); err != nil {
		return false, err
	}
	if err := l.show(m); err != nil {
		return false, err
	}
	l.notice("step %d: %s %.3f (integrity %.1f%%, utility %.1f%%, complete %.1f%%, format kept %.1f%%)", l.state.Step, bestMetric, values[bestMetric],
		100*values["eval_integrity"], 100*values["eval_utility"], 100*values["eval_complete"], 100*values["eval_format"])
	l.validated, l.clean = l.state.Step, false
	if l.state.Best != nil && !(values[bestMetric] > l.state.Best.Value) {
		return false, nil
	}
	l.state.Best = &run.Best{Step: l.state.Step, Metric: bestMetric, Value: values[bestMetric]}
	return true, nil
}
