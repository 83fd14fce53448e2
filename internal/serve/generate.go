package serve

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"github.com/posttrain/posttrain/rollout"
)

// neutralGenerate are the fields of /generate that are not supported, with the values that do not use them.
var neutralGenerate = map[string][]any{
	"stream":                  {false},
	"return_text_in_logprobs": {false},
	"logprob_start_len":       {-1.0},
	"top_logprobs_num":        {0.0},
	"rid":                     {},
	"lora_path":               {},
	"return_hidden_states":    {false},
}

// neutralDraws are those of its sampling_params.
var neutralDraws = map[string][]any{
	"frequency_penalty":             {0.0},
	"presence_penalty":              {0.0},
	"repetition_penalty":            {1.0},
	"min_new_tokens":                {0.0},
	"ignore_eos":                    {false},
	"skip_special_tokens":           {false},
	"spaces_between_special_tokens": {true, false},
	"no_stop_trim":                  {false},
}

// readGenerate reads a request in the form of SGLang's own servers.
func readGenerate(body []byte) (*ask, *problem) {
	a := newAsk()
	a.plain = &plainAsk{native: true, ids: true}
	fields, p := a.read(body, map[string]reader{
		"text":            value(&a.plain.text, "a text"),
		"input_ids":       value(&a.plain.tokens, "one list of token ids"),
		"sampling_params": a.readDraws,
		"return_logprob":  value(&a.logprobs, "true or false"),
	}, neutralGenerate)
	switch {
	case p != nil:
		return nil, p
	case fields.has("text") == fields.has("input_ids"):
		return nil, refuse("input_ids", "want input_ids or text, one of the two")
	}
	return a, nil
}

// readDraws reads how tokens are drawn.
func (a *ask) readDraws(raw json.RawMessage) error {
	var fields object
	if err := value(&fields, "an object")(raw); err != nil {
		return err
	}
	readers := a.readers()
	delete(readers, "model")
	delete(readers, "max_tokens")
	delete(readers, "seed")
	maps.Copy(readers, map[string]reader{
		"max_new_tokens": between(&a.MaxNew, 1, math.MaxInt32),
		"sampling_seed":  value(&a.seed, "a whole number of 64 bits"),
		"stop_token_ids": value(&a.plain.stops, "a list of token ids"),
	})
	if name, err := fields.read(readers, neutralDraws, "leave it out"); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Replies of /generate: one object, or a list of n.
type (
	nativeReply struct {
		Text   string     `json:"text"`
		Tokens []int32    `json:"output_ids"` // with the stop token
		Meta   nativeMeta `json:"meta_info"`
	}
	nativeMeta struct {
		ID         string       `json:"id"`
		Finish     nativeFinish `json:"finish_reason"`
		Prompt     int          `json:"prompt_tokens"`
		Completion int          `json:"completion_tokens"`
		Version    string       `json:"weight_version"`
		Logprobs   [][3]any     `json:"output_token_logprobs,omitempty"` // log-prob, token id, null
	}
	nativeFinish struct {
		Type string `json:"type"`
	}
)

func (s *Server) nativeReply(j *job) any {
	var all []nativeReply
	for _, c := range j.choices {
		all = append(all, j.nativeChoice(c.Completion))
	}
	if j.ask.n == 1 {
		return all[0]
	}
	return all
}

func (j *job) nativeChoice(c rollout.Completion) nativeReply {
	r := nativeReply{c.Text, c.Tokens, nativeMeta{ID: rand.Text(), Finish: nativeFinish{*finish(c.Reason)},
		Prompt: len(j.requests[0].Prompt), Completion: len(c.Tokens), Version: j.version}}
	for i, token := range c.Tokens {
		if j.ask.logprobs {
			r.Meta.Logprobs = append(r.Meta.Logprobs, [3]any{c.Logps[i], token, nil})
		}
	}
	return r
}
