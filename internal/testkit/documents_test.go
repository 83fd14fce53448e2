package testkit

import (
	"slices"
	"strings"
	"testing"
)

// TestIn: commands are found in blocks, transcripts, manifests and between backquotes; output is left alone.
func TestIn(t *testing.T) {
	text := strings.Join([]string{
		"posttrain mappo outside of a block, and `posttrain mappo",
		"--out x` in a line and a half; `make` alone, `data pairs --input` and `make test` of `a | b`",
		"```sh",
		"go run ./cmd/posttrain mappo",
		"POSTTRAIN_X=1 posttrain sft --model 'my model' > log 2>&1   # comment; with a semicolon",
		"cd posttrain && time ./posttrain version | head -1",
		"for i in 1 2; do posttrain eval ci --seed \"$i\" & done",
		"go run ./bench trl … --pairs 3 [--large] [--data FILE] --set 'a=[b]'",
		"```",
		"~~~",
		"$ posttrain mappo --prior none \\",
		"    --out runs/dpo",
		"continue with posttrain mappo --resume out",
		"~~~",
		"```text",
		"posttrain: output",
		"```",
		"```yaml",
		`  args: [serve, --addr, "0.0.0.0:1"]`,
		"```",
	}, "\n")
	var got []string
	for _, c := range CommandsIn("a.md", text) {
		got = append(got, strings.TrimPrefix(c.Place, "a.md:")+" "+strings.Join(c.Words, "|"))
	}
	want := []string{
		"4 go|run|./cmd/posttrain|mappo", "5 posttrain|sft|--model|my model", "6 cd|posttrain",
		"6 ./posttrain|version", "6 head|-1", "7 for|i|in|1|2", "7 posttrain|eval|ci|--seed|$i", "7 done",
		"8 go|run|./bench|trl|--pairs|3|--large|--data|FILE|--set|a=[b]",
		"12 posttrain|mappo|--prior|none|--out|runs/dpo", "19 posttrain|serve|--addr|0.0.0.0:1", "1 posttrain|mappo|--out|x", "2 make|test",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
