// Package inspect is the recipe of posttrain data check: it says what a data file holds, and what is odd about it.
package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// Options say how a file is read and what is counted.
type Options struct {
	data.PreferenceOptions
	Model           string // the folder whose tokenizer counts the prompts; "": they are not counted
	Prompt          string // form of the prompts of contextual-integrity items; "": cot
	MaxPromptTokens int    // the prompts with more tokens are counted; 0: no limit
}

// Check names options that are out of range, or that only a model gives a meaning.
func (o Options) Check() []fault.Fault {
	var faults fault.Faults
	const why = "only a model's tokenizer can count; add a model"
	if o.Model == "" && o.Prompt != "" {
		faults.Add("prompt", o.Prompt, why)
	} else if o.Prompt != "" {
		if err := o.form().Load(); err != nil {
			faults.Add("prompt", o.Prompt, "%v", err)
		}
	}
	if o.MaxPromptTokens < 0 {
		faults.Add("max_prompt_tokens", o.MaxPromptTokens, "want a whole number, 0 (no limit) or more")
	} else if o.Model == "" && o.MaxPromptTokens > 0 {
		faults.Add("max_prompt_tokens", o.MaxPromptTokens, why)
	}
	return faults
}

// form is the form of the prompts of items, as ci-rl has it.
func (o Options) form() *ci.Form {
	f := &ci.Form{Prompt: cmp.Or(o.Prompt, ci.PromptCoT)}
	f.Prefill = f.Thinks()
	return f
}

// Run reads a file as training does, and describes it in lines.
func Run(ctx context.Context, path string, o Options) ([]string, error) {
	if faults := o.Check(); len(faults) > 0 {
		return nil, faults[0]
	}
	r, report, err := records.Read(path, o.PreferenceOptions)
	if err != nil {
		return nil, err
	}
	if r.Kind != records.KindCI && o.Prompt != "" {
		return nil, fault.Fault{Key: "prompt", Value: o.Prompt,
			Problem: fmt.Sprintf("%s holds %s; only contextual-integrity items have forms of prompt", path, r.Kind)}
	}
	lines := slices.Insert(report.Details(), 1, "  "+r.Kind.String())
	for i, line := range ci.Profile(r.CI) {
		lines = slices.Insert(lines, 2+i, "  "+line)
	}
	lines = append(lines, describeGaps(r.Preferences)...)
	if o.Model == "" {
		return lines, nil
	}
	counted, err := o.countTokens(ctx, r)
	return append(lines, counted), err
}

// describeGaps says which gaps the pairs with scores would have in training, under the default options.
func describeGaps(pairs []data.Preference) (lines []string) {
	pairs = slices.DeleteFunc(slices.Clone(pairs), func(p data.Preference) bool { return !p.Scored })
	_, _, report, err := data.Prior(pairs, data.DefaultRewardOptions())
	if err != nil { // without scores
		return nil
	}
	lines = report.Lines()
	if warning := report.Warning(); warning != "" {
		lines = append(lines, "warning: "+warning)
	}
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// countTokens says how long the prompts are.
func (o Options) countTokens(ctx context.Context, r *records.File) (string, error) {
	fsys, name, err := local.FS(o.Model)
	if err != nil {
		return "", err
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err != nil {
		return "", err
	}
	form := o.form()
	write, err := form.Writer()
	if err != nil {
		return "", err
	}
	e := &batch.Encoder{Tokenizer: t}
	rows := make([]int, r.Len())
	for i := range rows {
		rows[i] = i
	}
	prompts, err := recipe.Encode(ctx, e, rows, func(e *batch.Encoder, i int) ([]int32, error) {
		return encode(e, r, i, form.Prefill, write)
	})
	if err != nil {
		return "", err
	}
	l := batch.LimitPrompts(prompts, o.MaxPromptTokens)
	line := fmt.Sprintf("prompts in tokens of %s: the longest has %d", o.Model, l.Longest)
	if r.Kind == records.KindCI {
		line = form.Prompt + " " + line
	}
	if o.MaxPromptTokens > 0 {
		line += fmt.Sprintf("; %d of %d have more than %d", l.Dropped, len(prompts), o.MaxPromptTokens)
	}
	if e.Drift > 0 {
		line += fmt.Sprintf("; %d answers merge with their prompt when tokenised together (training tokenises them "+
			"apart)", e.Drift)
	}
	return "  " + line, nil
}

// encode tokenises a prompt, with its answers where there are any: the encoder counts those that merge with it.
func encode(e *batch.Encoder, r *records.File, i int, prefilled bool, write ci.Writer) ([]int32, error) {
	switch r.Kind {
	case records.KindPreference:
		g, err := e.Preference(r.Preferences[i])
		return g.Prompt, err
	case records.KindLabelled:
		g, err := e.Demonstration(r.Labelled[i].Demonstration, false)
		return g.Prompt, err
	case records.KindDemonstration:
		g, err := e.Demonstration(r.Demonstrations[i], false)
		return g.Prompt, err
	}
	prefill := ""
	if prefilled {
		prefill = ci.ThinkPrefill
	}
	messages, err := write(r.CI[i], uint64(i))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.CI[i].Source, err)
	}
	ids, err := e.Prefilled(data.Text{Messages: messages}, prefill)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.CI[i].Source, err)
	}
	return ids, nil
}
