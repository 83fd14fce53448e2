package inspect

import (
	"fmt"

	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config/fault"
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
	e, err := o.encoder()
	if err != nil {
		return "", nil, err
	}
	kind, all, _, err := records.Read(path, o.PreferenceOptions)
	switch {
	case err != nil:
		return "", nil, err
	case o.Row > len(all):
		return "", nil, fault.Fault{Key: "row", Value: fmt.Sprint(o.Row), Problem: fmt.Sprintf("%s has %d rows that "+
			"training keeps", path, len(all))}
	case o.LossOn != "" && kind != records.KindDemonstration:
		return "", nil, fault.Fault{Key: "loss_on", Value: o.LossOn, Problem: fmt.Sprintf("%s holds %s; only "+
			"demonstrations have a choice", path, kind)}
	case kind == records.KindCI:
		return "", nil, fmt.Errorf("%s holds %s: want pairs, demonstrations or labelled answers, whose tokens have weights",
			path, kind)
	}
	r := all[o.Row-1]
	names := map[records.Kind][]string{records.KindPreference: {"chosen", "rejected"}, records.KindLabelled: {"answer"},
		records.KindDemonstration: {"demonstration"}}[kind]
	if o.LossOn == "last" {
		*r.Demo = r.Demo.Last()
	}
	g, err := encode(e, r, o.LossOn == "all")
	if err != nil {
		return "", nil, err
	}
	for a, name := range names {
		texts = append(texts, shown(e.Tokenizer, name, g, a))
	}
	return r.Source(), texts, nil
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
