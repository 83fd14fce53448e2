package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/inspect"
)

func newCheck(s streams) *cobra.Command {
	o, asJSON := inspect.DefaultOptions(), false
	var f fetcher
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Say what data files hold, and what is wrong with them",
		Long: "Read contextual-integrity items, preference pairs, answers with labels or demonstrations as training\n" +
			"would. Print how many rows there are, and what is wrong with which of them:\n" +
			"errors (training refuses the row or leaves it out, or the row contradicts itself), warnings, notes.\n" +
			"With an error in any file the exit code is 1. With --fix it is 0: the rows without errors, each\n" +
			"repeated row once, are written to another file, in the columns of data convert. With --model, also\n" +
			"how long the prompts are in the model's tokens.",
		Example: "  posttrain data check dataset.json\n" +
			"  posttrain data check --fix mended.json dataset.json\n" +
			"  posttrain data check --json train.jsonl valid.jsonl\n" +
			"  posttrain data check --kind demonstrations chats.jsonl\n" +
			"  posttrain data check --kind pairs trl-lib/ultrafeedback_binarized:train\n" +
			"  posttrain data check --model models/Qwen2.5-1.5B-Instruct --max-prompt-tokens 768 dataset.json\n" +
			"  posttrain data check --score-columns good,bad pairs.parquet",
		Args: oneOrMore("data file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f.pin(cmd.Context(), &o, s.reporter())
			if err == nil {
				err = f.pinFiles(cmd.Context(), args, s.reporter())
			}
			if err != nil {
				return err
			}
			result, err := inspect.Run(cmd.Context(), args, o)
			if err != nil {
				return flagFault(err)
			}
			if asJSON {
				if err := writeJSON(s, result); err != nil {
					return err
				}
			} else {
				fmt.Fprintln(s.out, strings.Join(result.Lines(), "\n"))
			}
			return result.Err()
		},
	}
	addScoreFlag(cmd, &o.PreferenceOptions)
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Kind, "kind", "",
		"what the files hold: items, pairs, demonstrations or labelled (default: what the first row looks like)")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	flags.StringVar(&o.Fix, "fix", "",
		"write the rows without errors, each repeated row once, to this file: .jsonl, .json or .parquet, also .gz")
	flags.Float64Var(&o.Near, "near", o.Near,
		"share of triples of words in common that makes a row a near-duplicate (0 = not looked for)")
	flags.StringVar(&o.Model, "model", "", "model folder or org/name whose tokenizer counts the prompts, or embedded")
	addChatFlags(cmd, &o.Chat)
	flags.StringVar(&o.Prompt, "prompt", "",
		"form of the prompts of contextual-integrity items: compact, plain, cot, cot-short or a "+
			"template's file (default cot)")
	flags.IntVar(&o.MaxPromptTokens, "max-prompt-tokens", 0,
		"count the prompts with more tokens, which training with this limit would drop (0 = no limit)")
	return cmd
}
