// Package inspect is the recipe of posttrain data check and data show: it says what data files hold and what is wrong
// with them, how long their prompts are, and what training makes of a row.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
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
	Near            float64    // see records.Options
	Fix             string     // the file that gets the rows that are right; "": nothing is written
	Model           string     `hub:"tokenizer"` // the folder whose tokenizer counts the prompts; "": they are not counted
	Prompt          string     // form of the prompts of contextual-integrity items; "": cot
	Chat            local.Chat // what the model's chat template gets
	MaxPromptTokens int        // the prompts with more tokens are counted; 0: no limit
}

// DefaultOptions look for duplicates as the gates of data synth do.
func DefaultOptions() Options {
	return Options{Near: records.DefaultNear}
}

// Check names options that are out of range, or that only a model gives a meaning.
func (o Options) Check() []fault.Fault {
	var faults fault.Faults
	add := func(is bool, key string, value any, problem string) {
		if is {
			faults.Add(key, value, "%s", problem)
		}
	}
	if o.Model == "" {
		const why = "only a model's tokenizer can count; add a model"
		add(o.Prompt != "", "prompt", o.Prompt, why)
		add(o.Chat.Template != "", "chat_template", o.Chat.Template, why)
		add(o.Chat.Variables != nil, "chat_variables", strings.Join(o.Chat.Variables, ","), why)
		add(o.Chat.Date != "", "chat_date", o.Chat.Date, why)
		add(o.MaxPromptTokens > 0, "max_prompt_tokens", o.MaxPromptTokens, why)
	} else if err := o.form().Load(); err != nil {
		faults.Add("prompt", o.Prompt, "%v", err)
	}
	for _, f := range o.Chat.Check() {
		f.Key = "chat_" + f.Key
		faults = append(faults, f)
	}
	if err := records.CheckKind(records.Kind(o.Kind)); err != nil {
		faults.Add("kind", o.Kind, "%v", err)
	}
	add(!(o.Near >= 0 && o.Near <= 1), "near", o.Near, "want a share from 0 (no near-duplicates) to 1")
	add(o.MaxPromptTokens < 0, "max_prompt_tokens", o.MaxPromptTokens, "want a whole number, 0 (no limit) or more")
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
	Files  []*records.Report `json:"files"`
	Errors int               `json:"rows_with_errors"`
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
		report, err := records.Check(ctx, path, records.Options{PreferenceOptions: o.PreferenceOptions,
			Kind: records.Kind(o.Kind), Near: o.Near, Out: o.Fix})
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("%w: nothing was written", recipe.ErrInterrupted)
		}
		if err == nil && o.Model != "" {
			err = o.countTokens(ctx, path, report)
		}
		if err != nil {
			return nil, err
		}
		result.Files = append(result.Files, report)
		result.Errors += report.Errors
	}
	return result, nil
}

// encoder opens the model's tokenizer.
func (o Options) encoder() (*batch.Encoder, error) {
	fsys, name, err := local.FS(o.Model)
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err != nil {
		return nil, err
	}
	return &batch.Encoder{Tokenizer: t}, o.Chat.Apply(t)
}

// countTokens says how long the prompts of a file are.
func (o Options) countTokens(ctx context.Context, path string, report *records.Report) error {
	kind, all, _, err := records.Read(path, o.PreferenceOptions)
	if err != nil {
		return err
	}
	if kind != records.KindCI && o.Prompt != "" {
		return fault.Fault{Key: "prompt", Value: o.Prompt,
			Problem: fmt.Sprintf("%s holds %s; only contextual-integrity items have forms of prompt", path, kind)}
	}
	e, err := o.encoder()
	if err != nil {
		return err
	}
	form := o.form()
	write, err := form.Writer()
	if err != nil {
		return err
	}
	prefill := ""
	if form.Prefill {
		prefill = ci.ThinkPrefill
	}
	rows := make([]int, len(all))
	for i := range rows {
		rows[i] = i
	}
	prompts, err := recipe.Encode(ctx, e, rows, func(e *batch.Encoder, i int) ([]int32, error) {
		if all[i].Item == nil {
			g, err := encode(e, all[i], false)
			return g.Prompt, err
		}
		messages, err := write(*all[i].Item, uint64(i))
		var ids []int32
		if err == nil {
			ids, err = e.Prefilled(data.Text{Messages: messages}, prefill)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", all[i].Source(), err)
		}
		return ids, err
	})
	if err != nil {
		return err
	}
	l := batch.LimitPrompts(prompts, o.MaxPromptTokens)
	line := fmt.Sprintf("prompts in tokens of %s: the longest has %d", o.Model, l.Longest)
	if kind == records.KindCI {
		line = form.Prompt + " " + line
	}
	if o.MaxPromptTokens > 0 {
		line += fmt.Sprintf("; %d of %d have more than %d", l.Dropped, len(prompts), o.MaxPromptTokens)
	}
	if e.Drift > 0 {
		line += fmt.Sprintf("; %d answers merge with their prompt when tokenised together (training tokenises them "+
			"apart)", e.Drift)
	}
	report.Profile = append(report.Profile, line)
	return nil
}

// encode tokenises a record with its answers; the encoder counts those that merge with their prompt.
func encode(e *batch.Encoder, r records.Record, whole bool) (batch.Group, error) {
	switch {
	case r.Pair != nil:
		return e.Preference(*r.Pair)
	case r.Demo != nil:
		return e.Demonstration(*r.Demo, whole)
	}
	return e.Demonstration(r.Answers[0].Demonstration, false)
}
