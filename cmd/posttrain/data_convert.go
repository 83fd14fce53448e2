package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/rollout/local"
)

func newConvert(s streams) *cobra.Command {
	var o data.PreferenceOptions
	var f fetcher
	cmd := &cobra.Command{
		Use:   "convert IN OUT",
		Short: "Rewrite a data file as .jsonl or .json",
		Long: "Rewrite contextual-integrity items, preference pairs, answers with labels or demonstrations in\n" +
			"another form. The name of OUT says which: .jsonl or .json, each also with .gz. OUT has the records as\n" +
			"training sees them: posttrain's columns; unusable rows are left out and counted; values of items that\n" +
			"are lists or objects are flattened to text. IN may also be .parquet, or\n" +
			"org/name[@revision][:config][:split] on the hub.",
		Example: "  posttrain data convert items.parquet items.json\n" +
			"  posttrain data convert --score-columns good,bad pairs.parquet pairs.jsonl.gz",
		Args: twoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.pinFiles(cmd.Context(), args[:1], s.reporter()); err != nil {
				return err
			}
			kind, n, report, err := records.Convert(args[0], args[1], o)
			if err != nil {
				return err
			}
			fmt.Fprintln(s.err, fault.Escape(report.String()))
			fmt.Fprintf(s.out, "%s: %d %s\n", args[1], n, kind)
			return nil
		},
	}
	addScoreFlag(cmd, &o)
	f.register(cmd)
	return cmd
}

// twoArgs wants an input file and an output file.
func twoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	path := cmd.CommandPath()
	return usageError{fmt.Errorf("%s wants two files, IN and OUT, found %d (see %s --help)", path, len(args), path)}
}

// addChatFlags adds the flags that set what the model's chat template gets.
func addChatFlags(cmd *cobra.Command, c *local.RowChat) {
	flags := cmd.Flags()
	flags.StringVar(&c.Plain, "chat-plain", "template",
		"plain prompts and answers: template, as messages where the model has a chat template; text, as they are")
	flags.StringVar(&c.Template, "chat-template", "", "file with a chat template in the place of the model's own")
	flags.StringArrayVar(&c.Variables, "chat-variables", nil,
		"variable of the chat template, such as enable_thinking=false (may be repeated)")
	flags.StringVar(&c.Date, "chat-date", "", "day that the chat template prints as today, such as 2026-01-31")
}

// addScoreFlag adds the flag that names the score columns of preference pairs.
func addScoreFlag(cmd *cobra.Command, o *data.PreferenceOptions) {
	cmd.Flags().StringSliceVar(&o.Columns, "columns", nil,
		"columns by other names in the file, such as prompt=question,chosen=response_a,chosen_score=rating_a")
	cmd.Flags().StringSliceVar(&o.ScoreColumns, "score-columns", nil,
		"columns with the scores of preference pairs, such as chosen_rating,rejected_rating "+
			"(default: the first known pair)")
}
