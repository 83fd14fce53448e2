package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/pairs"
)

func newPairs(s streams) *cobra.Command {
	c := configured[pairs.Options]{spec: pairs.Spec, flags: pairsFlags, run: summary(pairs.Run)}
	return c.command(s, &cobra.Command{
		Use: "pairs", Short: "Sample n answers to each prompt and pair the best with the worst, with their scores",
		Long: "Sample answers to prompts and write pairs as the MaPPO paper makes them: the best and the worst of n\n" +
			"answers. A prompt whose answers all score the same gives no pair.\n" +
			"With --input the prompts are those of a file, and --reward says who scores: a program (command), a\n" +
			"model on a server (judge) or a reward model (model), as in posttrain data score. Ctrl-C loses the answers\n" +
			"under way; the same command continues. Without --input the prompts are synthetic scenarios, and the\n" +
			"score is the contextual-integrity reward, mapped to [0,1] by (R+1)/2.",
		Example: "  posttrain data pairs --model embedded --n 300 --held-out --out pairs.jsonl\n" +
			"  posttrain data pairs --model DIR --input prompts.jsonl --chat --samples 8 --reward model " +
			"--reward-model DIR --out pairs.jsonl --keep answers.parquet",
	})
}

var pairsFlags = slices.Concat([]config.Flag{
	{Name: "model", Key: "model", Help: modelHelp + " (default embedded)"},
	{Name: "adapter", Key: "adapter", Help: adapterHelp},
	{Name: "cache-gb", Key: "cache_gb", Help: cacheHelp},
	{Name: "backend", Key: "backend", Help: backendHelp + " (default auto)"},
	{Name: "base-url", Key: "server.base_url",
		Help: "OpenAI-compatible server to ask instead of a model folder, such as http://localhost:8000/v1"},
	{Name: "api-model", Key: "server.api_model", Help: "the model's name on the server"},
	{Name: "seed", Key: "seed", Help: "seed of synthetic scenarios and draws (default 1)"},
	{Name: "input", Key: "input",
		Help: "prompts, .jsonl, .json or .parquet, or " + hubRows + ": column prompt (text or messages) or " +
			"messages"},
	{Name: "chat", Key: "chat", Help: "apply the chat template to plain prompts (a server always does)"},
	{Name: "n", Key: "n", Help: "number of synthetic scenarios (default 300)"},
	{Name: "held-out", Key: "held_out", Help: "scenarios whose names and values training scenarios never have"},
	{Name: "answers", Key: "answers", Help: "answers sampled for each prompt (default 8)"},
	{Name: "samples", Key: "answers", Help: "the same as --answers"},
	{Name: "out", Key: "out", Help: "file to write: .jsonl, .json or .parquet, each also with .gz"},
	{Name: "keep", Key: "keep",
		Help: "file to write all answers to, with their scores: all_generated_responses, all_rm_scores"},
	{Name: "max-new-tokens", Key: "max_new_tokens",
		Help: "most tokens of an answer (default 256 with --input, else 128)"},
	{Name: "temperature", Key: "temperature", Help: "temperature of the draws (default 1)"},
	{Name: "reward", Key: "reward.kind", Help: "with --input: command, judge or model"},
	{Name: "command", Key: "reward.command", Exact: true, Help: "the program, with its arguments behind blanks"},
	{Name: "judge-base-url", Key: "reward.judge.base_url", Help: "URL of the judge's server"},
	{Name: "judge-model", Key: "reward.judge.model", Help: "the judge's name on the server"},
	{Name: "rubric", Key: "reward.judge.rubric", Help: "file with the judge's template (default: a built-in one)"},
	{Name: "reward-model", Key: "reward.model.folder", Help: "folder of the reward model"},
	{Name: "max-cost", Key: "reward.judge.max_cost", Help: "stop before the judge costs more (default: no limit)"},
}, templateFlags, truncationFlags)
