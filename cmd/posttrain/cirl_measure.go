package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// measurement is what the test split gave; nil where there is none.
type measurement = eval.Report

// before measures the test split with the model as it is before training, or takes the measurement from the folder of a
// resumed run.
func (r *cirl) before(ctx context.Context) (*measurement, error) {
	samples, err := r.stored(run.TestBeforeName)
	if err != nil {
		return nil, err
	}
	if len(samples) > 0 {
		r.say("test before training: taken from %s", r.folder.Path(run.TestBeforeName))
		return count(samples), nil
	}
	m, err := r.measure(ctx, run.TestBeforeName, "before")
	if errors.Is(err, train.ErrInterrupted) {
		return nil, fmt.Errorf("%w during the test before training; nothing was trained yet: go on with %s", err, r.flags.again(r.folder.Dir))
	}
	return m, err
}

// after measures the test split with the trained model.
func (r *cirl) after(ctx context.Context) (*measurement, error) {
	m, err := r.measure(ctx, run.TestAfterName, "after")
	if errors.Is(err, train.ErrInterrupted) {
		return nil, fmt.Errorf("%w during the test after training; the model is in %s: measure it with %s", err, r.folder.ModelDir(), r.flags.again(r.folder.Dir))
	}
	return m, err
}

// stored reads a measurement of this very test split; none where there is no file.
func (r *cirl) stored(name string) (samples []eval.Sample, err error) {
	same := true
	err = r.folder.ReadLines(name, func(text []byte) error {
		var row eval.Row
		if err := json.Unmarshal(text, &row); err != nil {
			return err
		}
		i := len(samples)
		if same = same && i < len(r.items.test); same {
			c := &r.items.test[i]
			same = row.Item == c.Item.Source && row.Prompt.Plain == c.Text()
			a := rollout.Answer{Text: row.Completion, Tokens: row.Tokens, Reason: row.Reason}
			samples = append(samples, c.Score(i, 0, a, r.config.Reward))
		}
		return nil
	})
	if err != nil || same && len(samples) == 0 {
		return nil, err
	}
	if !same || len(samples) != len(r.items.test) {
		return nil, fmt.Errorf("%s: the test data is not what the run was started with: start a new run with --out DIR", r.folder.Path(name))
	}
	return samples, nil
}

// testDraws keeps the test's draws apart from others of the same seed.
const testDraws = 0x74657374

// measure draws a completion of every test prompt from the present weights, at validation's temperature. The draws follow
// from the seed and the prompt's place alone: before and after differ by the weights, not by luck.
func (r *cirl) measure(ctx context.Context, name, when string) (*measurement, error) {
	if len(r.items.test) == 0 {
		return nil, nil
	}
	r.say("test of %d prompts %s training", len(r.items.test), when)
	bar := r.newProgress("prompt", 0, len(r.items.test))
	defer bar.Close()
	chat := r.items.chat
	chat.Sampler, chat.Tick = r.sampler, func(done int) { bar.Step(done, nil) }
	eval.SeedDraws(r.items.test, r.seed^testDraws)
	samples, err := eval.Ask(ctx, &chat, r.items.test, r.config.Reward)
	if err != nil && ctx.Err() != nil {
		return nil, train.ErrInterrupted
	}
	if err != nil {
		return nil, fmt.Errorf("test %s training: %w", when, err)
	}
	return count(samples), r.store(name, samples)
}

// count is the report of the samples.
func count(samples []eval.Sample) *measurement {
	m := &measurement{}
	for _, s := range samples {
		m.Add(s)
	}
	return m
}

func (r *cirl) store(name string, samples []eval.Sample) error {
	rows := make([]any, len(samples))
	for i, s := range samples {
		row := s.Row()
		row.Prompt = data.Text{Plain: s.Case.Text()}
		rows[i] = row
	}
	return r.folder.WriteLines(name, rows...)
}
