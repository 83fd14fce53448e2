package data

import (
	"errors"
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/data/internal/rows"
)

// textColumn is the parquet type of a column of texts: a string or a list of {role, content}. All texts must be alike.
func textColumn(texts []Text) (parquet.Node, error) {
	chats := 0
	for _, t := range texts {
		if t.IsChat() {
			chats++
		}
	}
	switch chats {
	case 0:
		return parquet.String(), nil
	case len(texts):
		return parquet.List(parquet.Group{"role": parquet.String(), "content": parquet.String()}), nil
	}
	return nil, errors.New("some texts are strings and some conversations, which one parquet column cannot hold: write .jsonl")
}

// cell is a text as the parquet writer takes it.
func (t Text) cell() any {
	if !t.IsChat() {
		return t.Plain
	}
	messages := make([]any, len(t.Messages))
	for i, m := range t.Messages {
		messages[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	return messages
}

func preferenceParquet(w io.Writer, pairs []Preference) error {
	var texts []Text
	cells := make([]any, len(pairs))
	for i, p := range pairs {
		if _, err := preferenceLine(p); err != nil {
			return err
		}
		texts = append(texts, p.Prompt, p.Chosen, p.Rejected)
		row := map[string]any{"prompt": p.Prompt.cell(), "chosen": p.Chosen.cell(), "rejected": p.Rejected.cell()}
		if p.Scored {
			row["chosen_score"], row["rejected_score"] = &p.ChosenScore, &p.RejectedScore // a plain 0 would be written as null
		}
		cells[i] = row
	}
	column, err := textColumn(texts)
	if err != nil {
		return err
	}
	score := parquet.Optional(parquet.Leaf(parquet.DoubleType))
	return rows.WriteParquet(w, cells, parquet.NewSchema("preference", parquet.Group{
		"prompt": column, "chosen": column, "rejected": column, "chosen_score": score, "rejected_score": score,
	}))
}

func demonstrationParquet(w io.Writer, demos []Demonstration) error {
	var texts []Text
	cells := make([]any, len(demos))
	bare := 0
	for i, d := range demos {
		if d.Prompt.Empty() && !d.Completion.IsChat() {
			bare++
			cells[i] = map[string]any{"text": d.Completion.cell()}
			continue
		}
		texts = append(texts, d.Prompt, d.Completion)
		cells[i] = map[string]any{"prompt": d.Prompt.cell(), "completion": d.Completion.cell()}
	}
	if bare == len(demos) {
		return rows.WriteParquet(w, cells, parquet.NewSchema("text", parquet.Group{"text": parquet.String()}))
	}
	if bare > 0 {
		return errors.New("some demonstrations have a prompt and some are bare text, which one table cannot hold: write .jsonl")
	}
	column, err := textColumn(texts)
	if err != nil {
		return err
	}
	return rows.WriteParquet(w, cells, parquet.NewSchema("demonstration", parquet.Group{"prompt": column, "completion": column}))
}
