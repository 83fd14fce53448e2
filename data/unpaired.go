package data

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Labelled is an answer to a prompt that is desirable or not.
type Labelled struct {
	Demonstration
	Desirable bool
}

const labelledColumns = "want prompt, completion and label (true or false), or the columns of preference pairs"

// ReadLabelled reads single answers with labels from a file, see [Rows]. Columns are
// TRL's: prompt, completion (strings or lists of {role, content}) and label, true or false. A preference pair becomes
// two answers, the chosen one desirable and the rejected one not; the Report has a note of these.
//
// fsys nil is the operating system's.
func ReadLabelled(fsys fs.FS, path string, columns ...string) ([]Labelled, *Report, error) {
	all, report, err := StreamLabelled(fsys, path, columns...).Collect()
	return slices.Concat(all...), report, err
}

// StreamLabelled is ReadLabelled without keeping the answers: one or two come together, as their row has them.
func StreamLabelled(fsys fs.FS, path string, columns ...string) *Stream[[]Labelled] {
	return NewStream(path, Rows(fsys, path, columns...), labelledOf)
}

// labelledOf makes answers of a row; why is the reason to drop it, "" to keep it.
func labelledOf(r Row, report *Report) (all []Labelled, why string, err error) {
	given := r
	if r, err = Canonical(r); err != nil {
		return nil, "", err
	}
	if r.Has("chosen") || r.Has("rejected") || HasAnswers(r.Fields) {
		return answersOfPair(given, report)
	}
	list, _ := r.Fields["messages"].([]any)
	split := len(list) > 0 && !r.Has("completion") && !r.Has("prompt")
	if split {
		r.Fields["prompt"], r.Fields["completion"] = list[:len(list)-1], list[len(list)-1:]
		delete(r.Fields, "messages")
	}
	if !r.Has("prompt") || !r.Has("completion") || !r.Has("label") {
		return nil, "", columnsError(given, labelledColumns)
	}
	var a Labelled
	if a.Desirable, err = labelOf(r.Fields["label"]); err == nil {
		delete(r.Fields, "label")
		a.Demonstration, why, err = trlDemonstration(r, given, report)
	}
	if err == nil && split && a.Completion.Messages[0].Role != "assistant" {
		return nil, notTheAssistants, nil
	}
	if err == nil && len(a.Completion.Trained()) < len(a.Completion.Messages) {
		err = errors.New(`completion has "train": false, or content null: a labelled answer is trained on whole`)
	}
	if err == nil && why == "" && a.Prompt.Empty() {
		why = "no prompt"
	}
	return []Labelled{a}, why, err
}

// SplitPair is the remark of a pair that is read as two answers.
const SplitPair = "a pair is split into a desirable answer and an undesirable one"

// answersOfPair makes two answers of a pair.
func answersOfPair(r Row, report *Report) (all []Labelled, why string, err error) {
	p, _, why, err := preferenceOf(r, report, PreferenceOptions{})
	if err == nil && why == "" {
		why = reasonUnusable(p)
	}
	if err != nil || why != "" {
		return nil, why, err
	}
	report.note(Preference{Chosen: p.Chosen, Rejected: p.Rejected, Source: p.Source}, "")
	report.Remark(SplitPair, r.Source)
	return []Labelled{{Demonstration{p.Prompt, p.Chosen, p.Source}, true},
		{Demonstration{p.Prompt, p.Rejected, p.Source}, false}}, "", nil
}

// HasLabel says that a row has a label that ReadLabelled reads.
func HasLabel(fields map[string]any) bool {
	_, err := labelOf(fields["label"])
	return err == nil
}

// labelOf reads true or false, also as 1 or 0.
func labelOf(value any) (bool, error) {
	if label, ok := value.(bool); ok {
		return label, nil
	}
	x, err := toFloat(value)
	if err != nil {
		return false, fmt.Errorf("label is %w: want true or false", err)
	}
	if x != 0 && x != 1 {
		return false, fmt.Errorf("label is %v: want true or false", x)
	}
	return x == 1, nil
}
