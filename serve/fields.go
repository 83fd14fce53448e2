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

// ask is a client's request in the sampler's terms. A field that is missing or null has its default.
type ask struct {
	rollout.Sampling // MaxNew 0: the server's default

	model    string // "": the served model
	messages []data.Message
	n        int
	seed     *uint64 // nil: any
	logprobs bool
	top      int // of top_logprobs
	stream   bool
	usage    bool // wanted at the end of a stream
}

// Limits of fields, OpenAI's where it has any.
const (
	mostChoices     = 128
	mostStops       = 16
	hottest         = 2
	mostAlternative = 20
)

// readers read the fields that change the answer.
var readers = map[string]func(a *ask, raw json.RawMessage) error{
	"model":                 func(a *ask, raw json.RawMessage) error { return read(raw, &a.model, "a name") },
	"messages":              readAllMessages,
	"n":                     func(a *ask, raw json.RawMessage) error { return readInt(raw, &a.n, 1, mostChoices) },
	"max_tokens":            readMaxNew,
	"max_completion_tokens": readMaxNew,
	"temperature":           readTemperature,
	"top_p":                 readTopP,
	"top_k":                 readTopK,
	"min_p":                 func(a *ask, raw json.RawMessage) error { return readFloat(raw, &a.MinP, 0, 1) },
	"seed":                  readSeed,
	"stop":                  readStop,
	"logprobs":              func(a *ask, raw json.RawMessage) error { return read(raw, &a.logprobs, "true or false") },
	"top_logprobs":          readTopLogprobs,
	"stream":                func(a *ask, raw json.RawMessage) error { return read(raw, &a.stream, "true or false") },
	"stream_options":        readStreamOptions,
}

// silent are fields that never change an answer: they identify the client.
var silent = []string{"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}

// neutral are fields of unsupported features, with the values that do not use them: many clients always send them.
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
		return nil, refuse("", "the body is not a JSON object: %v", bare(err))
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
	return fmt.Errorf("unknown field: leave it out")
}

// onlyNeutral accepts only neutral values.
func onlyNeutral(raw json.RawMessage, values []any) error {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return bare(err)
	}
	if slices.ContainsFunc(values, func(v any) bool { return reflect.DeepEqual(v, value) }) {
		return nil
	}
	if len(values) == 0 {
		return fmt.Errorf("%s is not supported: leave it out", short(raw))
	}
	var words []string
	for _, v := range values {
		text, _ := json.Marshal(v) // only JSON types
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
		return refuse("max_tokens", "max_completion_tokens has another value: want one of the two")
	case a.top > 0 && !a.logprobs:
		return refuse("top_logprobs", "want logprobs true as well")
	case a.top > 0 && (a.top > 1 || a.Temperature > 0):
		return refuse("top_logprobs", "%d is not supported: the server only knows the chosen token's log-prob; "+
			"want 0, or 1 with temperature 0", a.top)
	case given(fields, "stream_options") && !a.stream:
		return refuse("stream_options", "want stream true as well")
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

func readAllMessages(a *ask, raw json.RawMessage) (err error) {
	a.messages, err = readMessages(raw)
	return err
}

func readTemperature(a *ask, raw json.RawMessage) error {
	return readFloat(raw, &a.Temperature, 0, hottest)
}

func readTopLogprobs(a *ask, raw json.RawMessage) error {
	return readInt(raw, &a.top, 0, mostAlternative)
}

// readTopK accepts -1 for off, as other servers do.
func readTopK(a *ask, raw json.RawMessage) error {
	err := readInt(raw, &a.TopK, -1, math.MaxInt32)
	a.TopK = max(a.TopK, 0)
	return err
}

// readTopP turns 0 into a tiny number: to clients it means the likeliest token only, to the sampler it means off.
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

// readStop reads a text or a list of texts.
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

// short is the beginning of a value, for error messages.
func short(raw []byte) string { return data.OneLine(string(raw), 60) }

// bare removes the package's name from an error of package json.
func bare(err error) error {
	return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
}
