package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
)

// workMix makes a model and demonstrations in two forms the working directory: 4 rows in chats.jsonl, 12 in texts.json.
func workMix(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "chats.jsonl", demoLines(4, messagesRow))
	write(t, "texts.json", demoLines(12, completionRow))
}

// TestSeveralFiles: they are one file after the other, bit for bit, as a list, a pattern or one file.
func TestSeveralFiles(t *testing.T) {
	workMix(t)
	write(t, "texts.jsonl", read(t, "texts.json"))
	write(t, "all.jsonl", read(t, "chats.jsonl")+read(t, "texts.json"))
	write(t, "list.yaml", "command: sft\ndata: {train: [chats.jsonl, texts.jsonl]}\n")
	base := []string{"sft", "--model", "model", "--backend", "go", "--max-steps", "5", "--set", "train.batch_size=4"}
	for out, more := range map[string][]string{"one": {"--data", "all.jsonl"}, "pattern": {"--data", "[ct]*.jsonl"},
		"two": {"--data", "chats.jsonl,texts.jsonl"}, "list": {"--config", "list.yaml"}} {
		must(t, slices.Concat(base, more, []string{"--out", out})...)
	}
	for _, out := range []string{"two", "pattern", "list"} {
		sameRun(t, "one", out)
	}
}

// TestSeveralFilesOfOthers: mappo, kto, ci-rl and a reward model read several files, one of them twice; a run that is
// interrupted ends in the same bits, and its card and manifest have all files.
func TestSeveralFilesOfOthers(t *testing.T) {
	for name, command := range map[string][]string{
		"mappo":        {"mappo"},
		"kto":          {"mappo", "--loss", "kto", "--prior", "none"},
		"reward model": {"reward-model"},
	} {
		t.Run(name, func(t *testing.T) {
			work(t, "qwen2-newer")
			write(t, "more.jsonl", strings.ReplaceAll(pairLines(6, true), "?", "!"))
			args := tiny(command[0], 5, append(command[1:], "--data", "pairs.jsonl,more.jsonl,more.jsonl")...)
			must(t, append(args, "--out", "whole")...)
			interruptRepeatedly(t, args, "step 2/5")
			sameRun(t, "whole", "out")
			for _, name := range []string{"pairs.jsonl", "more.jsonl"} {
				if card := read(t, "out/model/README.md"); !strings.Contains(card, "- `data.train` `"+name+"`: SHA-256") {
					t.Errorf("%s\nwants %s", card, name)
				}
			}
			must(t, "doctor", "out")
			write(t, "more.jsonl", read(t, "more.jsonl")+" ")
			if o := cli(t, "doctor", "out"); o.code != 1 || !strings.Contains(o.out, "more.jsonl: its SHA-256 begins") {
				t.Errorf("code %d: %s", o.code, o.out)
			}
		})
	}
}

// TestSeveralFilesOfItems: ci-rl draws scenarios of several files.
func TestSeveralFilesOfItems(t *testing.T) {
	workCI(t)
	if err := data.WriteAll("more.json", ci.Synthesize(4, 6)); err != nil {
		t.Fatal(err)
	}
	must(t, append(tinyCIRL(3, "--data", "items.json,more.json"), "--out", "whole")...)
	var summary struct{ Data string }
	if err := json.Unmarshal([]byte(read(t, "whole/summary.json")), &summary); err != nil ||
		summary.Data != "items.json, more.json" {
		t.Error(summary, err)
	}
}

// TestSeveralFilesFaults: each is one line, and nothing is written.
func TestSeveralFilesFaults(t *testing.T) {
	workMix(t)
	write(t, "empty.jsonl", "")
	for data, want := range map[string]string{
		"chats.jsonl,embedded":    `data.train "embedded": the embedded data is not mixed with files`,
		"chats.jsonl,,texts.json": `data.train "": want a name in printable letters, of a file or data set`,
		"chats.jsonl,empty.jsonl": "empty.jsonl: no rows: the file is empty",
		"chats.jsonl,none.jsonl":  "none.jsonl: no such file",
	} {
		o := cli(t, tinySFT(2, "--data", data)...)
		if o.code == 0 || !strings.Contains(o.last(), want) || exists("out") {
			t.Errorf("%s: code %d, %q: want %q", data, o.code, o.last(), want)
		}
	}
}
