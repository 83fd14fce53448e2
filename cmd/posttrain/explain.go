package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe/preference"
)

func newExplain(s streams) *cobra.Command {
	f := &configFlags{command: preference.Command, known: mappoFlags, kind: preference.Spec.TypeOf}
	f.quickStart, _ = preference.Spec.QuickStart(nil)
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Print the objective of a config with its numbers, and where it deviates from the paper",
		Long: "Print in words what a config trains: the objective as a formula with its numbers, the training\n" +
			"around it, and every option that is not the paper's. The config says which command it is for;\n" +
			"without --config it is that of mappo.",
		Example: "  posttrain explain --config configs/mappo.yaml\n" +
			"  posttrain explain --loss simpo --prior none\n" +
			"  posttrain explain --config configs/ci-rl.yaml",
		Args: noArgs,
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

// commandOf is the command that a config is for: mappo where there is no file, or it does not say.
func commandOf(in config.Input) (config.Command, error) {
	if in.Path == "" {
		return preference.Spec, nil
	}
	text, err := config.Open(in.Path)
	if err != nil {
		return nil, err
	}
	if c := config.Find(config.CommandOf(text)); c != nil {
		return c, nil
	}
	return preference.Spec, nil
}

// optionsOf reads the config of any command whose options are a T, which the accepted commands have; the file says
// which command it is for. cannot ends the error about another command.
func optionsOf[T any](in config.Input, cannot string, accepted []string) (options T, err error) {
	command, err := commandOf(in)
	if err != nil {
		return options, err
	}
	read, err := command.Read(in)
	if err != nil {
		return options, err
	}
	options, ok := read.(T)
	if !ok {
		err = fmt.Errorf("%s is a config for `posttrain %s`, which %s: want one for %s", in.Path, command.Name(),
			cannot, fault.Or(accepted))
	}
	return options, err
}

func explain(in config.Input) (string, error) {
	o, err := optionsOf[config.Explainer](in, "trains nothing", config.Explainers())
	if err != nil {
		return "", err
	}
	return o.Explain(), nil
}
