package data

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"slices"
)

const demonstrationColumns = "want text, or messages, or prompt and completion"

// ReadDemonstrations reads examples for supervised fine-tuning from a file, see [Rows]. Columns are TRL's (columns
// names others, such as prompt=question): prompt and completion (strings or lists of {role, content}), or messages, or
// text; the first of these that a row has is taken. Of messages the loss is on all that the assistant says in answer,
// less those with "train": false; the last must be the assistant's. Conversations that end otherwise or have nothing
// to train on, and empty completions, are dropped and counted in the Report.
func ReadDemonstrations(path string, columns ...string) ([]Demonstration, *Report, error) {
	return StreamDemonstrations(nil, path, columns...).Collect()
}

// StreamDemonstrations is ReadDemonstrations without keeping the demonstrations; fsys nil is the operating system's.
func StreamDemonstrations(fsys fs.FS, path string, columns ...string) *Stream[Demonstration] {
	return NewStream(path, Rows(fsys, path, columns...), demonstrationOf)
}

// demonstrationOf makes a demonstration of a row; why is the reason to drop it, "" to keep it.
func demonstrationOf(r Row, report *Report) (demo Demonstration, why string, err error) {
	given := r
	if r, err = Canonical(r); err != nil {
		return demo, "", err
	}
	return trlDemonstration(r, given, report)
}

// trlDemonstration is demonstrationOf a row in TRL's columns.
func trlDemonstration(r, given Row, report *Report) (demo Demonstration, why string, err error) {
	demo.Source = r.Source
	var read []string
	switch {
	case r.Has("prompt") && r.Has("completion"):
		read = []string{"prompt", "completion"}
		err = demo.fromCompletion(r.Fields)
	case r.Has("messages"):
		read = []string{"messages"}
		why, err = demo.fromMessages(r.Fields["messages"])
	case r.Has("text"):
		read = []string{"text"}
		demo.Completion, err = textOf("text", r.Fields["text"])
		if err == nil && demo.Completion.IsChat() {
			err = errors.New("text is a list: want a string, or the column named messages")
		}
	default:
		err = columnsError(given, demonstrationColumns)
	}
	switch {
	case err != nil || why != "":
	case demo.Completion.IsChat() && len(demo.Completion.Messages) > 0 && demo.Completion.Trained() == nil:
		why = untrainedRow
	case demo.Completion.Empty():
		why = "completion is empty"
	case demo.Completion.Blank():
		report.Remark("completion is only white space", r.Source)
	}
	if err == nil && why == "" {
		err = unused(r, report, read, demo.Prompt, demo.Completion)
	}
	return demo, why, err
}

func (d *Demonstration) fromCompletion(fields map[string]any) (err error) {
	var errs [2]error
	d.Prompt, errs[0] = textOf("prompt", fields["prompt"])
	d.Completion, errs[1] = textOf("completion", fields["completion"])
	if err = cmp.Or(errs[:]...); err == nil && d.Prompt.IsChat() != d.Completion.IsChat() {
		err = errors.New("one of prompt and completion is a string, the other a conversation: want both alike")
	}
	return err
}

func (d *Demonstration) fromMessages(value any) (why string, err error) {
	text, err := textOf("messages", value)
	if err != nil {
		return "", err
	}
	if !text.IsChat() {
		return "", errors.New("messages is a string: want a list of {role, content}")
	}
	n := len(text.Messages) - 1
	if n < 0 {
		return "no messages", nil
	}
	if role := text.Messages[n].Role; role != "assistant" {
		return notTheAssistants, nil
	}
	begin := max(min(1, n), slices.IndexFunc(text.Messages, isUsers)) // a greeting answers nothing
	first := begin + slices.IndexFunc(text.Messages[begin:], isTrained)
	if first < begin {
		return untrainedRow, nil
	}
	d.Prompt, d.Completion = Text{Messages: text.Messages[:first:first]}, Text{Messages: text.Messages[first:]}
	for i, m := range d.Completion.Messages {
		d.Completion.Messages[i].Untrained = !isTrained(m)
	}
	return "", nil
}

// Why rows are dropped that have nothing to train on.
const (
	untrainedRow     = "no message is trained on"
	notTheAssistants = "the last message is not the assistant's"
)

func isTrained(m Message) bool { return m.Role == "assistant" && !m.Untrained }

func isUsers(m Message) bool { return m.Role == "user" }

// PromptRow is a text or conversation that a model continues.
type PromptRow struct {
	Prompt Text
	Row    map[string]any // the other columns that have a value: a reward may use them; nil: none
	Source string         // as in Preference
}

const promptColumns = "want prompt (a string or a list of {role, content}) or messages"

// ReadPrompts reads prompts from a file, see [Rows]. The column is TRL's prompt, a string or a list of {role,
// content}, or messages; a row keeps the other columns, for a reward. Empty prompts are dropped and counted in the
// Report, and so are conversations that end with the assistant's turn: they need no answer.
func ReadPrompts(path string, columns ...string) ([]PromptRow, *Report, error) {
	rows, report, err := StreamPrompts(nil, path, columns...).Collect()
	if report != nil {
		report.Unread = nil
	}
	return rows, report, err
}

// StreamPrompts is ReadPrompts without keeping the prompts.
func StreamPrompts(fsys fs.FS, path string, columns ...string) *Stream[PromptRow] {
	return NewStream(path, Rows(fsys, path, columns...), promptOf)
}

// ColumnsByPlace are the columns of each row of a file that are no prompt, by the rows' places, as PromptRow has them.
// The file has been read, so that it is in order.
func ColumnsByPlace(path string, columns ...string) map[string]map[string]any {
	rows := map[string]map[string]any{}
	for row := range Rows(nil, path, columns...) {
		rows[row.Source] = otherColumns(row.Fields)
	}
	return rows
}

// otherColumns are a row's columns that are no prompt and have a value.
func otherColumns(fields map[string]any) map[string]any {
	others := maps.Clone(fields)
	maps.DeleteFunc(others, func(name string, value any) bool {
		return value == nil || name == "prompt" || name == "messages" || slices.Contains(questionColumns, name)
	})
	if len(others) == 0 {
		return nil
	}
	return bare(others).(map[string]any)
}

// promptOf makes a prompt of a row; why is the reason to drop it, "" to keep it.
func promptOf(r Row, report *Report) (p PromptRow, why string, err error) {
	p.Source = r.Source
	given := r
	if r, err = canonicalPrompt(r); err != nil {
		return p, "", err
	}
	switch {
	case r.Has("prompt"):
		p.Prompt, err = textOf("prompt", r.Fields["prompt"])
	case r.Has("messages"):
		p.Prompt, err = textOf("messages", r.Fields["messages"])
		if err == nil && !p.Prompt.IsChat() {
			err = errors.New("messages is a string: want a list of {role, content}, or the column named prompt")
		}
	default:
		err = columnsError(given, promptColumns)
	}
	if err != nil {
		return p, "", err
	}
	if p.Prompt.Empty() {
		return p, "prompt is empty", nil
	}
	if m := p.Prompt.Messages; m != nil && m[len(m)-1].Role == "assistant" {
		return p, "the last message is the assistant's", nil
	}
	read := "prompt"
	if !r.Has("prompt") {
		read = "messages"
	}
	p.Row = otherColumns(given.Fields)
	for _, column := range conversationColumns { // has the answers, too
		if list, _ := r.Fields[column].([]any); len(list) > 0 {
			r.Fields[column] = list[:1]
		}
	}
	return p, "", unused(r, report, []string{read}, p.Prompt)
}
