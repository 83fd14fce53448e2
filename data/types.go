package data

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Message is one turn of a conversation. Role is "system", "user", "assistant", or another role of the chat template.
type Message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Untrained bool   `json:"-"` // of a demonstration's completion: the loss leaves it out; in files "train": false
	Whole     string `json:"-"` // the message as JSON, with keys such as tool_calls; "": it has role and content alone
	Tools     string `json:"-"` // of a conversation's first message: the tools that it may call, a JSON list
}

// Calls are the tools that the message calls, as JSON; "" where it calls none.
func (m Message) Calls() string {
	var keys struct {
		Calls []json.RawMessage `json:"tool_calls"`
	}
	if m.Whole == "" || json.Unmarshal([]byte(m.Whole), &keys) != nil || len(keys.Calls) == 0 {
		return ""
	}
	text, _ := Marshal(keys.Calls) // they were read from JSON
	return string(text)
}

// Thoughts are those that the message has in a key of its own; "" without.
func (m Message) Thoughts() string {
	var keys struct {
		Content             any `json:"reasoning_content"`
		Reasoning, Thinking any
	}
	if m.Whole != "" {
		_ = json.Unmarshal([]byte(m.Whole), &keys) // it was read from JSON
	}
	for _, key := range []any{keys.Content, keys.Thinking, keys.Reasoning} {
		if text, _ := key.(string); text != "" {
			return text
		}
	}
	return ""
}

// The marks of a thought in what a model writes.
const ThinkOpen, ThinkClose = "<think>", "</think>"

// Text is a plain string or a conversation; it is a conversation when Messages is not nil.
type Text struct {
	Plain    string
	Messages []Message
}

func (t Text) IsChat() bool { return t.Messages != nil }

// Empty says whether the text has no character and no message.
func (t Text) Empty() bool { return t.Plain == "" && len(t.Messages) == 0 }

// Blank says whether the text holds nothing but white space, and no call of a tool.
func (t Text) Blank() bool {
	written := func(m Message) bool { return strings.TrimSpace(m.Content) != "" || m.Calls() != "" }
	return strings.TrimSpace(t.Plain) == "" && !slices.ContainsFunc(t.Messages, written)
}

// Words are all that is said in the text, and the calls of tools as JSON, without roles.
func (t Text) Words() string {
	if !t.IsChat() {
		return t.Plain
	}
	var all []string
	for _, m := range t.Messages {
		all = append(all, m.Content)
		if calls := m.Calls(); calls != "" {
			all = append(all, calls)
		}
	}
	return strings.Join(all, "\n")
}

// Trained are the messages that the loss is on.
func (t Text) Trained() (all []Message) {
	for _, m := range t.Messages {
		if !m.Untrained {
			all = append(all, m)
		}
	}
	return all
}

// Unwritten is what the JSON of the text leaves out and a model sees or learns: tools, further keys of messages, and
// which of them the loss leaves out. It is nil for most texts.
func (t Text) Unwritten() (all []string) {
	for i, m := range t.Messages {
		if m.Whole != "" || m.Tools != "" || m.Untrained {
			all = append(all, fmt.Sprint(i, m.Untrained), m.Whole, m.Tools)
		}
	}
	return all
}

func (t Text) Equal(u Text) bool {
	return t.Plain == u.Plain && t.IsChat() == u.IsChat() && slices.Equal(t.Messages, u.Messages)
}

// Preference is one pair: two answers to one prompt, the chosen one better than the rejected one. The three texts are
// all plain or all conversations; an answer continues the prompt and does not repeat it.
type Preference struct {
	Prompt, Chosen, Rejected   Text
	ChosenScore, RejectedScore float64 // rewards as the file gives them, finite; only with Scored
	Scored                     bool
	Source                     string // the row: "pairs.jsonl:41" or "pairs.parquet: row 41"
	Class                      string // in the column that [PreferenceOptions] names
}

// Demonstration is one example of supervised fine-tuning. Prompt is empty where the file has bare text. The completion
// of a conversation begins with the first message that the loss is on; later ones may be Untrained.
type Demonstration struct {
	Prompt, Completion Text
	Source             string // as in Preference
}

// Last is the demonstration with all before the last message as the prompt.
func (d Demonstration) Last() Demonstration {
	if n := len(d.Completion.Messages) - 1; n > 0 {
		d.Prompt.Messages = slices.Concat(d.Prompt.Messages, d.Completion.Messages[:n])
		d.Completion.Messages = d.Completion.Messages[n:]
	}
	return d
}

// Call is a tool call in a model's message.
type Call struct {
	Name      string
	Arguments map[string]any
}
