package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// measurement is what the test split gave; nil where there is none.
type measurement = eval.Report

// testLine is a completion of the test split as the run folder keeps it: what it takes to judge it again, and what a reader
// wants to see.
type testLine struct {
	Item       string  `json:"item"`
	Prompt     string  `json:"prompt"`
	Completion string  `json:"completion"`
	Reason     string  `json:"reason"` // why it ends
	Tokens     int     `json:"tokens"`
	Reward     float64 `json:"reward"`
	Integrity  bool    `json:"integrity"`
	Utility    bool    `json:"utility"`
}

// before measures the test split with the model as it is before training, or takes the measurement from the folder of a
// resumed run.
func (r *cirl) before(ctx context.Context) (*measurement, error) {
	lines, err := r.stored(run.TestBeforeName)
	if err != nil {
		return nil, err
	}
	if len(lines) > 0 {
		r.say("test before training: taken from %s", r.folder.Path(run.TestBeforeName))
		return r.judge(lines), nil
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
func (r *cirl) stored(name string) (lines []testLine, err error) {
	err = r.folder.ReadLines(name, func(text []byte) error {
		var l testLine
		err := json.Unmarshal(text, &l)
		lines = append(lines, l)
		return err
	})
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	same := len(lines) == len(r.items.test)
	for i := range min(len(lines), len(r.items.test)) {
		same = same && lines[i].Item == r.items.test[i].Source && lines[i].Prompt == r.items.test[i].Prompt
	}
	if !same {
		return nil, fmt.Errorf("%s: the test data is not what the run was started with: start a new run with --out DIR", r.folder.Path(name))
	}
	return lines, nil
}

// together is how many test prompts are answered in one call: enough to fill a batch, few enough to see it move.
const together = 128

// measure draws a completion of every test prompt from the present weights, at validation's temperature. The draws follow
// from the seed and the prompt's place alone: before and after differ by the weights, not by luck.
func (r *cirl) measure(ctx context.Context, name, when string) (*measurement, error) {
	if len(r.items.test) == 0 {
		return nil, nil
	}
	r.say("test of %d prompts %s training", len(r.items.test), when)
	bar := r.newProgress("prompt", 0, len(r.items.test))
	defer bar.Close()
	var lines []testLine
	for at := 0; at < len(r.items.test); at += together {
		part := r.items.test[at:min(at+together, len(r.items.test))]
		completions, err := r.sampler.Sample(ctx, r.requests(part, at))
		if err != nil && ctx.Err() != nil {
			return nil, train.ErrInterrupted
		}
		if err != nil {
			return nil, fmt.Errorf("test %s training: %w", when, err)
		}
		for i, c := range completions {
			lines = append(lines, testLine{Item: part[i].Source, Prompt: part[i].Prompt, Completion: c.Text, Reason: c.Reason, Tokens: len(c.Tokens)})
		}
		bar.Step(len(lines), nil)
	}
	m := r.judge(lines)
	return m, r.store(name, lines)
}

// requests are the test's; first is the place of the first of them.
func (r *cirl) requests(cases []testCase, first int) []rollout.Request {
	s := r.config.Sampling
	s.Temperature = r.config.Validation.Temperature
	requests := make([]rollout.Request, len(cases))
	for i, c := range cases {
		requests[i] = rollout.Request{
			Sampling: s, Prompt: c.Tokens, Seed: rand.New(rand.NewPCG(r.seed^testDraws, uint64(first+i))).Uint64(),
		}
	}
	return requests
}

// testDraws keeps the test's draws apart from others of the same seed.
const testDraws = 0x74657374

// judge scores completions of the test split, and notes in the lines what they are worth.
func (r *cirl) judge(lines []testLine) *measurement {
	m := &measurement{}
	for i := range lines {
		l, c := &lines[i], r.items.test[i]
		s := eval.Score(i, c.item, l.Completion, c.Prefilled, r.config.Reward)
		s.Cut = l.Reason == rollout.Length
		l.Reward, l.Integrity, l.Utility = s.Score.Reward, s.Score.Integrity(), s.Score.Utility()
		m.Add(s)
	}
	return m
}

func (r *cirl) store(name string, lines []testLine) error {
	all := make([]any, len(lines))
	for i, l := range lines {
		all[i] = l
	}
	return r.folder.WriteLines(name, all...)
}
