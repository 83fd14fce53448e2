package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

// ask is what a client wants, in numbers that the sampler takes. A field that is missing or null has its default.
type ask struct {
	rollout.Sampling // MaxNew 0: the server's default

	model    string // "": the one there is
	messages []data.Message
	n        int
	seed     *uint64 // nil: any
	logprobs bool
	top      int // of top_logprobs
	stream   bool
	usage    bool // at the end of a stream
}

// Bounds of what is taken, OpenAI's where it names any.
const (
	mostChoices     = 128
	mostStops       = 16
	hottest         = 2
	mostAlternative = 20
)

// readers are the fields that change the answer.
var readers = map[string]func(a *ask, raw json.RawMessage) error{
	"model":                 func(a *ask, raw json.RawMessage) error { return read(raw, &a.model, "a name") },
	"messages":              func(a *ask, raw json.RawMessage) (err error) { a.messages, err = readMessages(raw); return err },
	"n":                     func(a *ask, raw json.RawMessage) error { return readInt(raw, &a.n, 1, mostChoices) },
	"max_tokens":            readMaxNew,
	"max_completion_tokens": readMaxNew,
	"temperature":           func(a *ask, raw json.RawMessage) error { return readFloat(raw, &a.Temperature, 0, hottest) },
	"top_p":                 readTopP,
	"top_k":                 readTopK,
	"min_p":                 func(a *ask, raw json.RawMessage) error { return readFloat(raw, &a.MinP, 0, 1) },
	"seed":                  readSeed,
	"stop":                  readStop,
	"logprobs":              func(a *ask, raw json.RawMessage) error { return read(raw, &a.logprobs, "true or false") },
	"top_logprobs":          func(a *ask, raw json.RawMessage) error { return readInt(raw, &a.top, 0, mostAlternative) },
	"stream":                func(a *ask, raw json.RawMessage) error { return read(raw, &a.stream, "true or false") },
	"stream_options":        readStreamOptions,
}

// silent are fields that never change an answer: they say who asks.
var silent = []string{"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}

// neutral are fields of things that this server does not do, with the values that ask for none of it: many clients
// send them by habit.
var neutral = map[string][]any{
	"frequency_penalty":   {0.0},
	"presence_penalty":    {0.0},
	"repetition_penalty":  {1.0},
	"logit_bias":          {map[string]any{}},
	"tools":               {[]any{}},
	"tool_choice":         {"none", "auto"},
	"parallel_tool_calls": {true, false},
	"functions":           {[]any{}},
	"function_call":       {"none", "auto"},
	"response_format":     {map[string]any{"type": "text"}},
	"modalities":          {[]any{"text"}},
	"audio":               {},
	"prediction":          {},
	"web_search_options":  {},
	"reasoning_effort":    {"none"},
	"verbosity":           {"medium"},
	"service_tier":        {"auto", "default"},
	"store":               {false},
	"metadata":            {map[string]any{}},
}

// readAsk reads the body of a request.
func readAsk(body []byte) (*ask, *problem) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, refuse("", "the body is no JSON object: %v", wording(err))
	}
	a := &ask{n: 1, Sampling: rollout.Sampling{Temperature: 1}}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := a.take(name, fields[name]); err != nil {
			return nil, refuse(name, "%v", err)
		}
	}
	return a, a.check(fields)
}

// take reads one field.
func (a *ask) take(name string, raw json.RawMessage) error {
	switch reader, values := readers[name], neutral[name]; {
	case string(raw) == "null", slices.Contains(silent, name):
		return nil
	case reader != nil:
		return reader(a, raw)
	case values != nil:
		return onlyNeutral(raw, values)
	}
	return fmt.Errorf("unknown field: this server would not heed it; leave it out")
}

// onlyNeutral refuses values that ask for something.
func onlyNeutral(raw json.RawMessage, values []any) error {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return wording(err)
	}
	if slices.ContainsFunc(values, func(v any) bool { return reflect.DeepEqual(v, value) }) {
		return nil
	}
	if len(values) == 0 {
		return fmt.Errorf("%s is not supported: leave it out", short(raw))
	}
	var words []string
	for _, v := range values {
		text, _ := json.Marshal(v) // made of what JSON has
		words = append(words, string(text))
	}
	return fmt.Errorf("%s is not supported: leave it out (or send %s)", short(raw), strings.Join(words, " or "))
}

// check looks at fields together.
func (a *ask) check(fields map[string]json.RawMessage) *problem {
	both := given(fields, "max_tokens") && given(fields, "max_completion_tokens")
	switch {
	case len(a.messages) == 0:
		return refuse("messages", "want one message or more")
	case both && !bytes.Equal(fields["max_tokens"], fields["max_completion_tokens"]):
		return refuse("max_tokens", "max_completion_tokens says something else: want one of the two")
	case a.top > 0 && !a.logprobs:
		return refuse("top_logprobs", "want logprobs true beside it")
	case a.top > 0 && (a.top > 1 || a.Temperature > 0):
		return refuse("top_logprobs", "%d alternatives are not to be had: this server knows the log-prob of the chosen token alone; want 0, or 1 where temperature is 0", a.top)
	case given(fields, "stream_options") && !a.stream:
		return refuse("stream_options", "want stream true beside it")
	}
	return nil
}

func given(fields map[string]json.RawMessage, name string) bool {
	raw, ok := fields[name]
	return ok && string(raw) != "null"
}

// read reads a value of one JSON type.
func read[T any](raw json.RawMessage, into *T, want string) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("found %s: want %s", short(raw), want)
	}
	return nil
}

func readInt(raw json.RawMessage, into *int, least, most int) error {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	if err := read(raw, into, want); err != nil {
		return err
	}
	if *into < least || *into > most {
		return fmt.Errorf("found %d: want %s", *into, want)
	}
	return nil
}

func readFloat(raw json.RawMessage, into *float64, least, most float64) error {
	want := fmt.Sprintf("a number from %v to %v", least, most)
	if err := read(raw, into, want); err != nil {
		return err
	}
	if !(*into >= least && *into <= most) {
		return fmt.Errorf("found %v: want %s", *into, want)
	}
	return nil
}

// readTopK takes -1 for off too, as other servers do.
func readTopK(a *ask, raw json.RawMessage) error {
	err := readInt(raw, &a.TopK, -1, math.MaxInt32)
	a.TopK = max(a.TopK, 0)
	return err
}

// readTopP takes 0 for what it means, the likeliest token alone: to the sampler it is off.
func readTopP(a *ask, raw json.RawMessage) error {
	err := readFloat(raw, &a.TopP, 0, 1)
	a.TopP = max(a.TopP, math.SmallestNonzeroFloat64)
	return err
}

func readMaxNew(a *ask, raw json.RawMessage) error { return readInt(raw, &a.MaxNew, 1, math.MaxInt32) }

func readSeed(a *ask, raw json.RawMessage) error {
	var seed int64
	if err := read(raw, &seed, "a whole number of 64 bits"); err != nil {
		return err
	}
	bits := uint64(seed)
	a.seed = &bits
	return nil
}

// readStop takes a text or a list of texts.
func readStop(a *ask, raw json.RawMessage) error {
	want := fmt.Sprintf("a text, or a list of at most %d texts, none of them empty", mostStops)
	var one string
	if json.Unmarshal(raw, &one) == nil {
		a.Stop = []string{one}
	} else if err := read(raw, &a.Stop, want); err != nil {
		return err
	}
	if len(a.Stop) > mostStops || slices.Contains(a.Stop, "") {
		return fmt.Errorf("found %s: want %s", short(raw), want)
	}
	return nil
}

func readStreamOptions(a *ask, raw json.RawMessage) error {
	var fields map[string]json.RawMessage
	if err := read(raw, &fields, "an object"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var err error
		switch value := fields[name]; {
		case string(value) == "null":
		case name == "include_usage":
			err = read(value, &a.usage, "true or false")
		case name == "include_obfuscation":
			err = onlyNeutral(value, []any{false})
		default:
			err = fmt.Errorf("unknown field: want include_usage")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// short is the beginning of a value, for messages.
func short(raw []byte) string { return data.OneLine(string(raw), 60) }

// wording is an error of package json without its name.
func wording(err error) error {
	return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
}
