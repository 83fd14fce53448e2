package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// twoArgs wants an input file and an output file.
func twoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return usageError{fmt.Errorf("%s wants two files, IN and OUT, found %d (see %s --help)", cmd.CommandPath(), len(args), cmd.CommandPath())}
}

// scoreFlag adds the flag that names the score columns of preference pairs.
func scoreFlag(cmd *cobra.Command, o *data.PreferenceOptions) {
	cmd.Flags().StringSliceVar(&o.ScoreColumns, "score-columns", nil, "columns with the scores of preference pairs, such as chosen_rating,rejected_rating (default: the first known pair)")
}

func newConvert(s streams) *cobra.Command {
	var o data.PreferenceOptions
	cmd := &cobra.Command{
		Use: "convert IN OUT", Short: "Rewrite a data file as .jsonl, .json or .parquet",
		Long: "Rewrite contextual-integrity items, preference pairs or demonstrations in another form, which the names of the files tell: .jsonl,\n" +
			".json or .parquet, each also with .gz. OUT has the records as training sees them: the columns of posttrain, unusable rows left out\n" +
			"(and counted), values of contextual-integrity items that are lists or objects flattened to text. In parquet, an item's information\n" +
			"is a list of {key, text} and its annotation two lists of {key, words}.",
		Example: "  posttrain data convert dataset.json items.parquet\n  posttrain data convert --score-columns good,bad pairs.parquet pairs.jsonl.gz",
		Args:    twoArgs,
		RunE:    func(_ *cobra.Command, args []string) error { return convert(s, args[0], args[1], o) },
	}
	scoreFlag(cmd, &o)
	return cmd
}

// convert reads, writes, and says what came of it.
func convert(s streams, in, out string, o data.PreferenceOptions) error {
	if err := data.CheckWritable(out); err != nil {
		return err
	}
	if sameFile(in, out) {
		return fmt.Errorf("%s and %s are one file: want another name for what is written", in, out)
	}
	r, report, err := records.Read(in, o)
	if err != nil {
		return err
	}
	if err := r.Write(out); err != nil {
		return err
	}
	fmt.Fprintln(s.err, report)
	fmt.Fprintf(s.out, "%s: %d %s\n", out, r.Len(), r.Kind)
	return nil
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// checkFlags are what data check may be told.
type checkFlags struct {
	data.PreferenceOptions
	model     string // folder whose tokenizer counts; "" counts nothing
	prompt    string // form of a contextual-integrity prompt
	maxPrompt int    // tokens; 0: no limit
}

func newCheck(s streams) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Say what a data file holds, and what is odd about it",
		Long: "Read contextual-integrity items, preference pairs or demonstrations as training would, and say how many rows there are, which of them\n" +
			"are unusable and which look odd, with their places. With a model, also how long the prompts are in its tokens.",
		Example: "  posttrain data check dataset.json\n  posttrain data check --model models/Qwen2.5-1.5B-Instruct --max-prompt-tokens 768 dataset.json\n" +
			"  posttrain data check --score-columns good,bad pairs.parquet",
		Args: oneArg("data file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.validate(cmd); err != nil {
				return err
			}
			return checkData(s, args[0], f)
		},
	}
	scoreFlag(cmd, &f.PreferenceOptions)
	cmd.Flags().StringVar(&f.model, "model", "", "model folder whose tokenizer counts the prompts, or embedded")
	cmd.Flags().StringVar(&f.prompt, "prompt", "", "form of the prompts of contextual-integrity items: compact, plain or cot (default cot)")
	cmd.Flags().IntVar(&f.maxPrompt, "max-prompt-tokens", 0, "count the prompts with more tokens, which training with this limit would drop (default: no limit)")
	return cmd
}

func (f *checkFlags) validate(cmd *cobra.Command) error {
	for _, name := range []string{"prompt", "max-prompt-tokens"} {
		if f.model == "" && cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s: only a model's tokenizer can tell: add --model DIR", name)}
		}
	}
	if f.maxPrompt < 0 {
		return usageError{fmt.Errorf("--max-prompt-tokens %d: want 0 (no limit) or more", f.maxPrompt)}
	}
	if f.prompt == "" {
		return nil
	}
	if err := ci.CheckPrompt(f.prompt); err != nil {
		return usageError{fmt.Errorf("--%w", err)}
	}
	return nil
}

// checkData reports.
func checkData(s streams, path string, f checkFlags) error {
	r, report, err := records.Read(path, f.PreferenceOptions)
	if err != nil {
		return err
	}
	if r.Kind != records.KindCI && f.prompt != "" {
		return usageError{fmt.Errorf("--prompt %s: %s holds %s; only contextual-integrity items have forms of prompt", f.prompt, path, r.Kind)}
	}
	lines := report.Details()
	lines = slices.Insert(lines, 1, "  "+r.Kind.String())
	for i, line := range ci.Profile(r.CI) {
		lines = slices.Insert(lines, 2+i, "  "+line)
	}
	if f.model != "" {
		counted, err := countTokens(r, f)
		if err != nil {
			return err
		}
		lines = append(lines, counted)
	}
	fmt.Fprintln(s.out, strings.Join(lines, "\n"))
	return nil
}

// countTokens says how long the prompts are.
func countTokens(r *records.File, f checkFlags) (string, error) {
	fsys, name, err := local.FS(f.model)
	if err != nil {
		return "", err
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err != nil {
		return "", err
	}
	kind := cmp.Or(f.prompt, ci.PromptCoT)
	e := &batch.Encoder{Tokenizer: t}
	prompts, err := encodePrompts(e, r, kind)
	if err != nil {
		return "", err
	}
	l := batch.LimitPrompts(prompts, f.maxPrompt)
	line := fmt.Sprintf("  prompts in tokens of %s: the longest has %d", f.model, l.Longest)
	if r.Kind == records.KindCI {
		line = fmt.Sprintf("  %s prompts in tokens of %s: the longest has %d", kind, f.model, l.Longest)
	}
	if f.maxPrompt > 0 {
		line += fmt.Sprintf("; %d of %d have more than %d", l.Dropped, len(prompts), f.maxPrompt)
	}
	if e.Drift > 0 {
		line += fmt.Sprintf("; %d answers merge with their prompt when tokenised together (training tokenises them apart)", e.Drift)
	}
	return line, nil
}

// encodePrompts tokenises every prompt, and the answers for what drifts at the boundary.
func encodePrompts(e *batch.Encoder, r *records.File, kind string) ([][]int32, error) {
	prompts := make([][]int32, r.Len())
	for i := range prompts {
		var err error
		if prompts[i], err = encodePrompt(e, r, i, kind); err != nil {
			return nil, err
		}
	}
	return prompts, nil
}

func encodePrompt(e *batch.Encoder, r *records.File, i int, kind string) ([]int32, error) {
	switch r.Kind {
	case records.KindPreference:
		g, err := e.Preference(r.Preferences[i])
		return g.Prompt, err
	case records.KindDemonstration:
		g, err := e.Demonstration(r.Demonstrations[i], false)
		return g.Prompt, err
	}
	prefill := ""
	if kind == ci.PromptCoT {
		prefill = ci.ThinkPrefill
	}
	ids, err := e.Prefilled(data.Text{Messages: ci.Prompt(r.CI[i], kind, uint64(i))}, prefill)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.CI[i].Source, err)
	}
	return ids, nil
}
