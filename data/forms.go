package data

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The names that other programs have for columns and for their parts. Of each list the first name that a row has counts:
// to read another form, add its names here.
var (
	questionColumns = []string{"question", "instruction", "query"}
	contextColumns  = []string{"input", "context"} // what an instruction is about (Alpaca, Dolly)
	// of a demonstration
	answerColumns       = []string{"output", "response", "answer", "generation"}
	conversationColumns = []string{"messages", "conversations", "conversation"} // a conversation; in a pair the prompt
	systemColumns       = []string{"system", "system_prompt"}                   // what begins the conversation

	roleKeys    = []string{"role", "from"} // of a message
	contentKeys = []string{"content", "value"}
	// of a message: whether the loss is on it
	trainKeys = []string{"train", "training", "trainable", "weight", "loss", "loss_mask", "loss_scale", "loss_weight"}
	// of an object with two turns, the user's and the assistant's
	exchangeKeys = [][2]string{{"human", "assistant"}, {"input", "output"}}
	// of an object with a text and a score
	textKeys = []string{"content", "text", "response", "completion", "answer"}
)

// KnownScoreColumns are the column pairs that published preference sets use for the scores of their answers.
var KnownScoreColumns = [][2]string{
	{"chosen_score", "rejected_score"},
	{"score_chosen", "score_rejected"},
	{"chosen_rating", "rejected_rating"},
	{"chosen-rating", "rejected-rating"},
	{"chosen_reward", "rejected_reward"},
	{"chosen.score", "rejected.score"},
	{"chosen.rating", "rejected.rating"},
	{"chosen.reward", "rejected.reward"},
}

// KnownAnswerColumns are the columns that published sets use for several answers to a prompt and for their scores.
var KnownAnswerColumns = [][2]string{
	{"all_generated_responses", "all_rm_scores"},
	{"responses", "scores"},
	{"completions", "scores"},
	{"answers", "scores"},
}

// turnRoles are ShareGPT's names of roles.
var turnRoles = map[string]string{"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
	"chatgpt": "assistant", "bing": "assistant", "bard": "assistant", "model": "assistant", "system": "system",
	"tool": "tool", "observation": "tool", "function_response": "tool"}

// Canonical gives a row TRL's columns in the place of other programs': docs/data.md has a table of them. A question
// becomes the user's message and its answers the assistant's; a column system begins the conversation. A row of another
// form stays as it is.
func Canonical(r Row) (Row, error) {
	f := form{Fields: maps.Clone(r.Fields)}
	f.renames()
	f.pair = f.has("chosen") || f.has("rejected")
	err := cmp.Or(f.written(), f.conversation(), f.question(), f.answer(), f.history(), f.system(), f.tools())
	r.Fields = f.Fields
	return r, err
}

// canonicalPrompt is Canonical of a row whose answers are not read.
func canonicalPrompt(r Row) (Row, error) {
	r.Fields = maps.Clone(r.Fields)
	for _, column := range append([]string{"completion"}, answerColumns...) {
		delete(r.Fields, column)
	}
	return Canonical(r)
}

// form is a row that is being rewritten.
type form struct {
	Fields map[string]any
	pair   bool
}

func (f *form) has(column string) bool { return f.Fields[column] != nil }

// take removes the first of some columns that the row has.
func (f *form) take(columns []string) (name string, value any) {
	for _, name := range columns {
		if value := f.Fields[name]; value != nil {
			delete(f.Fields, name)
			return name, value
		}
	}
	return "", nil
}

// move gives a column another name.
func (f *form) move(from, to string) {
	f.Fields[to] = f.Fields[from]
	delete(f.Fields, from)
}

// renames makes lists of single messages, and names the columns of pairs and labels as TRL does.
func (f *form) renames() {
	for _, column := range messageColumns {
		if object, is := f.Fields[column].(map[string]any); is && roleOf(object) != nil {
			f.Fields[column] = []any{object}
		}
	}
	if !f.has("label") && f.has("kto_tag") { // LLaMA-Factory
		f.move("kto_tag", "label")
	}
	input, is := f.Fields["input"].(map[string]any)
	switch {
	case f.has("chosen") || f.has("rejected"):
	case is && f.has("preferred_output") && f.has("non_preferred_output"): // OpenAI, Together
		delete(f.Fields, "input")
		f.Fields["prompt"], f.Fields["tools"] = input["messages"], input["tools"]
		f.move("preferred_output", "chosen")
		f.move("non_preferred_output", "rejected")
	case f.has("rejected_messages") && f.has("messages"): // ms-swift
		f.move("messages", "chosen")
		f.move("rejected_messages", "rejected")
	case f.has("rejected_response"): // ms-swift; Axolotl beside chosen_response
		f.preferred()
	}
}

// writtenConversation is the beginning of a list of messages that is a text, of JSON or as Python prints it.
var writtenConversation = regexp.MustCompile(`^\s*\[\s*\{\s*["'](role|from|content|value)["']\s*:`)

// written refuses conversations that are texts, which would be trained on with their brackets. An answer to a question
// in words may be such a text.
func (f *form) written() error {
	columns := append([]string{"prompt", "history"}, conversationColumns...)
	if !f.has("prompt") {
		columns = append(columns, "chosen", "rejected", "completion")
	}
	for _, column := range columns {
		if text, is := f.Fields[column].(string); is && writtenConversation.MatchString(text) {
			return fmt.Errorf("%s is a conversation as a text: want a list of {role, content}", column)
		}
	}
	return nil
}

// preferred finds the chosen answer beside rejected_response: in its column, or as the last message.
func (f *form) preferred() {
	for _, column := range conversationColumns {
		if list, _ := f.Fields[column].([]any); len(list) > 0 && isAssistant(list[len(list)-1]) {
			delete(f.Fields, column)
			f.Fields["prompt"], f.Fields["chosen"] = list[:len(list)-1], list[len(list)-1:]
			f.move("rejected_response", "rejected")
			f.converse("rejected")
			return
		}
	}
	if _, chosen := f.take(slices.Concat([]string{"chosen_response", "completion"}, answerColumns)); chosen != nil {
		f.Fields["chosen"] = chosen
		f.move("rejected_response", "rejected")
	}
}

// conversation renames conversations: in a pair they are the prompt, unless the answers have it or a column does.
func (f *form) conversation() error {
	column := "messages"
	if f.pair {
		column = "prompt"
	}
	if f.has(column) || f.pair && f.whole() {
		return nil
	}
	name, value := f.take(conversationColumns)
	if name == "" {
		return nil
	}
	list, is := value.([]any)
	if is {
		list = exchanges(list)
		value = list
	}
	f.Fields[column] = value
	if !f.pair {
		return nil
	}
	if len(list) > 0 && isAssistant(list[len(list)-1]) {
		return fmt.Errorf("%s ends with the assistant's message, beside chosen and rejected: want it to end with "+
			"what they answer", name)
	}
	return f.converse("chosen", "rejected")
}

// exchanges makes two messages of each object with the user's turn and the assistant's.
func exchanges(list []any) (turns []any) {
	for _, item := range list {
		object, _ := item.(map[string]any)
		turns = append(turns, exchange(object, item)...)
	}
	return turns
}

func exchange(object map[string]any, item any) (turns []any) {
	for _, keys := range exchangeKeys {
		if roleOf(object) == nil && object[keys[0]] != nil && object[keys[1]] != nil {
			if system, is := object["system"].(string); is && system != "" {
				turns = append(turns, turn("system", system))
			}
			return append(turns, turn("user", object[keys[0]]), turn("assistant", object[keys[1]]))
		}
	}
	return []any{item}
}

// history puts earlier turns, a list of [question, answer] or of messages, before a question.
func (f *form) history() error {
	value := f.Fields["history"]
	prompt := f.Fields["prompt"]
	list, is := prompt.([]any)
	if !filled(value) || !f.has("prompt") || f.whole() || is && (len(list) != 1 || isAssistant(list[0])) {
		return nil
	}
	all, is := value.([]any)
	if !is {
		return fmt.Errorf("history is %s: want a list of [question, answer], or of messages", KindOf(value))
	}
	var turns []any
	for i, item := range exchanges(all) {
		switch item := item.(type) {
		case map[string]any:
			turns = append(turns, item)
		case []any:
			if len(item) != 2 {
				return fmt.Errorf("history[%d] has %d texts: want [question, answer]", i, len(item))
			}
			turns = append(turns, turn("user", item[0]), turn("assistant", item[1]))
		default:
			return fmt.Errorf("history[%d] is %s: want [question, answer], or a message", i, KindOf(item))
		}
	}
	if list == nil {
		text, err := textOf("prompt", prompt)
		if err != nil {
			return err
		}
		list = []any{turn("user", text.Plain)}
	}
	delete(f.Fields, "history")
	f.Fields["prompt"] = slices.Concat(turns, list)
	return f.converse("chosen", "rejected", "completion")
}

// question makes the user's message of a question, or of an instruction with what it is about.
func (f *form) question() error {
	if f.has("prompt") || f.has("messages") || f.has("text") {
		return nil
	}
	name, value := f.take(questionColumns)
	if name == "" {
		if value = f.Fields["input"]; value == nil || !f.pair {
			return nil
		}
		name = "input"
		delete(f.Fields, name)
	}
	text, err := stringOf(name, value, "a string")
	if err != nil {
		return err
	}
	if about, value := f.take(contextColumns); value != nil {
		more, err := stringOf(about, value, "a string")
		if err != nil {
			return err
		}
		if strings.TrimSpace(more) != "" {
			text += "\n\n" + more
		}
	}
	f.Fields["prompt"] = []any{turn("user", text)}
	if f.whole() { // the conversations begin with the question
		f.Fields["prompt"] = text
		return nil
	}
	return f.converse("chosen", "rejected", "completion")
}

// answer renames the column of a demonstration's answer.
func (f *form) answer() error {
	if f.pair || !f.has("prompt") || f.has("completion") || f.has("chosen") || HasAnswers(f.Fields) {
		return nil
	}
	name, value := f.take(answerColumns)
	if name == "" {
		return nil
	}
	if _, err := textOf(name, value); err != nil {
		return err
	}
	f.Fields["completion"] = value
	if _, is := f.Fields["prompt"].([]any); is {
		return f.converse("completion")
	}
	return nil
}

// converse makes messages of answers that are strings.
func (f *form) converse(columns ...string) error {
	for _, column := range columns {
		value := f.Fields[column]
		if _, is := value.([]any); value == nil || is {
			continue
		}
		text, err := textOf(column, value)
		if err != nil {
			return err
		}
		if !text.IsChat() {
			f.Fields[column] = []any{turn("assistant", text.Plain)}
		}
	}
	return nil
}

// whole says that the answers of a pair are conversations that begin with their prompt.
func (f *form) whole() bool {
	list, _ := f.Fields["chosen"].([]any)
	if len(list) == 0 {
		return false
	}
	first, _ := list[0].(map[string]any)
	role, known := roleOf(first).(string)
	return known && turnRoles[role] != "assistant"
}

// system puts a column system before the conversation.
func (f *form) system() error {
	if !f.has("prompt") && !f.has("messages") && !f.whole() {
		return nil
	}
	name, value := f.take(systemColumns)
	if name == "" {
		return nil
	}
	text, err := stringOf(name, value, "a string")
	if err != nil || strings.TrimSpace(text) == "" {
		return err
	}
	column := "messages"
	if f.has("prompt") {
		column = "prompt"
	}
	if _, is := f.Fields[column].([]any); is {
		return f.begin(column, text)
	}
	if f.whole() {
		return cmp.Or(f.begin("chosen", text), f.begin("rejected", text))
	}
	plain, err := textOf(column, f.Fields[column])
	if err != nil {
		return err
	}
	f.Fields[column] = []any{turn("user", plain.Plain)}
	return cmp.Or(f.begin(column, text), f.converse("chosen", "rejected", "completion"))
}

// begin puts a system message before a conversation.
func (f *form) begin(column, text string) error {
	list, is := f.Fields[column].([]any)
	if !is {
		return nil
	}
	if len(list) > 0 {
		if first, is := list[0].(map[string]any); is && roleOf(first) == "system" {
			return fmt.Errorf("there is a column system, and %s begins with a system message, too: want one of them",
				column)
		}
	}
	f.Fields[column] = slices.Concat([]any{turn("system", text)}, list)
	return nil
}

func roleOf(message map[string]any) any {
	_, _, role := messageField(message, roleKeys)
	return role
}

func turn(role string, content any) map[string]any {
	return map[string]any{"role": role, "content": content}
}

// isAssistant says that a message is the assistant's.
func isAssistant(message any) bool {
	object, _ := message.(map[string]any)
	role, _ := roleOf(object).(string)
	return turnRoles[role] == "assistant"
}

// guesses is an error where a prompt would be guessed from plain answers although other columns hold texts.
func guesses(fields map[string]any) error {
	var unused []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text, is := fields[name].(string)
		if is && name != "chosen" && name != "rejected" && strings.ContainsAny(strings.TrimSpace(text), " \t\n") {
			unused = append(unused, name)
		}
	}
	if len(unused) == 0 {
		return nil
	}
	return fmt.Errorf("there is no column prompt, and the texts in %s are not used: want the prompt in prompt, "+
		"question, instruction or query, and no other text beside answers that have the prompt inside both",
		List(unused))
}

// toolsKey is where a conversation's first message has its tools while a row is read.
const toolsKey = "(tools)"

// tools gives the first message the tools of the row. A row of plain text has no use for them.
func (f *form) tools() error {
	if !filled(f.Fields["tools"]) {
		return nil
	}
	text, err := toolsOf(f.Fields["tools"])
	if err != nil || text == "[]" {
		return err
	}
	for _, first := range [][]string{{"prompt"}, {"messages"}, {"chosen", "rejected"}, {"completion"}} {
		found := false
		for _, column := range first {
			if list, is := f.Fields[column].([]any); is && len(list) > 0 {
				f.Fields[column], found = withTools(list, text), true
			}
		}
		if found {
			delete(f.Fields, "tools")
			return nil
		}
	}
	return nil
}

// toolsOf reads the column tools: a list, or one as a text of JSON, as tables have it.
func toolsOf(value any) (JSON, error) {
	text, is := value.(JSON)
	if s, plain := value.(string); plain {
		text, is = JSON(s), true
	}
	if !is {
		return "", fmt.Errorf("tools is %s: want a list", KindOf(value))
	}
	list, err := Decode([]byte(text))
	if err != nil {
		return "", fmt.Errorf("tools is no JSON: %w; want a list", BadJSON(err))
	}
	if _, is := list.([]any); !is {
		return "", fmt.Errorf("tools is %s: want a list", KindOf(list))
	}
	return text, nil
}

func withTools(list []any, text JSON) []any {
	message, is := list[0].(map[string]any)
	if !is {
		return list
	}
	message = maps.Clone(message)
	message[toolsKey] = text
	return slices.Concat([]any{message}, list[1:])
}

// unusedTools is a remark about tools beside a plain text, which no chat template makes a conversation of.
func unusedTools(r Row) (remarks []string) {
	if !filled(r.Fields["tools"]) {
		return nil
	}
	if r, err := Canonical(r); err == nil && r.Has("tools") {
		remarks = append(remarks, "the column tools is not used: the row has no conversation")
	}
	return remarks
}

// callsTools says that a message has calls of tools.
func callsTools(message any) bool {
	object, _ := message.(map[string]any)
	return filled(object["tool_calls"])
}

// filled says that a value is not null, nor an empty text or list.
func filled(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case string:
		return v != "" && v != "[]"
	case JSON:
		return v != "" && v != "[]"
	case []any:
		return len(v) > 0
	case map[string]any: // of a table, where each row has all keys
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), filled)
	}
	return true
}
