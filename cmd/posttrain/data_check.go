package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/inspect"
)

func newCheck(s streams) *cobra.Command {
	var o inspect.Options
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what a data file holds, and what is odd about it",
		Long: "Read contextual-integrity items, preference pairs, answers with labels or demonstrations as\n" +
			"training would. Print how many rows there are, and which of them are unusable or look odd, with\n" +
			"their places. With --model, also how long the prompts are in the model's tokens.",
		Example: "  posttrain data check dataset.json\n" +
			"  posttrain data check --model models/Qwen2.5-1.5B-Instruct --max-prompt-tokens 768 dataset.json\n" +
			"  posttrain data check --score-columns good,bad pairs.parquet",
		Args: oneArg("data file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			lines, err := inspect.Run(cmd.Context(), args[0], o)
			if err != nil {
				return flagFault(err)
			}
			fmt.Fprintln(s.out, strings.Join(lines, "\n"))
			return nil
		},
	}
	addScoreFlag(cmd, &o.PreferenceOptions)
	flags := cmd.Flags()
	flags.StringVar(&o.Model, "model", "", "model folder whose tokenizer counts the prompts, or embedded")
	flags.StringVar(&o.Prompt, "prompt", "",
		"form of the prompts of contextual-integrity items: compact, plain, cot, cot-short or a "+
			"template's file (default cot)")
	flags.IntVar(&o.MaxPromptTokens, "max-prompt-tokens", 0,
		"count the prompts with more tokens, which training with this limit would drop (0 = no limit)")
	return cmd
}
