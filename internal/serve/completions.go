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
)

// plainAsk is what only a request without a chat template has.
type plainAsk struct {
	prompts []plainPrompt
	stops   []int32 // end an answer like the model's own
	ids     bool    // the reply has token ids
	echo    bool    // the reply has the prompt, too
	none    bool    // and no answer
	native  bool    // of /generate
}

// plainPrompt is a text or token ids.
type plainPrompt struct {
	text   string
	tokens []int32 // nil: text
}

// readPlainAsk reads the body of a request of /v1/completions.
func readPlainAsk(body []byte) (*ask, *problem) {
	a, top := newAsk(), -1
	a.plain = &plainAsk{}
	readers := a.readers()
	maps.Copy(readers, map[string]reader{
		"prompt":           a.plain.readPrompt,
		"logprobs":         between(&top, 0, mostAlternative),
		"max_tokens":       between(&a.MaxNew, 0, math.MaxInt32),
		"echo":             value(&a.plain.echo, "true or false"),
		"stop_token_ids":   a.plain.readStopIDs,
		"return_token_ids": value(&a.plain.ids, "true or false"),
	})
	fields, p := a.read(body, readers)
	if p != nil {
		return nil, p
	}
	a.logprobs, a.top = top >= 0, max(top, 0)
	a.plain.none = fields.has("max_tokens") && a.MaxNew == 0
	switch {
	case !fields.has("prompt"):
		return nil, refuse("prompt", "want a text or a list of token ids")
	case a.plain.none && !a.plain.echo:
		return nil, refuse("max_tokens", "found 0: want 1 or more, or echo true as well")
	case a.plain.none:
		a.MaxNew = 1 // which is not drawn
	}
	return a, a.checkTop("logprobs")
}

// mostPrompts of a request.
const mostPrompts = 1024

// readPrompt reads a text or a list of token ids, or a list of these.
func (p *plainAsk) readPrompt(raw json.RawMessage) error {
	var one plainPrompt
	var texts []string
	var lists [][]int32
	switch {
	case json.Unmarshal(raw, &one.text) == nil, json.Unmarshal(raw, &one.tokens) == nil:
		p.prompts = []plainPrompt{one}
	case json.Unmarshal(raw, &texts) == nil:
		for _, text := range texts {
			p.prompts = append(p.prompts, plainPrompt{text: text})
		}
	default:
		if err := value(&lists, "a text or a list of token ids, or a list of either")(raw); err != nil {
			return err
		}
		for _, ids := range lists {
			p.prompts = append(p.prompts, plainPrompt{tokens: append([]int32{}, ids...)})
		}
	}
	if len(p.prompts) > mostPrompts {
		return fmt.Errorf("found %d prompts: want at most %d", len(p.prompts), mostPrompts)
	}
	return nil
}

// readGenerate reads a request in the form of SGLang's own servers.
func readGenerate(body []byte) (*ask, *problem) {
	a, prompt := newAsk(), plainPrompt{}
	a.plain = &plainAsk{native: true, ids: true}
	draws := a.readers()
	maps.DeleteFunc(draws, func(name string, _ reader) bool {
		return name == "model" || name == "max_tokens" || name == "seed"
	})
	maps.Copy(draws, map[string]reader{
		"max_new_tokens": between(&a.MaxNew, 1, math.MaxInt32),
		"sampling_seed":  value(&a.seed, "a whole number of 64 bits"),
		"stop_token_ids": a.plain.readStopIDs,
	})
	fields, p := a.read(body, map[string]reader{
		"text":            value(&prompt.text, "a text"),
		"input_ids":       value(&prompt.tokens, "one list of token ids"),
		"sampling_params": within(draws, "leave it out"),
		"return_logprob":  value(&a.logprobs, "true or false"),
	})
	switch {
	case p != nil:
		return nil, p
	case fields.has("text") == fields.has("input_ids"):
		return nil, refuse("input_ids", "want input_ids or text, one of the two")
	}
	a.plain.prompts = []plainPrompt{prompt}
	return a, nil
}

// encode returns the tokens of a prompt. Ids are taken as they are.
func (s *Server) encode(p plainPrompt, stops []int32) ([]int32, error) {
	vocabulary := s.options.Config.VocabSize
	for _, list := range [][]int32{p.tokens, stops} {
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
	// plainLogprobs has an element for every token that was drawn, the stop token included, after an echo's.
	plainLogprobs struct {
		Tokens  []string             `json:"tokens"`
		Logps   []*float32           `json:"token_logprobs"` // null for the first token of an echo
		Top     []map[string]float32 `json:"top_logprobs"`   // null unless asked for
		Offsets []int                `json:"text_offset"`    // characters
	}
)

func (s *Server) plainReply(j *job) plainReply {
	r := plainReply{ID: "cmpl-" + rand.Text(), Object: "text_completion", Created: time.Now().Unix(),
		Model: j.ask.model, Usage: j.usage()}
	for i, c := range j.choices {
		choice := plainChoice{Index: i, Text: c.Text, Finish: finish(c.Reason)}
		if j.ask.plain.echo {
			choice.Text = s.echoText(j.ask.plain.prompts[i/j.ask.n]) + c.Text
		}
		if j.ask.logprobs {
			choice.Logprobs = s.plainLogprobs(j, i)
		}
		if j.ask.plain.ids {
			choice.Prompt, choice.Tokens = j.requests[i].Prompt, c.Tokens
		}
		r.Choices = append(r.Choices, choice)
	}
	return r
}

// echoText is a prompt's text.
func (s *Server) echoText(p plainPrompt) string {
	if p.tokens == nil {
		return p.text
	}
	return s.options.Decoder.Decode(p.tokens, false)
}

// plainLogprobs describes the tokens of a choice, after its prompt's where that is echoed.
func (s *Server) plainLogprobs(j *job, i int) *plainLogprobs {
	tokens, logps, best, top := j.choices[i].Tokens, j.choices[i].Logps, j.choices[i].Tokens, j.choices[i].Logps
	if j.ask.plain.echo {
		prompt, e := j.requests[i].Prompt, j.echoes[i/j.ask.n]
		n := len(prompt) - 1
		tokens, logps = slices.Concat(prompt, tokens), slices.Concat([]float32{0}, e.Logps[:n], logps)
		best, top = slices.Concat([]int32{0}, e.Best[:n], best), slices.Concat([]float32{0}, e.Top[:n], top)
	}
	p, at := &plainLogprobs{}, 0
	for k, token := range tokens {
		text, logp := s.text(tokens[:k], token), &logps[k]
		likely := map[string]float32{text: *logp}
		if best[k] != token {
			likely[s.text(tokens[:k], best[k])] = top[k]
		}
		if k == 0 && j.ask.plain.echo { // nothing comes before it
			logp, likely = nil, nil
		}
		p.Tokens, p.Offsets, p.Logps = append(p.Tokens, text), append(p.Offsets, at), append(p.Logps, logp)
		at += utf8.RuneCountInString(text)
		if j.ask.top > 0 {
			p.Top = append(p.Top, likely)
		}
	}
	return p
}

// nativeReply is the reply of /generate: one object, or a list of n. Tokens have the stop token.
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
