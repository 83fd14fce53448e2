package inspect

import (
	"fmt"

	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// ShowOptions say which row is shown, and as whose training would have it.
type ShowOptions struct {
	Options
	Row    int    // from 1: of the rows that training keeps
	LossOn string // of demonstrations: completion, last or all, as in data.loss_on of sft; "": completion
}

// Check names options that are out of range.
func (o ShowOptions) Check() []fault.Fault {
	faults := fault.Faults(o.Options.Check())
	if o.Row < 1 {
		faults.Add("row", o.Row, "want a number from 1")
	}
	if o.LossOn != "" && o.LossOn != "completion" && o.LossOn != "last" && o.LossOn != "all" {
		faults.Add("loss_on", o.LossOn, "want completion, last or all")
	}
	return faults
}

// A Shown is a text of a row as training has it.
type Shown struct {
	Name   string // such as "demonstration" or "chosen"
	Tokens []ShownToken
}

// A ShownToken is one token, with its weight in the loss: 0 where it is only read.
type ShownToken struct {
	ID     int32
	Text   string
	Weight float64
}

// Show encodes one row of a file of pairs, demonstrations or labelled answers.
func Show(path string, o ShowOptions) (source string, texts []Shown, err error) {
	if faults := o.Check(); len(faults) > 0 {
		return "", nil, faults[0]
	}
	fsys, name, err := local.FS(o.Model)
	if err != nil {
		return "", nil, err
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err == nil {
		err = o.Chat.Apply(t)
	}
	if err != nil {
		return "", nil, err
	}
	r, _, err := records.Read(path, o.PreferenceOptions)
	if err != nil {
		return "", nil, err
	}
	if o.Row > r.Len() {
		return "", nil, fault.Fault{Key: "row", Value: fmt.Sprint(o.Row), Problem: fmt.Sprintf("%s has %d rows that "+
			"training keeps", path, r.Len())}
	}
	if o.LossOn != "" && r.Kind != records.KindDemonstration {
		return "", nil, fault.Fault{Key: "loss_on", Value: o.LossOn, Problem: fmt.Sprintf("%s holds %s; only "+
			"demonstrations have a choice", path, r.Kind)}
	}
	return o.show(path, r, &batch.Encoder{Tokenizer: t})
}

func (o ShowOptions) show(path string, r *records.File, e *batch.Encoder) (source string, texts []Shown, err error) {
	var g batch.Group
	names, i := []string{"answer"}, o.Row-1
	switch r.Kind {
	case records.KindPreference:
		names, source = []string{"chosen", "rejected"}, r.Preferences[i].Source
		g, err = e.Preference(r.Preferences[i])
	case records.KindLabelled:
		source = r.Labelled[i].Source
		g, err = e.Demonstration(r.Labelled[i].Demonstration, false)
	case records.KindDemonstration:
		d := r.Demonstrations[i]
		if o.LossOn == "last" {
			d = d.Last()
		}
		names, source = []string{"demonstration"}, d.Source
		g, err = e.Demonstration(d, o.LossOn == "all")
	default:
		err = fmt.Errorf("%s holds %s: want pairs, demonstrations or labelled answers, whose tokens have weights", path,
			r.Kind)
	}
	if err != nil {
		return "", nil, err
	}
	for a, name := range names {
		texts = append(texts, shown(e.Tokenizer, name, g, a))
	}
	return source, texts, nil
}

// shown lists the tokens of the prompt and answer a.
func shown(t *tokenizer.Tokenizer, name string, g batch.Group, a int) Shown {
	s := Shown{Name: name}
	add := func(id int32, weight float64) {
		s.Tokens = append(s.Tokens, ShownToken{id, t.Decode([]int32{id}, false), weight})
	}
	for _, id := range g.Prompt {
		add(id, 0)
	}
	for k, id := range g.Answers[a] {
		weight := 0.0
		if g.IsPredicted(a, k) {
			weight = 1
		}
		add(id, weight)
	}
	return s
}

// Lines is a text as lines: how many tokens, then position, id, weight and text of each; mark changes the line of a
// token with a weight.
func (s Shown) Lines(mark func(string) string) []string {
	trained, lines := 0, []string{""}
	for i, token := range s.Tokens {
		line := fmt.Sprintf("%5d %7d %6g %q", i, token.ID, token.Weight, token.Text)
		if token.Weight != 0 {
			line, trained = mark(line), trained+1
		}
		lines = append(lines, line)
	}
	lines[0] = fmt.Sprintf("%s: %d tokens, %d with a weight in the loss\nplace      id weight text", s.Name,
		len(s.Tokens), trained)
	return lines
}
