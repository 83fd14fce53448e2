package main

import (
	"strings"
	"testing"
)

// TestColumns: each reader takes tables and columns by other names, and then does what it does with the names that it
// reads.
func TestColumns(t *testing.T) {
	work(t, "qwen2-newer")
	const table = "ask,good,bad,up,down\nWhere?,Here it is,\"No, \"\"there\"\"\",2,1\nWho?,Me,You,4,2.5\n"
	write(t, "t.csv", "\ufeff"+table)
	write(t, "t.tsv", "ask\tgood\tbad\tup\tdown\nWhere?\tHere it is\t\"No, \"\"there\"\"\"\t2\t1\n"+
		"Who?\tMe\tYou\t4\t2.5\n")
	write(t, "named.jsonl", `{"prompt":"Where?","chosen":"Here it is","rejected":"No, \"there\"","chosen_score":2,`+
		`"rejected_score":1}`+"\n"+
		`{"prompt":"Who?","chosen":"Me","rejected":"You","chosen_score":4,"rejected_score":2.5}`+"\n")
	const pairs = "prompt=ask,chosen=good,rejected=bad,chosen_score=up,rejected_score=down"
	must(t, "data", "convert", "named.jsonl", "want.jsonl")
	for file, columns := range map[string][]string{"t.csv": {"--columns", pairs}, "t.tsv": {"--columns",
		"prompt=ask,chosen=good,rejected=bad", "--score-columns", "up,down"}} {
		must(t, append([]string{"data", "convert", file, "got.jsonl"}, columns...)...)
		if read(t, "got.jsonl") != read(t, "want.jsonl") {
			t.Errorf("%s: %s", file, read(t, "got.jsonl"))
		}
		must(t, append([]string{"data", "check", file}, columns...)...)
		must(t, append([]string{"data", "show", "--model", "model", file}, columns...)...)
	}
	train := func(command, out string, more ...string) string {
		must(t, append([]string{command, "--model", "model", "--backend", "go", "--out", out, "--set",
			"train.max_steps=1", "--set", "train.batch_size=2"}, more...)...)
		return read(t, out+"/model/model.safetensors")
	}
	demos := "prompt=ask,completion=good"
	for name, runs := range map[string][2][]string{
		"mappo": {{"mappo", "a", "--data", "t.csv", "--columns", pairs}, {"mappo", "b", "--data", "named.jsonl"}},
		"reward-model": {{"reward-model", "c", "--data", "t.tsv", "--columns", pairs},
			{"reward-model", "d", "--data", "named.jsonl"}},
		"sft": {{"sft", "e", "--data", "t.csv", "--columns", demos},
			{"sft", "f", "--data", "t.tsv", "--columns", demos}},
		"kto": {{"mappo", "g", "--loss", "kto", "--data", "t.csv", "--columns", pairs},
			{"mappo", "h", "--loss", "kto", "--data", "named.jsonl"}},
	} {
		got := train(runs[0][0], runs[0][1], runs[0][2:]...)
		if got != train(runs[1][0], runs[1][1], runs[1][2:]...) {
			t.Errorf("%s: a table trains other weights than the named columns", name)
		}
	}
	greedy := []string{"--model", "model", "--backend", "go", "--temperature", "0", "--max-new-tokens", "2"}
	o := must(t, append([]string{"generate", "--input", "t.csv", "--columns", "prompt=ask"}, greedy...)...)
	if strings.Count(o.out, `"Where?"`) != 1 {
		t.Error(o.out)
	}
	must(t, "grpo", "--model", "model", "--backend", "go", "--data", "t.csv", "--columns", "prompt=ask,answer=good",
		"--reward", "exact", "--explain")
	for want, args := range map[string][]string{
		"t.csv:2: there is no column aks (did you mean ask?): found columns ask, bad, down": {"sft", "--model",
			"model", "--data", "t.csv", "--columns", "prompt=aks,completion=good"},
		`data.columns "promt=ask": promt is no column that is read (did you mean prompt?)`: {"mappo", "--model",
			"model", "--data", "t.csv", "--columns", "promt=ask"},
		`data.columns "ask": want names such as prompt=question`: {"grpo", "--model", "model", "--data", "t.csv",
			"--columns", "ask", "--reward", "exact"},
		"data.columns [prompt=ask]: the embedded data has the names that are read": {"mappo",
			"--columns", "prompt=ask"},
		`--columns "prompt": want names such as`: {"data", "check",
			"--columns", "prompt", "t.csv"},
		`columns "prompt": want names such as`: {"data", "score", "--data", "t.csv", "--columns", "prompt", "--reward",
			"command", "--command", "cat", "--out", "o.jsonl"},
		"it is about the prompts of a file; add input": {"data", "pairs", "--columns", "prompt=ask",
			"--out", "o.jsonl"},
		"it is about a file of prompts; add input": {"generate", "--prompt", "Hi", "--columns", "prompt=ask"},
		"items.csv:2: seed.domain is missing or empty": {"ci-rl", "--model", "model", "--data",
			"items.csv"},
	} {
		write(t, "items.csv", "a,b\nc,d\n")
		if o := cli(t, args...); o.code == 0 || !strings.Contains(o.err, want) {
			t.Errorf("%v: %d %s, want %s", args, o.code, o.err, want)
		}
	}
}
