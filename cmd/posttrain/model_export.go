package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/exchange"
)

func newModelExport(s streams) *cobra.Command {
	o := exchange.DefaultExport()
	var merged exchange.MergeOptions
	var f fetcher
	quiet := false
	cmd := &cobra.Command{
		Use: "export", Short: "Write a model as a GGUF file, for llama.cpp and Ollama, or merge an adapter into it",
		Long: "With --gguf, write a model folder as a GGUF file with tokenizer, chat template and the tokens that end a text.\n" +
			"Matrices are stored in the type of --gguf, vectors in float32. The file is then read back and compared\n" +
			"with the folder: weights, token ids, and greedy answers with their log-probs. NAME.proof.json has the\n" +
			"numbers. A file whose tokenizer reads a conversation otherwise is refused, and does not stay.\n\n" +
			"With --adapter, make a model folder whose weights have a LoRA adapter's product added, for programs\n" +
			"that know no adapters. It says how far the weights moved, and what their rounding costs where the\n" +
			"model is stored in bfloat16 or float16. The sums are in float64.",
		Example: "  posttrain model export --model runs/mappo-20260102-150405/model --gguf q8_0 --out model.gguf\n" +
			"  posttrain model export --model DIR --gguf f16 --out model.gguf --answers 0\n" +
			"  posttrain model export --model DIR --adapter runs/mappo-20260102-150405/adapter --out merged",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			merged.Model, merged.Out = o.Model, o.Out
			if o.Model == "" || o.Out == "" || (o.GGUF == "") == (merged.Adapter == "") {
				return usageError{errors.New("model export wants --model DIR, --out NAME, and --gguf TYPE or --adapter DIR")}
			}
			unused, by := []string{"dtype"}, "gguf"
			if o.GGUF == "" {
				unused, by = []string{"answers", "backend"}, "adapter"
			}
			for _, name := range unused {
				if cmd.Flags().Changed(name) {
					return usageError{fmt.Errorf("--%s has no effect with --%s: remove it", name, by)}
				}
			}
			r := run.NewReporter(s.err, s.terminal, quiet)
			if o.GGUF == "" {
				return s.answer(f.pin(cmd.Context(), &merged, r), func() (string, error) {
					return exchange.Merge(cmd.Context(), merged)
				})
			}
			return s.answer(f.pin(cmd.Context(), &o, r), func() (string, error) {
				return exchange.Export(cmd.Context(), o, r)
			})
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Model, "model", "", modelHelp)
	flags.StringVar(&o.Out, "out", "", "file to make, NAME.gguf, or the folder of the merged model")
	flags.StringVar(&o.GGUF, "gguf", "", "type of the matrices: f32, f16, bf16 or q8_0")
	flags.StringVar(&merged.Adapter, "adapter", "", adapterHelp)
	flags.StringVar(&merged.DType, "dtype", "auto",
		"of a merged model: float32, bfloat16, float16, or auto: as the model is stored")
	flags.StringVar(&o.Backend, "backend", o.Backend, backendHelp)
	flags.IntVar(&o.Answers, "answers", o.Answers, "greedy answers that are compared, at most 8; 0: none")
	flags.BoolVar(&quiet, "quiet", false, "print only the summary, warnings and errors")
	return cmd
}
