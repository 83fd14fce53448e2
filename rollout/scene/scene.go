// Package scene is the environment of contextual-integrity items for agents: the user's documents, and tools that find
// them, read them and send messages. It has no clock and no chance: the same calls have the same results.
package scene

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout/agent"
)

// State is an item's scene in an episode. It implements [agent.Environment].
type State struct {
	Item *ci.Item
	Bare bool // the prompt names the documents, and does not describe the tools: the compact form

	Scored reward.Score // of the episode, for whoever has scored it

	heads []string // what has left beside texts: recipients that are not the item's, names of further arguments
	sent  []string // texts that have left, but for the final action's
	final string   // the text of the last final action; "": there is none yet
}

// tool is one that [State.Call] knows.
type tool struct {
	name, does string
	needs      []argument
	takes      []argument
}

type argument struct{ name, means string }

var (
	letter = []argument{{"to", "the recipient"}, {"body", "the whole text"}}
	tools  = []tool{
		{"find", "List the user's documents.", nil, []argument{{"place", "mail, note, event or message; empty: all"}}},
		{"read", "Read a document of the user.", []argument{{"id", "as find lists it"}}, nil},
		{"send_email", "Send an email.", letter, nil},
		{"send_message", "Send a chat message.", letter, nil},
	}
)

// described are the tools in OpenAI's form.
var described = func() json.RawMessage {
	type object = map[string]any
	var list []object
	for _, t := range tools {
		properties, names := object{}, []string{}
		for _, a := range slices.Concat(t.needs, t.takes) {
			properties[a.name] = object{"type": "string", "description": a.means}
		}
		for _, a := range t.needs {
			names = append(names, a.name)
		}
		list = append(list, object{"type": "function", "function": object{"name": t.name, "description": t.does,
			"parameters": object{"type": "object", "properties": properties, "required": names}}})
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // of texts alone
	}
	return text
}()

// Tools implements [agent.Environment].
func (s *State) Tools() json.RawMessage {
	if s.Bare {
		return nil
	}
	return described
}

// Call implements [agent.Environment]. An item without documents is an error: the episode would be about nothing.
func (s *State) Call(c agent.Call) (result string, over bool, err error) {
	if len(s.Item.Scene.Documents) == 0 {
		return "", false, fmt.Errorf("%s: the item has no documents", s.Item.Source)
	}
	i := slices.IndexFunc(tools, func(t tool) bool { return t.name == c.Name })
	if i < 0 {
		names := make([]string, len(tools))
		for k, t := range tools {
			names[k] = t.name
		}
		return fmt.Sprintf("no tool %q: want %s", c.Name, fault.Or(names)), false, nil
	}
	text := func(name string) string { s, _ := c.Arguments[name].(string); return s }
	for _, a := range tools[i].needs {
		if text(a.name) == "" {
			return fmt.Sprintf("%s: want %s, a text: %s", c.Name, a.name, a.means), false, nil
		}
	}
	switch c.Name {
	case "find":
		return s.find(text("place")), false, nil
	case "read":
		return s.read(text("id")), false, nil
	}
	result, over = s.send(c)
	return result, over, nil
}

// find lists the documents in a place; "": all.
func (s *State) find(place string) string {
	place = strings.ToLower(strings.TrimSpace(place))
	if place != "" && !slices.Contains(ci.Places, place) {
		return fmt.Sprintf("no place %q: want %s, or nothing for all", place, fault.Or(ci.Places))
	}
	var ids []string
	for _, d := range s.Item.Scene.Documents {
		if strings.HasPrefix(d.ID, place) {
			ids = append(ids, d.ID)
		}
	}
	if ids == nil {
		return "nothing in " + place
	}
	return strings.Join(ids, ", ")
}

func (s *State) read(id string) string {
	var ids []string
	for _, d := range s.Item.Scene.Documents {
		if d.ID == strings.TrimSpace(id) {
			return d.Text
		}
		ids = append(ids, d.ID)
	}
	return fmt.Sprintf("no document %q: want %s", id, fault.Or(ids))
}

// send notes all that leaves: other arguments with their names, such as a subject, and the recipient where it is not
// who the item names. The final action's text is its body alone, which is all that the tool sends.
func (s *State) send(c agent.Call) (result string, over bool) {
	for _, name := range slices.Sorted(maps.Keys(c.Arguments)) {
		if name != "to" && name != "body" {
			s.heads, s.sent = append(s.heads, name), append(s.sent, spell(c.Arguments[name]))
		}
	}
	to, body := spell(c.Arguments["to"]), spell(c.Arguments["body"])
	tool, recipient := s.Item.Sends()
	isTo := reaches(to, recipient)
	if !isTo || strings.ContainsRune(to, '@') {
		s.heads = append(s.heads, to)
	}
	if c.Name != tool || !isTo {
		s.sent = append(s.sent, body)
		return "sent to " + to, false
	}
	if s.final != "" {
		s.sent = append(s.sent, s.final)
	}
	s.final = body
	return "sent to " + to, true
}

// spell writes an argument as a reader sees it: a number as it is written, and in plain digits.
func spell(value any) string {
	var parts []string
	switch x := value.(type) {
	case json.Number:
		parts = append(parts, x.String())
		f, err := x.Float64() // one with a large exponent is left as it is
		if err == nil && math.Abs(f) < 1e30 && len(x) < 60 && strings.ContainsAny(x.String(), "eE") {
			if r, ok := new(big.Rat).SetString(x.String()); ok {
				parts = append(parts, strings.TrimSuffix(strings.TrimRight(r.FloatString(9), "0"), "."))
			}
		}
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case []any:
		for _, one := range x {
			parts = append(parts, spell(one))
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(x)) {
			parts = append(parts, name+": "+spell(x[name]))
		}
	default:
		return fmt.Sprint(value)
	}
	return strings.Join(parts, ", ")
}

// address is one in angle brackets or parentheses, or alone.
var address = regexp.MustCompile(`^(?:([^<>()@]*)[<(\s])?\s*([^\s<>()@,;]+@[^\s<>()@,;]+)[>)]?\.?$`)

// reaches says that a recipient is the item's own, by name or by an address that has a word of the name: "the
// Hotel-Desk", "hotel desk <desk@hotel.com>", but neither "anyone but the hotel desk" nor a list. The item does not say
// the address.
func reaches(to, recipient string) bool {
	name, own := to, words(recipient)
	if m := address.FindStringSubmatch(strings.TrimSpace(to)); m != nil {
		at := strings.ToUpper(m[2])
		if !slices.ContainsFunc(own, func(w string) bool { return len(w) > 2 && strings.Contains(at, w) }) {
			return false
		}
		if name = m[1]; strings.TrimSpace(name) == "" {
			local, _, _ := strings.Cut(at, "@")
			return strings.Join(words(local), "") == strings.Join(own, "")
		}
	}
	return slices.Equal(words(name), own)
}

// words are a name's, without an article or a title: "the Hotel-Desk" is "HOTEL DESK".
func words(name string) []string {
	return slices.DeleteFunc(strings.Fields(reward.Flatten(name)), func(w string) bool {
		return slices.Contains([]string{"THE", "MY", "A", "AN", "OUR", "YOUR", "TO", "MR", "MRS", "MS", "DR"}, w)
	})
}

// Say implements [agent.Environment]: the user has nothing to add, and the episode is over.
func (s *State) Say(string) (reply string, over bool, err error) { return "", true, nil }

// Score is the reward of an episode. last is the model's last message, with what its prompt has opened: where the
// reward's format is paper it begins with a think block.
func (s *State) Score(last string, o reward.Options) reward.Score {
	tool, recipient := s.Item.Sends()
	begins, _, closed := strings.Cut(strings.TrimSpace(last), data.ThinkClose)
	sent := slices.Concat(s.heads, s.sent)
	if s.final == "" {
		return reward.EvaluateSent(reward.Of(s.Item), sent, fmt.Sprintf("no %s to %s", tool, recipient), o)
	}
	broken := ""
	if o.Format != "answer" && (!closed || !strings.HasPrefix(begins, data.ThinkOpen)) {
		broken = "no <think>…</think> at the beginning of the message of the final action"
	}
	return reward.EvaluateSent(reward.Of(s.Item), append(sent, s.final), broken, o)
}
