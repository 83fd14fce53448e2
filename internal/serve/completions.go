package serve

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
)

// plainAsk is what only a request of /v1/completions has: a prompt without a chat template.
type plainAsk struct {
	text   string
	tokens []int32 // nil: text
	stops  []int32 // end an answer like the model's own
	ids    bool    // the reply has token ids
	native bool    // of /generate
}

// neutralPlain are the fields of completions that are not supported, with the values that do not use them.
var neutralPlain = map[string][]any{
	"echo":                          {false},
	"best_of":                       {1.0},
	"suffix":                        {""},
	"stream":                        {false},
	"frequency_penalty":             {0.0},
	"presence_penalty":              {0.0},
	"repetition_penalty":            {1.0},
	"logit_bias":                    {map[string]any{}},
	"ignore_eos":                    {false},
	"min_tokens":                    {0.0},
	"skip_special_tokens":           {false},
	"spaces_between_special_tokens": {true, false},
	"include_stop_str_in_output":    {false},
	"return_tokens_as_token_ids":    {false},
	"truncate_prompt_tokens":        {},
	"prompt_logprobs":               {},
	"stream_options":                {},
	"use_beam_search":               {false},
	"length_penalty":                {1.0},
	"allowed_token_ids":             {},
	"response_format":               {map[string]any{"type": "text"}},
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
	fields, p := a.read(body, readers, neutralPlain)
	if p != nil {
		return nil, p
	}
	a.logprobs, a.top = top >= 0, max(top, 0)
	switch {
	case !fields.has("prompt"):
		return nil, refuse("prompt", "want a text or a list of token ids")
	case a.top > 1 || a.top == 1 && a.Temperature > 0:
		return nil, refuse("logprobs", "%d is not supported: the server only knows the chosen token's log-prob; "+
			"want 0, or 1 with temperature 0", a.top)
	}
	return a, nil
}

// readPrompt reads a text or a list of token ids. OpenAI's protocol also has lists of these.
func (p *plainAsk) readPrompt(raw json.RawMessage) error {
	if json.Unmarshal(raw, &p.text) == nil {
		return nil
	}
	return value(&p.tokens, "one text, or one list of token ids")(raw)
}

// encode returns the tokens of the prompt. Ids are taken as they are.
func (p *plainAsk) encode(e *batch.Encoder, vocabulary int) ([]int32, error) {
	for _, list := range [][]int32{p.tokens, p.stops} {
		unknown := func(id int32) bool { return id < 0 || int(id) >= vocabulary }
		if i := slices.IndexFunc(list, unknown); i >= 0 {
			return nil, fmt.Errorf("token id %d: the model has ids 0 to %d", list[i], vocabulary-1)
		}
	}
	if p.tokens != nil {
		return p.tokens, nil
	}
	return e.Prompt(data.Text{Plain: p.text})
}

// stopTokens are the model's own and those of the request.
func (p *plainAsk) stopTokens(c *model.Config) []int32 {
	if p.stops == nil {
		return nil
	}
	stops := slices.Clone(p.stops)
	for _, id := range c.EOS {
		stops = append(stops, int32(id))
	}
	return stops
}

// samples are the requests of the choices. A single choice draws with the seed itself, so that a trainer that sends
// every sample's seed gets the tokens that a sampler of its own would draw.
func (p *plainAsk) samples(r rollout.Request, n int) []rollout.Request {
	if n == 1 {
		return []rollout.Request{r}
	}
	return r.Samples(n)
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
