// Package scene is the environment of contextual-integrity items for agents: the user's documents, and tools that find
// them, read them and send messages. It has no clock and no chance: the same calls have the same results.
package scene

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

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

	sent  []string // what has left, but for the final action
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
// just who the item names.
func (s *State) send(c agent.Call) (result string, over bool) {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(c.Arguments)) {
		if name != "to" && name != "body" {
			texts = append(texts, fmt.Sprintf("%s: %v", name, c.Arguments[name]))
		}
	}
	text := strings.Join(append(texts, fmt.Sprint(c.Arguments["body"])), "\n")
	to := fmt.Sprint(c.Arguments["to"])
	tool, recipient := s.Item.Sends()
	if words(to) != words(recipient) {
		s.sent = append(s.sent, "to: "+to)
	}
	if c.Name != tool || !strings.Contains(words(to), words(recipient)) {
		s.sent = append(s.sent, text)
		return "sent to " + to, false
	}
	if s.final != "" {
		s.sent = append(s.sent, s.final)
	}
	s.final = text
	return "sent to " + to, true
}

// words are a name's, small, with a blank around each, so that "the Hotel-Desk" contains "hotel desk", and "Joanna" not
// "Ann".
func words(name string) string {
	apart := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	return " " + strings.Join(strings.FieldsFunc(strings.ToLower(name), apart), " ") + " "
}

// Say implements [agent.Environment]: the user has nothing to add, and the episode is over.
func (s *State) Say(string) (reply string, over bool, err error) { return "", true, nil }

// Score is the reward of an episode. last is the model's last message, with what its prompt has opened: where the
// reward's format is paper it begins with a think block.
func (s *State) Score(last string, o reward.Options) reward.Score {
	tool, recipient := s.Item.Sends()
	begins, _, closed := strings.Cut(strings.TrimSpace(last), data.ThinkClose)
	if s.final == "" {
		return reward.EvaluateSent(reward.Of(s.Item), s.sent, fmt.Sprintf("no %s to %s", tool, recipient), o)
	}
	broken := ""
	if o.Format != "answer" && (!closed || !strings.HasPrefix(begins, data.ThinkOpen)) {
		broken = "no <think>…</think> at the beginning of the message of the final action"
	}
	return reward.EvaluateSent(reward.Of(s.Item), append(slices.Clip(s.sent), s.final), broken, o)
}
