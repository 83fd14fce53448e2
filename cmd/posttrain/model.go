package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/rollout/local"
)

func newModel(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use: "model", Short: "Look at model folders, import and export them, or make random weights",
		Example: "  posttrain model info DIR\n  posttrain model init --like DIR --out NEW\n" +
			"  posttrain model export --model DIR --adapter DIR --out NEW\n  posttrain model import FILE.gguf --out NEW\n" +
			"  posttrain model export --model DIR --gguf q8_0 --out FILE.gguf",
	}, section{"", []*cobra.Command{newModelInfo(s), newModelInit(s), newModelImport(s), newModelExport(s)}})
}

func newModelInfo(s streams) *cobra.Command {
	var f fetcher
	cmd := &cobra.Command{
		Use: "info DIR", Short: "Print a model's architecture, parameters, dtype and chat template",
		Long: "Print a model's architecture, parameters, dtype and chat template. DIR is a model folder,\n" +
			"org/name[@revision] on the hub, which is downloaded, or embedded.",
		Example: "  posttrain model info embedded\n  posttrain model info models/Qwen2.5-0.5B-Instruct",
		Args:    oneArg("model folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := struct {
				Model string `hub:"model"`
			}{args[0]}
			if err := f.pin(cmd.Context(), &o, s.reporter()); err != nil {
				return err
			}
			return local.Describe(s.out, o.Model)
		},
	}
	f.register(cmd)
	return cmd
}

func newModelInit(s streams) *cobra.Command {
	var o local.InitOptions
	var f fetcher
	cmd := &cobra.Command{
		Use: "init", Short: "Make a model folder with random weights",
		Long: "Make a model folder with random weights, for tests, benchmarks and training from scratch.",
		Example: "  posttrain model init --like models/Qwen2.5-0.5B/config.json --out /tmp/random " +
			"--tokenizer models/Qwen2.5-0.5B",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Like == "" || o.Out == "" {
				return usageError{errors.New("model init wants --like CONFIG and --out DIR")}
			}
			if err := f.pin(cmd.Context(), &o, s.reporter()); err != nil {
				return err
			}
			c, err := local.Init(o)
			if err != nil {
				return flagFault(err)
			}
			fmt.Fprintf(s.out, "%s: %s with %d parameters, random weights of seed %d\n",
				o.Out, c.ModelType, c.ParamCount(), o.Seed)
			return nil
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Like, "like", "", "config.json of the architecture, or a folder or org/name that has one")
	flags.StringVar(&o.Out, "out", "", "folder to make")
	flags.StringVar(&o.Tokenizer, "tokenizer", "", "model folder or org/name whose tokenizer is copied")
	flags.StringVar(&o.DType, "dtype", "float32", "float32, bfloat16 or float16")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the weights")
	return cmd
}
