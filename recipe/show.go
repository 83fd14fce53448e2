package recipe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// ShowOptions say which row is shown, and as whose training would have it.
type ShowOptions struct {
	data.PreferenceOptions
	Row    int    // from 1: of the rows that training keeps
	Model  string `hub:"tokenizer"` // the folder whose tokenizer and chat template are used
	Chat   local.RowChat
	LossOn string // of demonstrations: completion, turns, last or all, as in data.loss_on of sft; "": completion
}

// Check names options that are out of range.
func (o ShowOptions) Check() (faults fault.Faults) {
	for _, f := range append(o.Chat.Check(), fault.Check(o.Chat.PlainText)...) {
		f.Key = "chat_" + f.Key
		faults = append(faults, f)
	}
	if o.Row < 1 {
		faults.Add("row", o.Row, "want a number from 1")
	}
	if !slices.Contains([]string{"", "completion", "turns", "last", "all"}, o.LossOn) {
		faults.Add("loss_on", o.LossOn, "want completion, turns, last or all")
	}
	return faults
}

// Show writes one row of a file of pairs, demonstrations or labelled answers as training has it: for each of its texts
// a line with the number of tokens, then position, id, weight in the loss and text of each; mark changes the line of a
// token with a weight.
func Show(path string, o ShowOptions, mark func(string) string) (lines []string, err error) {
	if faults := o.Check(); len(faults) > 0 {
		return nil, faults[0]
	}
	fsys, name, err := local.FS(o.Model)
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err == nil {
		err = o.Chat.Apply(t, "")
	}
	if c, fault := model.ReadConfig(fsys, name); fault == nil && err == nil { // the tokenizer alone is enough
		t.StopAt(c.EOS)
	}
	if err != nil {
		return nil, err
	}
	kind, all, _, err := records.Read(path, o.PreferenceOptions)
	switch {
	case err != nil:
		return nil, err
	case o.Row > len(all):
		return nil, fault.Fault{Key: "row", Value: fmt.Sprint(o.Row), Problem: fmt.Sprintf("%s has %d rows that "+
			"training keeps", path, len(all))}
	case o.LossOn != "" && kind != records.KindDemonstration:
		return nil, fault.Fault{Key: "loss_on", Value: o.LossOn, Problem: fmt.Sprintf("%s holds %s; only "+
			"demonstrations have a choice", path, kind)}
	case kind == records.KindCI:
		return nil, fmt.Errorf("%s holds %s: want pairs, demonstrations or labelled answers, whose tokens have weights",
			path, kind)
	}
	r, e, names := all[o.Row-1], o.Chat.Encoder(t), []string{"demonstration"}
	var g batch.Group
	switch {
	case r.Pair != nil:
		names = []string{"chosen", "rejected"}
		g, err = e.Preference(*r.Pair)
	case r.Answers != nil:
		names = []string{"answer"}
		g, err = e.Demonstration(r.Answers[0].Demonstration, batch.Turns)
	default:
		g, err = e.Demonstration(*r.Demo, batch.Target(o.LossOn))
	}
	if err != nil {
		return nil, err
	}
	lines = []string{r.Source()}
	for a, name := range names {
		lines = append(lines, shown(t, name, g, a, mark)...)
	}
	return lines, nil
}

// shown lists the tokens of the prompt and answer a.
func shown(t *tokenizer.Tokenizer, name string, g batch.Group, a int, mark func(string) string) []string {
	trained, lines := 0, []string{"", "place      id weight text"}
	add := func(id int32, weighs bool) {
		weight := map[bool]int{true: 1}[weighs]
		line := fmt.Sprintf("%5d %7d %6d %q", len(lines)-2, id, weight, textOf(t, id))
		if weighs {
			line, trained = mark(line), trained+1
		}
		lines = append(lines, line)
	}
	for _, id := range g.Prompt {
		add(id, false)
	}
	for k, id := range g.Answers[a] {
		add(id, g.IsPredicted(a, k))
	}
	lines[0] = fmt.Sprintf("%s: %d tokens, %d with a weight in the loss", name, len(lines)-2, trained)
	return lines
}

// textOf is a token's text within others: some decoders cut off the blank that a text begins with.
func textOf(t *tokenizer.Tokenizer, id int32) string {
	return strings.TrimPrefix(t.Decode([]int32{id, id}, false), t.Decode([]int32{id}, false))
}
