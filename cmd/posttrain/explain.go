package main

import (
	"github.com/posttrain/posttrain/recipe/preference"

	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
)

func newExplain(s streams) *cobra.Command {
	f := &trainFlags{command: preference.Command, known: mappoFlags}
	cmd := &cobra.Command{
		Use:     "explain",
		Short:   "Print the objective that a config puts in force, and where it deviates from the paper",
		Example: "  posttrain explain --config configs/mappo.yaml\n  posttrain explain --loss simpo --prior none\n  posttrain explain --config configs/ci-rl.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sets, err := f.overrides(cmd)
			if err != nil {
				return err
			}
			text, err := explain(config.Input{Path: f.config, Overrides: sets, Flags: f.known})
			if err != nil {
				return err
			}
			fmt.Fprint(s.out, text)
			return nil
		},
	}
	f.registerConfig(cmd)
	return cmd
}

// explain reads a config of any training command; the file says which.
func explain(in config.Input) (string, error) {
	var command config.Command = preference.Spec
	if in.Path != "" {
		text, err := os.ReadFile(in.Path)
		if err != nil {
			return "", err
		}
		if c := config.Find(config.CommandOf(text)); c != nil {
			command = c
		}
	}
	c, err := command.Read(in)
	if err != nil {
		return "", err
	}
	if c, ok := c.(config.Explainer); ok {
		return c.Explain(), nil
	}
	return "", fmt.Errorf("%s is a config for `posttrain %s`, which trains nothing: want one for mappo, sft or ci-rl", in.Path, command.Name())
}
