package serve

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

// plainAsk is what only a request without a chat template has.
type plainAsk struct {
	text   string
	tokens []int32 // nil: text
	stops  []int32 // end an answer like the model's own
	ids    bool    // the reply has token ids
	native bool    // of /generate
}

// readPlainAsk reads the body of a request of /v1/completions.
func readPlainAsk(body []byte) (*ask, *problem) {
	a, top := newAsk(), -1
	a.plain = &plainAsk{}
	readers := a.readers()
	maps.Copy(readers, map[string]reader{
		"prompt":           a.plain.readPrompt,
		"logprobs":         between(&top, 0, mostAlternative),
		"stop_token_ids":   value(&a.plain.stops, "a list of token ids"),
		"return_token_ids": value(&a.plain.ids, "true or false"),
	})
	fields, p := a.read(body, readers)
	if p != nil {
		return nil, p
	}
	a.logprobs, a.top = top >= 0, max(top, 0)
	if !fields.has("prompt") {
		return nil, refuse("prompt", "want a text or a list of token ids")
	}
	return a, a.checkTop("logprobs")
}

// readPrompt reads a text or a list of token ids. OpenAI's protocol also has lists of these.
func (p *plainAsk) readPrompt(raw json.RawMessage) error {
	if json.Unmarshal(raw, &p.text) == nil {
		return nil
	}
	return value(&p.tokens, "one text, or one list of token ids")(raw)
}

// readGenerate reads a request in the form of SGLang's own servers.
func readGenerate(body []byte) (*ask, *problem) {
	a := newAsk()
	a.plain = &plainAsk{native: true, ids: true}
	draws := a.readers()
	maps.DeleteFunc(draws, func(name string, _ reader) bool {
		return name == "model" || name == "max_tokens" || name == "seed"
	})
	maps.Copy(draws, map[string]reader{
		"max_new_tokens": between(&a.MaxNew, 1, math.MaxInt32),
		"sampling_seed":  value(&a.seed, "a whole number of 64 bits"),
		"stop_token_ids": value(&a.plain.stops, "a list of token ids"),
	})
	fields, p := a.read(body, map[string]reader{
		"text":            value(&a.plain.text, "a text"),
		"input_ids":       value(&a.plain.tokens, "one list of token ids"),
		"sampling_params": within(draws, "leave it out"),
		"return_logprob":  value(&a.logprobs, "true or false"),
	})
	switch {
	case p != nil:
		return nil, p
	case fields.has("text") == fields.has("input_ids"):
		return nil, refuse("input_ids", "want input_ids or text, one of the two")
	}
	return a, nil
}

// encode returns the tokens of the prompt. Ids are taken as they are.
func (s *Server) encode(p *plainAsk) ([]int32, error) {
	vocabulary := s.options.Config.VocabSize
	for _, list := range [][]int32{p.tokens, p.stops} {
		unknown := func(id int32) bool { return id < 0 || int(id) >= vocabulary }
		if i := slices.IndexFunc(list, unknown); i >= 0 {
			return nil, fmt.Errorf("token id %d: the model has ids 0 to %d", list[i], vocabulary-1)
		}
	}
	if p.tokens != nil {
		return p.tokens, nil
	}
	return s.options.Encoder.Prompt(data.Text{Plain: p.text})
}

// Replies of /v1/completions.
type (
	plainReply struct {
		ID      string        `json:"id"`
		Object  string        `json:"object"`
		Created int64         `json:"created"`
		Model   string        `json:"model"`
		Choices []plainChoice `json:"choices"`
		Usage   *usage        `json:"usage"`
	}
	plainChoice struct {
		Index    int            `json:"index"`
		Text     string         `json:"text"`
		Logprobs *plainLogprobs `json:"logprobs"`
		Finish   *string        `json:"finish_reason"`
		Prompt   []int32        `json:"prompt_token_ids,omitempty"`
		Tokens   []int32        `json:"token_ids,omitempty"` // with the stop token
	}
	// plainLogprobs has an element for every token that was drawn, the stop token included.
	plainLogprobs struct {
		Tokens  []string             `json:"tokens"`
		Logps   []float32            `json:"token_logprobs"`
		Top     []map[string]float32 `json:"top_logprobs"` // null unless asked for
		Offsets []int                `json:"text_offset"`  // characters
	}
)

func (s *Server) plainReply(j *job) plainReply {
	r := plainReply{ID: "cmpl-" + rand.Text(), Object: "text_completion", Created: time.Now().Unix(),
		Model: j.ask.model, Usage: j.usage()}
	for i, c := range j.choices {
		choice := plainChoice{Index: i, Text: c.Text, Finish: finish(c.Reason)}
		if j.ask.logprobs {
			choice.Logprobs = s.plainLogprobs(j.ask, c.Completion)
		}
		if j.ask.plain.ids {
			choice.Prompt, choice.Tokens = j.requests[i].Prompt, c.Tokens
		}
		r.Choices = append(r.Choices, choice)
	}
	return r
}

func (s *Server) plainLogprobs(a *ask, c rollout.Completion) *plainLogprobs {
	p, at := &plainLogprobs{Logps: c.Logps}, 0
	for _, l := range s.logprobs(a, nil, c.Tokens, c.Logps) {
		p.Tokens, p.Offsets = append(p.Tokens, l.Token), append(p.Offsets, at)
		at += utf8.RuneCountInString(l.Token)
		if a.top > 0 {
			p.Top = append(p.Top, map[string]float32{l.Token: l.Logprob})
		}
	}
	return p
}

// nativeReply is that of /generate: one object, or a list of n. Tokens have the stop token.
func (j *job) nativeReply() any {
	var all []any
	for _, c := range j.choices {
		meta := map[string]any{"id": rand.Text(), "finish_reason": map[string]any{"type": finish(c.Reason)},
			"prompt_tokens": len(j.requests[0].Prompt), "completion_tokens": len(c.Tokens), "weight_version": j.version}
		if j.ask.logprobs {
			logprobs := make([][3]any, len(c.Tokens)) // log-prob, token id, null
			for i, token := range c.Tokens {
				logprobs[i] = [3]any{c.Logps[i], token, nil}
			}
			meta["output_token_logprobs"] = logprobs
		}
		all = append(all, map[string]any{"text": c.Text, "output_ids": c.Tokens, "meta_info": meta})
	}
	if j.ask.n == 1 {
		return all[0]
	}
	return all
}
