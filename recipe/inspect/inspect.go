// Package inspect is the recipe of posttrain data check: it says what data files hold, and what is wrong with them.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/check"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/ci/quality"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// Options say how a file is read and what is counted.
type Options struct {
	data.PreferenceOptions
	Kind            string     // a name of records.Kinds; "": the first row says
	Near, Balance   float64    // see check.Options
	Fix             string     // the file that gets the rows that are right; "": nothing is written
	Model           string     `hub:"tokenizer"` // the folder whose tokenizer counts the prompts; "": they are not counted
	Prompt          string     // form of the prompts of contextual-integrity items; "": cot
	Chat            local.Chat // what the model's chat template gets
	MaxPromptTokens int        // the prompts with more tokens are counted; 0: no limit
	Squeeze         bool       // forecast of pairs what learning does to log p(chosen)
	Backend         string     // the engine of Squeeze; "": auto
}

// DefaultOptions look for duplicates as the gates of data synth do.
func DefaultOptions() Options {
	gates := quality.DefaultOptions()
	return Options{Near: gates.Near, Balance: gates.Balance}
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
	for _, f := range o.Chat.Check() {
		f.Key = "chat_" + f.Key
		faults = append(faults, f)
	}
	if o.Model == "" && o.Squeeze {
		faults.Add("squeeze", true, "only a model has gradients; add a model")
	}
	if !o.Squeeze && o.Backend != "" {
		faults.Add("backend", o.Backend, "only the squeeze forecast needs an engine; add squeeze")
	}
	if o.Model == "" && o.Chat.Template != "" {
		faults.Add("chat_template", o.Chat.Template, why)
	}
	if o.Model == "" && o.Chat.Variables != nil {
		faults.Add("chat_variables", strings.Join(o.Chat.Variables, ","), why)
	}
	if o.Model == "" && o.Chat.Date != "" {
		faults.Add("chat_date", o.Chat.Date, why)
	}
	if _, known := records.Kinds[o.Kind]; !known && o.Kind != "" {
		faults.Add("kind", o.Kind, "want %s", strings.Join(slices.Sorted(maps.Keys(records.Kinds)), ", "))
	}
	if !(o.Near >= 0 && o.Near <= 1) {
		faults.Add("near", o.Near, "want a share from 0 (no near-duplicates) to 1")
	}
	if !(o.Balance >= 0 && o.Balance <= 1) {
		faults.Add("balance", o.Balance, "want a share from 0 (any balance) to 1")
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

// Result is what was found in files.
type Result struct {
	Files  []*check.Report `json:"files"`
	Errors int             `json:"rows_with_errors"`
}

// Lines is the result as text.
func (r *Result) Lines() (lines []string) {
	for _, f := range r.Files {
		lines = append(lines, f.Lines()...)
	}
	return lines
}

// Err names the files with errors that are not mended; nil without.
func (r *Result) Err() error {
	var bad []string
	for _, f := range r.Files {
		if f.Fails() && f.Fixed == nil {
			bad = append(bad, fmt.Sprintf("%s: %d of %d rows have errors", f.Path, f.Errors, f.Rows))
		}
	}
	if bad == nil {
		return nil
	}
	return errors.New(strings.Join(bad, "; "))
}

// Run checks files as training would read them.
func Run(ctx context.Context, paths []string, o Options) (*Result, error) {
	if faults := o.Check(); len(faults) > 0 {
		return nil, faults[0]
	}
	if o.Fix != "" && len(paths) > 1 {
		return nil, fault.Fault{Key: "fix", Value: o.Fix, Problem: fmt.Sprintf("one file is written for one that is "+
			"checked: found %d", len(paths))}
	}
	result := &Result{}
	for _, path := range paths {
		report, err := o.file(ctx, path)
		if err != nil {
			return nil, err
		}
		result.Files = append(result.Files, report)
		result.Errors += report.Errors
	}
	return result, nil
}

// file checks a file, and counts its tokens.
func (o Options) file(ctx context.Context, path string) (*check.Report, error) {
	report, err := check.File(ctx, path, check.Options{PreferenceOptions: o.PreferenceOptions,
		Kind: records.Kinds[o.Kind], Near: o.Near, Balance: o.Balance, Out: o.Fix})
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: nothing was written", recipe.ErrInterrupted)
	}
	if err != nil || o.Model == "" {
		return report, err
	}
	r, _, err := records.Read(path, o.PreferenceOptions)
	if err != nil {
		return nil, err
	}
	if r.Kind != records.KindCI && o.Prompt != "" {
		return nil, fault.Fault{Key: "prompt", Value: o.Prompt,
			Problem: fmt.Sprintf("%s holds %s; only contextual-integrity items have forms of prompt", path, r.Kind)}
	}
	counted, err := o.countTokens(ctx, r)
	report.Profile = append(report.Profile, counted)
	if err != nil || !o.Squeeze {
		return report, err
	}
	if r.Kind != records.KindPreference {
		return nil, fault.Fault{Key: "squeeze", Problem: fmt.Sprintf("%s holds %s; only preference pairs are learnt "+
			"against one another", path, r.Kind)}
	}
	report.Squeeze, err = o.squeeze(ctx, r.Preferences)
	if err == nil {
		report.Profile = append(report.Profile, report.Squeeze.String())
	}
	return report, err
}

// countTokens says how long the prompts are.
func (o Options) countTokens(ctx context.Context, r *records.File) (string, error) {
	fsys, name, err := local.FS(o.Model)
	if err != nil {
		return "", err
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err == nil {
		err = o.Chat.Apply(t)
	}
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
	return line, nil
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
