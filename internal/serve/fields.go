package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

// ask is a client's request in the sampler's terms. A field that is missing or null has its default.
type ask struct {
	rollout.Sampling // MaxNew 0: the server's default

	model    string // "": the served model
	messages []data.Message
	plain    *plainAsk // of /v1/completions; nil: a chat
	toolAsk
	variables map[string]any // of the chat template
	adjust    rollout.Adjust
	n         int
	seed      *int64 // nil: any
	logprobs  bool
	top       int // of top_logprobs
	stream    bool
	usage     bool // wanted at the end of a stream
}

// Limits of fields, OpenAI's where it has any.
const (
	mostChoices     = 128
	mostStops       = 16
	mostStopIDs     = 1024
	hottest         = 2
	mostAlternative = 20
	mostPenalty     = 2.0
	mostBias        = 100
)

// reader reads the value of a field.
type reader func(raw json.RawMessage) error

// readers read the fields that change the answer of any request.
func (a *ask) readers() map[string]reader {
	return map[string]reader{
		"model":       value(&a.model, "a name"),
		"n":           between(&a.n, 1, mostChoices),
		"max_tokens":  between(&a.MaxNew, 1, math.MaxInt32),
		"temperature": between(&a.Temperature, 0, hottest),
		"top_p":       between(&a.TopP, 0, 1),
		"top_k":       between(&a.TopK, -1, math.MaxInt32), // -1: off, as on other servers
		"min_p":       between(&a.MinP, 0, 1),
		"seed":        value(&a.seed, "a whole number of 64 bits"),
		"stop":        a.readStop,
		"logit_bias":  a.readBias,

		"presence_penalty":   between(&a.adjust.Presence, -mostPenalty, mostPenalty),
		"frequency_penalty":  between(&a.adjust.Frequency, -mostPenalty, mostPenalty),
		"repetition_penalty": between(&a.adjust.Repetition, 0.01, 100),
		"skip_special_tokens": func(raw json.RawMessage) error {
			skip := true
			err := value(&skip, "true or false")(raw)
			a.KeepSpecial = !skip
			return err
		},
	}
}

// chatReaders read the fields of a chat.
func (a *ask) chatReaders() map[string]reader {
	readers := a.readers()
	maps.Copy(readers, a.streamReaders())
	maps.Copy(readers, map[string]reader{
		"messages":              a.readMessages,
		"max_completion_tokens": readers["max_tokens"],
		"logprobs":              value(&a.logprobs, "true or false"),
		"top_logprobs":          between(&a.top, 0, mostAlternative),
		"tools":                 a.readTools,
		"tool_choice":           a.readChoice,
		"parallel_tool_calls":   value(&a.parallel, "true or false"),
		"chat_template_kwargs":  a.readVariables,
	})
	return readers
}

func (a *ask) streamReaders() map[string]reader {
	return map[string]reader{
		"stream": value(&a.stream, "true or false"),
		"stream_options": within(map[string]reader{"include_usage": value(&a.usage, "true or false")},
			"want include_usage"),
	}
}

// within reads an object's fields.
func within(readers map[string]reader, want string) reader {
	return func(raw json.RawMessage) error {
		var fields object
		if err := value(&fields, "an object")(raw); err != nil {
			return err
		}
		if name, err := fields.read(readers, neutral, want); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
}

// silent are fields that never change an answer: they identify the client.
var silent = []string{"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}

// neutral are fields of unsupported features, with the values that do not use them: many clients always send them.
var neutral = map[string][]any{}

func init() {
	for _, f := range []struct {
		values []any
		names  string
	}{
		{[]any{}, "audio prediction web_search_options truncate_prompt_tokens prompt_logprobs stream_options " +
			"allowed_token_ids rid lora_path"},
		{[]any{false}, "store echo stream ignore_eos include_stop_str_in_output " +
			"return_tokens_as_token_ids use_beam_search return_text_in_logprobs return_hidden_states no_stop_trim " +
			"include_obfuscation"},
		{[]any{true, false}, "spaces_between_special_tokens"},
		{[]any{0.0}, "min_tokens min_new_tokens top_logprobs_num"},
		{[]any{1.0}, "length_penalty best_of"},
		{[]any{-1.0}, "logprob_start_len"},
		{[]any{""}, "suffix"},
		{[]any{[]any{}}, "functions"},
		{[]any{map[string]any{}}, "metadata"},
		{[]any{map[string]any{"type": "text"}}, "response_format"},
		{[]any{[]any{"text"}}, "modalities"},
		{[]any{"none", "auto"}, "function_call"},
		{[]any{"none"}, "reasoning_effort"},
		{[]any{"medium"}, "verbosity"},
		{[]any{"auto", "default"}, "service_tier"},
	} {
		for name := range strings.FieldsSeq(f.names) {
			neutral[name] = f.values
		}
	}
}

// readAsk reads the body of a chat.
func readAsk(body []byte) (*ask, *problem) {
	a := newAsk()
	fields, p := a.read(body, a.chatReaders())
	if p != nil {
		return nil, p
	}
	return a, a.checkFields(fields)
}

func newAsk() *ask {
	return &ask{n: 1, Sampling: rollout.Sampling{Temperature: 1, TopP: 1}, toolAsk: toolAsk{parallel: true}}
}

// read reads a body into the variables of the readers.
func (a *ask) read(body []byte, readers map[string]reader) (object, *problem) {
	var fields object
	if !utf8.Valid(body) {
		return nil, refuse("", "the body is not UTF-8")
	}
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, refuse("", "the body is not a JSON object: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if name, err := fields.read(readers, neutral, "leave it out"); err != nil {
		return nil, refuse(name, "%v", err)
	}
	a.TopK = max(a.TopK, 0)
	a.TopP = max(a.TopP, math.SmallestNonzeroFloat64) // 0: to clients the likeliest token only, to the sampler off
	return fields, nil
}

// object is a JSON object whose fields are not read yet.
type object map[string]json.RawMessage

// read reads the fields that have a reader. Others must have a neutral value; null is as good as missing. An error
// comes with the name of the field.
func (o object) read(readers map[string]reader, neutral map[string][]any, want string) (name string, err error) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		switch raw, values := o[name], neutral[name]; {
		case string(raw) == "null", slices.Contains(silent, name):
		case readers[name] != nil:
			err = readers[name](raw)
		case values != nil:
			err = onlyNeutral(raw, values)
		default:
			err = errors.New("unknown field: " + want)
		}
		if err != nil {
			return name, err
		}
	}
	return "", nil
}

// onlyNeutral accepts only neutral values.
func onlyNeutral(raw json.RawMessage, neutral []any) error {
	var found any
	var words []string
	_ = json.Unmarshal(raw, &found) // a part of JSON that was read already
	for _, v := range neutral {
		if reflect.DeepEqual(v, found) {
			return nil
		}
		text, _ := json.Marshal(v) // only JSON types
		words = append(words, string(text))
	}
	if words == nil {
		return fmt.Errorf("%s is not supported: leave it out", short(raw))
	}
	return fmt.Errorf("%s is not supported: leave it out (or send %s)", short(raw), strings.Join(words, " or "))
}

// checkFields looks at fields together.
func (a *ask) checkFields(fields object) *problem {
	both := fields.has("max_tokens") && fields.has("max_completion_tokens")
	switch {
	case len(a.messages) == 0:
		return refuse("messages", "want one message or more")
	case both && !bytes.Equal(fields["max_tokens"], fields["max_completion_tokens"]):
		return refuse("max_tokens", "max_completion_tokens has another value: want one of the two")
	case a.top > 0 && !a.logprobs:
		return refuse("top_logprobs", "want logprobs true as well")
	case fields.has("stream_options") && !a.stream:
		return refuse("stream_options", "want stream true as well")
	}
	return nil
}

func (o object) has(name string) bool { return o[name] != nil && string(o[name]) != "null" }

// value reads a value of one JSON type.
func value[T any](into *T, want string) reader {
	return func(raw json.RawMessage) error {
		if err := json.Unmarshal(raw, into); err != nil {
			return fmt.Errorf("found %s: want %s", short(raw), want)
		}
		return nil
	}
}

// ids reads token ids, in lists. Go would read null among them as 0.
func ids[T any](into *T, want string) reader {
	return func(raw json.RawMessage) error {
		if bytes.Contains(raw, []byte("null")) {
			return fmt.Errorf("found null among token ids: want %s", want)
		}
		return value(into, want)(raw)
	}
}

// between reads a number within bounds.
func between[T int | float64](into *T, least, most T) reader {
	kind := "a number"
	if _, whole := any(least).(int); whole {
		kind = "a whole number"
	}
	want := fmt.Sprintf("%s from %v to %v", kind, least, most)
	return func(raw json.RawMessage) error {
		if err := value(into, want)(raw); err != nil {
			return err
		}
		if *into < least || *into > most {
			return fmt.Errorf("found %v: want %s", *into, want)
		}
		return nil
	}
}

// readBias reads numbers that are added to the logits of tokens, by their ids.
func (a *ask) readBias(raw json.RawMessage) error {
	want := fmt.Sprintf("an object of at most %d numbers from %d to %d, by token ids", mostStopIDs, -mostBias, mostBias)
	if err := value(&a.adjust.Bias, want)(raw); err != nil {
		return err
	}
	for id, x := range a.adjust.Bias {
		if x < -mostBias || x > mostBias {
			return fmt.Errorf("%d: found %v: want %s", id, x, want)
		}
	}
	if n := len(a.adjust.Bias); n > mostStopIDs {
		return fmt.Errorf("found %d: want %s", n, want)
	}
	return nil
}

// readStop reads a text or a list of texts.
func (a *ask) readStop(raw json.RawMessage) error {
	want := fmt.Sprintf("a text, or a list of at most %d texts, none of them empty", mostStops)
	var one string
	if json.Unmarshal(raw, &one) == nil {
		a.Stop = []string{one}
	} else if err := value(&a.Stop, want)(raw); err != nil {
		return err
	}
	if len(a.Stop) > mostStops || slices.Contains(a.Stop, "") {
		return fmt.Errorf("found %s: want %s", short(raw), want)
	}
	return nil
}

// readStopIDs reads a list of tokens.
func (p *plainAsk) readStopIDs(raw json.RawMessage) error {
	want := fmt.Sprintf("a list of at most %d token ids", mostStopIDs)
	err := ids(&p.stops, want)(raw)
	if err == nil && len(p.stops) > mostStopIDs {
		err = fmt.Errorf("found %d: want %s", len(p.stops), want)
	}
	return err
}

// short is the beginning of a value, for error messages.
func short(raw []byte) string { return data.OneLine(string(raw), 60) }
