package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
)

func newShow(s streams) *cobra.Command {
	o := recipe.ShowOptions{Row: 1}
	var f fetcher
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Print the tokens of a row with their weights in the loss",
		Long: "Print one row of preference pairs, demonstrations or labelled answers as training would have it: each\n" +
			"token with its place, its id, its weight in the loss (0: it is only read) and its text. On a terminal\n" +
			"the tokens with a weight are green, unless NO_COLOR is set.",
		Example: "  posttrain data show --row 3 chats.jsonl\n" +
			"  posttrain data show --model models/Qwen2.5-1.5B-Instruct --loss-on last chats.jsonl\n" +
			"  posttrain data show --model models/Qwen3-0.6B --chat-variables enable_thinking=false chats.jsonl",
		Args: oneArg("data file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f.pin(cmd.Context(), &o, s.reporter())
			if err == nil {
				err = f.pinFiles(cmd.Context(), args, s.reporter())
			}
			if err != nil {
				return err
			}
			// %q has escaped the tokens, so that the colour alone is not.
			out, mark := s.out, func(line string) string { return line }
			if s.shown && os.Getenv("NO_COLOR") == "" {
				out, mark = s.colour, func(line string) string { return "\x1b[32m" + line + "\x1b[0m" }
			}
			lines, err := recipe.Show(args[0], o, mark)
			if err != nil {
				return flagFault(err)
			}
			fmt.Fprintln(s.out, lines[0])
			io.WriteString(out, strings.Join(lines[1:], "\n")+"\n")
			return nil
		},
	}
	addScoreFlag(cmd, &o.PreferenceOptions)
	f.register(cmd)
	flags := cmd.Flags()
	flags.IntVar(&o.Row, "row", o.Row, "which of the rows that training keeps, from 1")
	flags.StringVar(&o.Model, "model", embedded.Name,
		"model folder or org/name whose tokenizer and chat template are used, or embedded")
	addChatFlags(cmd, &o.Chat)
	flags.StringVar(&o.LossOn, "loss-on", "",
		"what of demonstrations has weight, as data.loss_on of sft: completion, turns, last or all (default completion)")
	return cmd
}
