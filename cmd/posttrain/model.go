package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/rollout/local"
)

func newModel(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use: "model", Short: "Look at model folders, import one, merge an adapter, or make one with random weights",
		Example: "  posttrain model info DIR\n  posttrain model init --like DIR --out NEW\n" +
			"  posttrain model merge --model DIR --adapter DIR --out NEW\n  posttrain model import FILE.gguf --out NEW",
	}, newModelInfo(s), newModelInit(s), newModelMerge(s), newModelImport(s))
}

func newModelInfo(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "info DIR", Short: "Print a model's architecture, parameters, dtype and chat template",
		Example: "  posttrain model info embedded\n  posttrain model info models/Qwen2.5-0.5B-Instruct",
		Args:    oneArg("model folder"),
		RunE:    func(_ *cobra.Command, args []string) error { return local.Describe(s.out, args[0]) },
	}
}

func newModelInit(s streams) *cobra.Command {
	var o local.InitOptions
	cmd := &cobra.Command{
		Use: "init", Short: "Make a model folder with random weights",
		Long: "Make a model folder with random weights, for tests, benchmarks and training from scratch.",
		Example: "  posttrain model init --like models/Qwen2.5-0.5B/config.json --out /tmp/random " +
			"--tokenizer models/Qwen2.5-0.5B",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if o.Like == "" || o.Out == "" {
				return usageError{errors.New("model init wants --like CONFIG and --out DIR")}
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
	flags := cmd.Flags()
	flags.StringVar(&o.Like, "like", "", "config.json of the architecture, or a folder that has one")
	flags.StringVar(&o.Out, "out", "", "folder to make")
	flags.StringVar(&o.Tokenizer, "tokenizer", "", "model folder whose tokenizer is copied")
	flags.StringVar(&o.DType, "dtype", "float32", "float32, bfloat16 or float16")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the weights")
	return cmd
}
