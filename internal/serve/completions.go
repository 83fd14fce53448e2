package serve

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
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
	maps.Copy(readers, a.streamReaders())
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
	case fields.has("stream_options") && !a.stream:
		return nil, refuse("stream_options", "want stream true as well")
	case a.plain.echo && a.top > 1:
		return nil, refuse("logprobs", "%d is not supported with echo: want 0 or 1", a.top)
	case a.plain.none:
		a.MaxNew = 1 // which is not drawn
	}
	return a, nil
}

// mostPrompts of a request.
const mostPrompts = 1024

// readPrompt reads a text or a list of token ids, or a list of these.
func (p *plainAsk) readPrompt(raw json.RawMessage) error {
	var one plainPrompt
	var texts []*string
	var lists [][]int32
	switch {
	case json.Unmarshal(raw, &one.text) == nil, ids(&one.tokens, "")(raw) == nil:
		p.prompts = []plainPrompt{one}
	case json.Unmarshal(raw, &texts) == nil && !slices.Contains(texts, nil):
		for _, text := range texts {
			p.prompts = append(p.prompts, plainPrompt{text: *text})
		}
	default:
		if err := ids(&lists, "a text or a list of token ids, or a list of either")(raw); err != nil {
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
		"input_ids":       ids(&prompt.tokens, "one list of token ids"),
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

func (j *job) newPlainReply() plainReply {
	return plainReply{ID: "cmpl-" + rand.Text(), Object: "text_completion", Created: time.Now().Unix(),
		Model: j.ask.model, Choices: []plainChoice{}}
}

func (s *Server) plainReply(j *job) plainReply {
	r := j.newPlainReply()
	r.Usage = j.usage()
	for i, c := range j.choices {
		choice := s.plainChoice(j, i, c.Text, nil, c.stretch(0, len(c.Tokens), j.ask))
		choice.Finish = finish(c.Reason)
		r.Choices = append(r.Choices, choice)
	}
	return r
}

// plainChoice has a part of a choice's answer, behind other tokens. Without them it is the first, which begins with the
// prompt where that is echoed.
func (s *Server) plainChoice(j *job, i int, text string, before []int32, d stretch) plainChoice {
	p, first, own := plainChoice{Index: i, Text: text}, before == nil, d.tokens
	echo := first && j.ask.plain.echo
	if first && !echo {
		before = j.requests[i].Prompt
	}
	if j.ask.plain.echo {
		shown := s.echoText(j, i)
		for k := range d.starts {
			d.starts[k] += utf8.RuneCountInString(shown)
		}
		if echo {
			p.Text, before, d = shown+text, nil, s.echoed(j, i, shown).and(d)
		}
	}
	if j.ask.logprobs {
		p.Logprobs = s.plainLogprobs(before, d)
	}
	if echo && p.Logprobs != nil { // nothing comes before the first
		p.Logprobs.Logps[0] = nil
		if d.tops != nil {
			p.Logprobs.Top[0] = nil
		}
	}
	if j.ask.plain.ids {
		if p.Tokens = own; first {
			p.Prompt = j.requests[i].Prompt
		}
	}
	return p
}

// echoText is the text of a choice's prompt.
func (s *Server) echoText(j *job, i int) string {
	p := j.ask.plain.prompts[i/j.ask.n]
	if p.tokens == nil {
		return p.text
	}
	return s.options.Decoder.Decode(p.tokens, !j.ask.KeepSpecial)
}

// offsets are how many characters of a prompt's text come before each of its tokens. Special tokens that the text does
// not have, such as BOS, take none.
func (s *Server) offsets(text string, prompt []int32) []int {
	d := rollout.NewIncremental(s.options.Decoder, nil, true)
	offsets, at, ahead := make([]int, len(prompt)), 0, 0
	for i, token := range prompt {
		offsets[i] = utf8.RuneCountInString(text[:min(at+ahead, len(text))])
		own := s.options.Decoder.Decode([]int32{token}, false)
		if s.options.Encoder.Tokenizer.Special(token) && !strings.HasPrefix(text[min(at+ahead, len(text)):], own) {
			continue
		}
		var now string
		now, ahead = d.Add(token)
		at += len(now)
	}
	return offsets
}

// echoed are the tokens of a choice's prompt, whose text is shown.
func (s *Server) echoed(j *job, i int, shown string) (d stretch) {
	d.tokens = j.requests[i].Prompt
	if !j.ask.logprobs {
		return d
	}
	e, n := j.echoes[i/j.ask.n], len(d.tokens)-1
	d.logps, d.starts = append([]float32{0}, e.Logps[:n]...), s.offsets(shown, d.tokens)
	if j.ask.top > 0 {
		d.tops = make([][]rollout.Likely, n+1)
		for k := range n {
			d.tops[k+1] = []rollout.Likely{{Token: e.Best[k], Logp: e.Top[k]}}
		}
	}
	return d
}

// plainLogprobs describes tokens that come behind others.
func (s *Server) plainLogprobs(before []int32, d stretch) *plainLogprobs {
	p := &plainLogprobs{Tokens: []string{}, Logps: []*float32{}, Offsets: append([]int{}, d.starts...)}
	for k, token := range d.tokens {
		text := s.text(before, token)
		p.Tokens, p.Logps = append(p.Tokens, text), append(p.Logps, &d.logps[k])
		if d.tops != nil {
			likely := map[string]float32{}
			for _, l := range d.tops[k] {
				likely[s.text(before, l.Token)] = l.Logp
			}
			likely[text] = d.logps[k] // parts of characters all look alike
			p.Top = append(p.Top, likely)
		}
		before = d.tokens[:k+1]
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
