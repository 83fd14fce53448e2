package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe"
)

func newCheck(s streams) *cobra.Command {
	o, asJSON := records.Options{Near: records.DefaultNear}, false
	var f fetcher
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Say what data files hold, and what is wrong with them",
		Long: "Read contextual-integrity items, preference pairs, answers with labels or demonstrations as training\n" +
			"would. Print how many rows there are, and what is wrong with which of them:\n" +
			"errors (training refuses the row or leaves it out, or the row contradicts itself), warnings, notes.\n" +
			"With an error in any file the exit code is 1. With --fix it is 0: the rows without errors, each\n" +
			"repeated row once, are written to another file, in the columns of data convert.",
		Example: "  posttrain data check dataset.json\n" +
			"  posttrain data check --fix mended.json dataset.json\n" +
			"  posttrain data check --json train.jsonl valid.jsonl\n" +
			"  posttrain data check --kind demonstrations chats.jsonl\n" +
			"  posttrain data check --kind pairs trl-lib/ultrafeedback_binarized:train\n" +
			"  posttrain data check --score-columns good,bad pairs.parquet",
		Args: oneOrMore("data file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.pinFiles(cmd.Context(), args, s.reporter()); err != nil {
				return err
			}
			if o.Out != "" && len(args) > 1 {
				return flagFault(fault.Fault{Key: "fix", Value: o.Out, Problem: fmt.Sprintf("one file is written for one "+
					"that is checked: found %d", len(args))})
			}
			var all struct {
				Files  []*records.Report `json:"files"`
				Errors int               `json:"rows_with_errors"`
			}
			var words, bad []string
			for _, path := range args {
				report, err := records.Check(cmd.Context(), path, o)
				if errors.Is(err, context.Canceled) {
					err = fmt.Errorf("%w: nothing was written", recipe.ErrInterrupted)
				}
				if err != nil {
					return flagFault(err)
				}
				all.Files, all.Errors = append(all.Files, report), all.Errors+report.Errors
				words = append(words, report.Lines()...)
				if report.Fails() && report.Fixed == nil {
					bad = append(bad, report.Fault())
				}
			}
			if err := s.print(asJSON, all, strings.Join(words, "\n")+"\n"); err != nil {
				return err
			}
			if bad != nil {
				return errors.New(strings.Join(bad, "; "))
			}
			return nil
		},
	}
	addScoreFlag(cmd, &o.PreferenceOptions)
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar((*string)(&o.Kind), "kind", "",
		"what the files hold: items, pairs, demonstrations or labelled (default: what the first row looks like)")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	flags.StringVar(&o.Out, "fix", "",
		"write the rows without errors, each repeated row once, to this file: .jsonl or .json, also .gz")
	flags.Float64Var(&o.Near, "near", o.Near,
		"share of triples of words in common that makes a row a near-duplicate (0 = not looked for)")
	return cmd
}
