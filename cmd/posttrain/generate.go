package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/generate"
)

func newGenerate(s streams) *cobra.Command {
	c := configured[generate.Options]{spec: generate.Spec}
	c.run = func(ctx context.Context, o generate.Options, r run.Reporter) (string, error) {
		o.Writer = s.answers
		return summary(generate.Run)(ctx, o, r)
	}
	return c.command(s, &cobra.Command{
		Use:   "generate",
		Short: "Let a model continue a prompt, or a file of prompts",
		Long: "Let a model continue a prompt, printed while it is written, or a file of prompts, one JSON line for\n" +
			"each answer. A prompt is continued as plain text; with --chat it is a user's message, and the model's\n" +
			"chat template is applied. Rows of a file go through the template, where the model has one.",
		Example: "  posttrain generate --model DIR --prompt \"Once upon a time\"\n" +
			"  posttrain generate --model DIR --chat --prompt \"Where is the key?\"\n" +
			"  posttrain generate --model DIR --input prompts.jsonl --samples 8 --out answers.jsonl",
	})
}
