package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// Answers that an evaluation shows: how long they are at most, how much of them a line of the console has, and the
// gigabytes of the cache that they are drawn with.
const (
	sampleTokens = 64
	sampleWords  = 100
	sampleCache  = 0.25
)

// sample is an answer as a line of samples.jsonl. Messages of a conversation are in the prompt as the template writes them.
type sample struct {
	Step       int    `json:"step"`
	Sample     int    `json:"sample"` // from 1
	Prompt     string `json:"prompt"`
	Completion string `json:"completion"`
	Tokens     int    `json:"tokens"`
	Reason     string `json:"reason"` // why it ends: eos or length
}

// samples draws the likeliest answers to a few held-out prompts at every evaluation, so that one sees what training
// changes. They take no draws from the run: its weights are the same without them.
type samples struct {
	*Run
	sampler  *rollout.Cached
	requests []rollout.Request
	first    []string // the answers of the run's first evaluation
}

// showSamples has a trainer show answers to the first prompts of examples. Close gives back what it takes.
func (r *Run) showSamples(t *train.Trainer, held []train.Example) (closed func(), err error) {
	s := &samples{Run: r}
	seen := map[string]bool{}
	for _, x := range held {
		key := fmt.Sprint(x.Prompt)
		if len(s.requests) == r.Train.ShowSamples || seen[key] || len(x.Prompt) < 2 { // of a text alone it is the first token
			continue
		}
		seen[key] = true
		room := r.Model.Config.MaxPositions - len(x.Prompt)
		s.requests = append(s.requests, rollout.Request{Prompt: x.Prompt,
			Sampling: rollout.Sampling{MaxNew: max(1, min(sampleTokens, room))}})
	}
	if len(s.requests) == 0 || r.Model.Config.Reward {
		return func() {}, nil
	}
	s.sampler = r.Sampler(sampleCache)
	t.OnEvaluate = s.show
	return s.sampler.Close, r.Folder.ReadSamples(s.recall)
}

// recall takes the first answers of a run that continues.
func (s *samples) recall(_ int, lines []byte) error {
	if s.first != nil {
		return nil
	}
	for line := range bytes.Lines(lines) {
		var one sample
		if err := json.Unmarshal(line, &one); err != nil {
			return err
		}
		s.first = append(s.first, one.Completion)
	}
	return nil
}

// show draws the answers of a step. Training goes on without them where they do not fit into memory.
func (s *samples) show(ctx context.Context, step int) error {
	answers, err := s.sampler.Sample(ctx, s.requests)
	if err != nil {
		if ctx.Err() == nil {
			s.notice(fmt.Sprintf("no sample answers from here on: %v", err))
			s.requests = nil
		}
		return nil
	}
	var lines []any
	var now []string
	for i, a := range answers {
		prompt := s.requests[i].Prompt
		one := sample{step, i + 1, s.Tokenizer.Decode(prompt, true),
			rollout.AnswerText(s.Tokenizer, prompt, a.Tokens, false), len(a.Tokens), a.Reason}
		lines, now = append(lines, one), append(now, one.Completion)
		short := func(text string) string { return fault.Beginning(fault.OneLine(text), sampleWords) }
		if i < len(s.first) {
			s.notice(fmt.Sprintf("sample %d: before: %s | now: %s", i+1, short(s.first[i]), short(one.Completion)))
		} else {
			s.notice(fmt.Sprintf("sample %d: %s | before: %s", i+1, ending(one.Prompt), short(one.Completion)))
		}
	}
	if s.first == nil {
		s.first = now
	}
	if lines == nil {
		return nil
	}
	return s.Folder.LogSamples(lines...)
}

// ending is the end of a prompt in one line.
func ending(prompt string) string {
	runes := []rune(fault.OneLine(prompt))
	if len(runes) > sampleWords {
		return "…" + string(runes[len(runes)-sampleWords:])
	}
	return string(runes)
}
