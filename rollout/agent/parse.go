package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// said is what a message of a model says.
type said struct {
	text    string // all of it
	before  string // what is before the first call, or all
	content string // the same without thoughts
	calls   []made
}

// made is a call as the model wrote it.
type made struct {
	Call
	rawArguments json.RawMessage // an object
	fault        string          // why it cannot be made; "": it can
}

// Marks in what models write.
const (
	hermesOpen       = "<tool_call>"
	llamaTag         = "<|python_tag|>"
	mistralOpen      = "[TOOL_CALLS]"
	mistralArguments = "[ARGS]"
	actionMark       = "Action:"
	inputMark        = "Action Input:"
	observationMark  = "Observation:"
	finalMark        = "Final Answer:"
)

// accepted is what a call must look like, for the model to read.
var accepted = map[Form]string{
	Hermes:  `{"name": "TOOL", "arguments": {"NAME": "VALUE"}}`,
	Llama3:  `{"name": "TOOL", "parameters": {"NAME": "VALUE"}}`,
	Mistral: `[{"name": "TOOL", "arguments": {"NAME": "VALUE"}}]`,
	Text:    `Action: TOOL, and on the next line Action Input: {"NAME": "VALUE"}`,
}

// read reads a message. What a model thinks before it speaks has no calls. Servers give calls in the form of Hermes,
// whatever their model writes.
func (f Form) read(text string) said {
	spoken := withoutThoughts(text)
	s := said{content: spoken}
	switch {
	case f == Text:
		s = readText(spoken)
	case strings.Contains(spoken, hermesOpen):
		s = readHermes(spoken)
	case f == Llama3:
		s = readLlama(spoken)
	case f == Mistral:
		s = readMistral(spoken)
	}
	s.text, s.before = text, strings.TrimSpace(text[:len(text)-len(spoken)]+s.content)
	s.content = strings.TrimSpace(s.content)
	for i, c := range s.calls {
		if c.fault != "" {
			s.calls[i].fault = "No tool was called: " + c.fault + "; want " + accepted[f]
			s.calls[i].rawArguments = json.RawMessage("{}")
		}
	}
	return s
}

// marks begin calls, or what is no content, in a form.
var marks = map[Form][]string{Hermes: {hermesOpen}, Llama3: {hermesOpen, llamaTag}, Mistral: {hermesOpen, mistralOpen},
	Text: {actionMark, inputMark, observationMark, finalMark}}

// Parse gives the calls in a message, with their arguments as JSON objects, and what is before them. If it cannot
// read one of them, it gives no calls, and the content is the whole message.
func (f Form) Parse(text string) (content string, calls []Call, arguments []json.RawMessage) {
	s := f.read(text)
	for _, c := range s.calls {
		if c.fault != "" {
			return text, nil, nil
		}
		calls, arguments = append(calls, c.Call), append(arguments, c.rawArguments)
	}
	if calls == nil {
		return text, nil, nil
	}
	return s.before, calls, arguments
}

// Content is how much of the beginning of a message is content, whatever follows.
func (f Form) Content(text string) int {
	n := len(text)
	for _, mark := range marks[f] {
		if i := strings.Index(text, mark); i >= 0 {
			n = min(n, i)
		}
		for k := min(len(mark)-1, len(text)); k > 0; k-- {
			if strings.HasSuffix(text, mark[:k]) {
				n = min(n, len(text)-k)
				break
			}
		}
	}
	if f == Llama3 && strings.HasPrefix(strings.TrimSpace(withoutThoughts(text)), "{") {
		n = min(n, len(text)-len(withoutThoughts(text)))
	}
	return len(strings.TrimRight(text[:n], " \t\r\n"))
}

// withoutThoughts drops the thoughts that a message begins with. The prompt may have opened the first. One that does
// not end leaves nothing.
func withoutThoughts(text string) string {
	_, after, closed := strings.Cut(text, data.ThinkClose)
	if closed {
		text = after
	}
	for strings.HasPrefix(strings.TrimSpace(text), data.ThinkOpen) {
		_, text, _ = strings.Cut(text, data.ThinkClose)
	}
	return text
}

func readHermes(text string) (s said) {
	content, rest, found := strings.Cut(text, hermesOpen)
	for s.content = content; found; _, rest, found = strings.Cut(rest, hermesOpen) {
		var calls []made
		calls, rest = readCalls(rest)
		s.calls = append(s.calls, calls...)
	}
	return s
}

// readLlama reads a message that is a call, or several. Other text may be before a tag.
func readLlama(text string) (s said) {
	content, rest, tagged := strings.Cut(text, llamaTag)
	if !tagged {
		content, rest = "", text
	}
	rest = strings.TrimSpace(rest)
	if !tagged && !strings.HasPrefix(rest, "{") {
		return said{content: text}
	}
	s.content = content
	s.calls, _ = readCalls(rest)
	return s
}

// mistralName is a name before its arguments, with an id that some templates write.
var mistralName = regexp.MustCompile(`^\s*([^\s\[{]*)\s*(?:\[CALL_ID\][^\s\[{]*)?\s*(?:\[ARGS\])?`)

func readMistral(text string) (s said) {
	content, rest, found := strings.Cut(text, mistralOpen)
	for s.content = content; found; _, rest, found = strings.Cut(rest, mistralOpen) {
		var list []json.RawMessage
		if name := mistralName.FindStringSubmatch(rest); name[1] != "" || strings.Contains(name[0], mistralArguments) {
			value, after := firstValue(rest[len(name[0]):])
			s.calls, rest = append(s.calls, newCall(name[1], value)), after
			continue
		}
		value, after := firstValue(rest)
		if json.Unmarshal(value, &list) != nil { // a call without the list around it
			list = []json.RawMessage{value}
		}
		for _, one := range list {
			c, _ := readCall(string(one))
			s.calls = append(s.calls, c)
		}
		rest = after
	}
	return s
}

func readText(text string) (s said) {
	text, _, _ = strings.Cut(text, observationMark)
	content, rest, found := strings.Cut(text, actionMark)
	if !found {
		if _, final, ends := strings.Cut(text, finalMark); ends {
			return said{content: final}
		}
		if before, value, has := strings.Cut(text, inputMark); has {
			return said{content: before, calls: []made{newCall("", json.RawMessage(value))}}
		}
		return said{content: text}
	}
	for s.content = content; found; _, rest, found = strings.Cut(rest, actionMark) {
		name, input, _ := strings.Cut(rest, inputMark)
		var value json.RawMessage
		if first, _, another := strings.Cut(name, actionMark); another { // this one has no input
			name, rest = first, rest[len(first):]
		} else {
			value, rest = firstValue(input)
		}
		s.calls = append(s.calls, newCall(strings.TrimSpace(name), value))
	}
	return s
}

// firstValue is the JSON value that a text begins with, nil without one, and what is behind it.
func firstValue(text string) (value json.RawMessage, rest string) {
	d := json.NewDecoder(strings.NewReader(text))
	if d.Decode(&value) != nil {
		return nil, text
	}
	return value, text[d.InputOffset():]
}

// Faults of calls.
const (
	noObject = "the call is no JSON object"
	noName   = "the call has no name"
)

// readCalls reads a call, and those that follow it, with semicolons between them or nothing.
func readCalls(text string) (calls []made, rest string) {
	for rest = text; ; {
		var c made
		c, rest = readCall(strings.TrimLeft(rest, " \t\r\n;,"))
		calls = append(calls, c)
		if c.fault == noObject || !strings.HasPrefix(strings.TrimLeft(rest, " \t\r\n;,"), "{") {
			return calls, rest
		}
	}
}

// readCall reads a call as an object with a name and arguments, which Llama calls parameters.
func readCall(text string) (c made, rest string) {
	value, rest := firstValue(text)
	var keys map[string]json.RawMessage
	if json.Unmarshal(value, &keys) != nil || keys == nil {
		return made{fault: noObject}, rest
	}
	var name string
	if json.Unmarshal(keys["name"], &name) != nil {
		return made{fault: noName}, rest
	}
	arguments, has := keys["arguments"]
	if !has {
		arguments, has = keys["parameters"]
	}
	if !has {
		arguments = json.RawMessage("{}")
	}
	return newCall(name, arguments), rest
}

// readArguments reads an object, whose numbers stay as they are written.
func (c *made) readArguments() bool {
	d := json.NewDecoder(bytes.NewReader(c.rawArguments))
	d.UseNumber()
	return json.Valid(c.rawArguments) && d.Decode(&c.Arguments) == nil && c.Arguments != nil
}

// newCall is a call with arguments as an object, or as a text that is one. Null and an empty text are no arguments.
func newCall(name string, arguments json.RawMessage) made {
	c := made{Call: Call{Name: name}, rawArguments: arguments}
	var text string
	if json.Unmarshal(arguments, &text) == nil {
		if c.rawArguments = json.RawMessage(text); text == "" {
			c.rawArguments = json.RawMessage("{}")
		}
	}
	switch {
	case strings.TrimSpace(name) == "":
		c.fault = noName
	case !c.readArguments():
		c.fault = fmt.Sprintf("the arguments of %.40q are no JSON object", name)
	}
	return c
}
