package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/gguf"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/exchange"
)

func newModelImport(s streams) *cobra.Command {
	var o exchange.ImportOptions
	quiet := false
	cmd := &cobra.Command{
		Use: "import FILE.gguf", Short: "Make a model folder of a GGUF file, as llama.cpp and Ollama have",
		Long: "Make a Hugging Face model folder of a GGUF file of a llama, mistral, qwen2 or qwen3: weights,\n" +
			"config, tokenizer, chat template and the tokens that end a text. Tensors may be stored as\n" +
			gguf.Names(gguf.Readable, ", ") + ";\n" +
			"the folder has the numbers that they stand for. It is stored in bfloat16 or float16 where that loses\n" +
			"nothing, else in float32.",
		Example: "  posttrain model import SmolLM2-135M-Instruct.Q4_1.gguf --out smollm2\n" +
			"  posttrain model import model.gguf --out DIR --dtype bfloat16",
		Args: oneArg("GGUF file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Out == "" {
				return usageError{errors.New("model import wants --out DIR")}
			}
			o.File = args[0]
			said, err := exchange.Import(cmd.Context(), o, run.NewReporter(s.err, s.terminal, quiet))
			fmt.Fprint(s.out, said)
			return flagFault(err)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Out, "out", "", "folder to make")
	flags.StringVar(&o.DType, "dtype", "auto",
		"float32, bfloat16, float16, or auto: the smallest that holds every number")
	flags.BoolVar(&quiet, "quiet", false, "print only the summary, warnings and errors")
	return cmd
}
