package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
)

func newExplain(s streams) *cobra.Command {
	f := &trainFlags{command: config.CommandMappo}
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
			text, err := explain(f.config, sets)
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

// explained is what a config of a command says of itself.
func explained[C interface{ Explain() string }](c C, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return c.Explain(), nil
}

// explain reads a config of any training command; the file says which.
func explain(path string, sets []config.Override) (string, error) {
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		switch config.CommandOf(text) {
		case config.CommandSFT:
			return explained(config.LoadSFT(path, sets))
		case config.CommandCIRL:
			return explained(config.LoadCIRL(path, sets))
		case config.CommandPrivacyLens:
			return "", fmt.Errorf("%s is a config for `posttrain %s`, which trains nothing: want one for mappo, sft or ci-rl", path, config.CommandPrivacyLens)
		}
	}
	return explained(config.LoadMappo(path, sets))
}
