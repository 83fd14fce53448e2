package records

import (
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
)

// Prompt is a prompt of a file. A contextual-integrity item becomes one by [ci.Prompt]; its Text is empty here.
type Prompt struct {
	Text   data.Text
	Item   *ci.Item // nil: the file has other records
	Source string   // the row
}

// ReadPrompts reads the prompts of a file: contextual-integrity items, the prompts of preference pairs, or a column
// prompt or messages, see [data.ReadPrompts].
func ReadPrompts(path string) (prompts []Prompt, report *data.Report, err error) {
	kind, err := kindOf(nil, path)
	switch {
	case err == nil && kind == KindCI:
		items, report, err := ci.Read(path)
		for i := range items {
			prompts = append(prompts, Prompt{Item: &items[i], Source: items[i].Source})
		}
		return prompts, report, err
	case err == nil && kind == KindPreference:
		pairs, report, err := data.ReadPreferences(path, data.PreferenceOptions{})
		for _, p := range pairs {
			prompts = append(prompts, Prompt{Text: p.Prompt, Source: p.Source})
		}
		return prompts, report, err
	}
	rows, report, err := data.ReadPrompts(path) // for a file of another kind, its error says what it wants
	for _, r := range rows {
		prompts = append(prompts, Prompt{Text: r.Prompt, Source: r.Source})
	}
	return prompts, report, err
}
