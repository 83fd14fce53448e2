package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/merge"
)

func newModelMerge(s streams) *cobra.Command {
	var o merge.Options
	var f fetcher
	cmd := &cobra.Command{
		Use: "merge", Short: "Add a LoRA adapter to the weights of its model",
		Long: "Make a model folder whose weights have a LoRA adapter's product added, for programs that know no\n" +
			"adapters. It says how far the weights moved, and what their rounding costs where the model is stored in\n" +
			"bfloat16 or float16. The sums are in float64.",
		Example: "  posttrain model merge --model DIR --adapter runs/mappo-20260102-150405/adapter --out merged\n" +
			"  posttrain model merge --model DIR --adapter DIR --out merged --dtype float32",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Model == "" || o.Adapter == "" || o.Out == "" {
				return usageError{errors.New("model merge wants --model DIR, --adapter DIR and --out DIR")}
			}
			if err := f.pin(cmd.Context(), &o, s.reporter()); err != nil {
				return err
			}
			said, err := merge.Run(cmd.Context(), o)
			fmt.Fprint(s.out, said)
			return flagFault(err)
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Model, "model", "", modelHelp)
	flags.StringVar(&o.Adapter, "adapter", "", adapterHelp)
	flags.StringVar(&o.Out, "out", "", "folder to make")
	flags.StringVar(&o.DType, "dtype", "auto", "float32, bfloat16, float16, or auto: as the model is stored")
	return cmd
}
