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
	var f fetcher
	quiet := false
	cmd := &cobra.Command{
		Use: "export", Short: "Write a model folder as a GGUF file, for llama.cpp and Ollama",
		Long: "Write a model folder as a GGUF file with tokenizer, chat template and the tokens that end a text,\n" +
			"and NAME.Modelfile for Ollama beside it. Matrices are stored in the type of --gguf, vectors in\n" +
			"float32. The file is then read back and compared with the folder: weights, token ids, greedy\n" +
			"answers with their log-probs, and what eval ci counts. NAME.proof.json has the numbers. A file whose\n" +
			"tokenizer reads a conversation otherwise is refused, and does not stay.",
		Example: "  posttrain model export --model runs/mappo-20260102-150405/model --gguf q8_0 --out model.gguf\n" +
			"  posttrain model export --model DIR --gguf f16 --out model.gguf --ci 0 --answers 0",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Model == "" || o.Out == "" || o.GGUF == "" {
				return usageError{errors.New("model export wants --model DIR, --gguf TYPE and --out FILE.gguf")}
			}
			r := run.NewReporter(s.err, s.terminal, quiet)
			if err := f.pin(cmd.Context(), &o, r); err != nil {
				return err
			}
			said, err := exchange.Export(cmd.Context(), o, r)
			fmt.Fprint(s.out, said)
			return flagFault(err)
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Model, "model", "", modelHelp)
	flags.StringVar(&o.Out, "out", "", "file to make, NAME.gguf")
	flags.StringVar(&o.GGUF, "gguf", "", "type of the matrices: f32, f16, bf16 or q8_0")
	flags.StringVar(&o.Backend, "backend", o.Backend, backendHelp)
	flags.IntVar(&o.Answers, "answers", o.Answers, "greedy answers that are compared, at most 8; 0: none")
	flags.IntVar(&o.CI, "ci", o.CI, "scenarios of eval ci that are compared; 0: none")
	flags.BoolVar(&quiet, "quiet", false, "print only the summary, warnings and errors")
	return cmd
}
