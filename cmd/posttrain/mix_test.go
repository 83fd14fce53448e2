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

// TestMix: files of different forms are mixed by weights; the run says how many rows an epoch has of each, ends in the
// same bits when it is interrupted in an epoch and continued, and its card and manifest have all files.
func TestMix(t *testing.T) {
	workMix(t)
	args := tinySFT(7, "--data", "chats.jsonl,texts.json", "--data-weights", "3,1")
	o := must(t, append(args, "--out", "whole")...)
	const says = "an epoch has 16 rows of 2 sources:\n  chats.jsonl: 12 rows, 3.00 times its 4\n" +
		"  texts.json: 4 rows, 0.33 times its 12\n"
	if !strings.Contains(o.err, says) {
		t.Errorf("%s\nwants %s", o.err, says)
	}
	interruptRepeatedly(t, args, "step 2/7")
	sameRun(t, "whole", "out")

	const sources = "data:\n  train:\n  - chats.jsonl\n  - texts.json\n  weights:\n  - 3.0\n  - 1.0\n"
	if text := read(t, "out/config.yaml"); !strings.Contains(text, sources) {
		t.Error(text)
	}
	for _, name := range []string{"chats.jsonl", "texts.json"} {
		if card := read(t, "out/model/README.md"); !strings.Contains(card, "- `data.train` `"+name+"`: SHA-256") {
			t.Errorf("%s\nwants %s", card, name)
		}
	}
	if o := must(t, "sft", "--explain", "--config", "out/config.yaml"); !strings.Contains(o.out,
		"data: chats.jsonl (weight 3), texts.json (weight 1), no evaluation\n") {
		t.Error(o.out)
	}
	must(t, "doctor", "out")
	write(t, "texts.json", read(t, "texts.json")+" ")
	if o := cli(t, "doctor", "out"); o.code != 1 || !strings.Contains(o.out, "texts.json: its SHA-256 begins") {
		t.Errorf("code %d: %s", o.code, o.out)
	}
}

// TestSeveralFiles: without weights they are one file after the other, bit for bit, as a list, a pattern or one file.
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

// TestMixOfPairs: a mix trains mappo, kto, ci-rl and a reward model, with a share held out, interrupted or not.
func TestMixOfPairs(t *testing.T) {
	for name, command := range map[string][]string{
		"mappo":        {"mappo"},
		"kto":          {"mappo", "--loss", "kto", "--prior", "none"},
		"reward model": {"reward-model"},
	} {
		t.Run(name, func(t *testing.T) {
			work(t, "qwen2-newer")
			write(t, "more.jsonl", strings.ReplaceAll(pairLines(6, true), "?", "!"))
			args := tiny(command[0], 5, append(command[1:], "--data", "pairs.jsonl,more.jsonl", "--data-weights",
				"1,2")...)
			o := must(t, append(args, "--out", "whole")...)
			if !strings.Contains(o.err, "rows of 2 sources:\n  pairs.jsonl: ") {
				t.Error(o.err)
			}
			interruptRepeatedly(t, args, "step 2/5")
			sameRun(t, "whole", "out")
		})
	}
}

// TestMixOfItems: ci-rl draws scenarios of several files by their weights.
func TestMixOfItems(t *testing.T) {
	workCI(t)
	if err := data.WriteAll("more.json", ci.Synthesize(4, 6)); err != nil {
		t.Fatal(err)
	}
	args := tinyCIRL(3, "--data", "items.json,more.json", "--data-weights", "1,1")
	o := must(t, append(args, "--out", "whole")...)
	if !strings.Contains(o.err, "rows of 2 sources:\n  items.json: 11 rows, ") {
		t.Error(o.err)
	}
	interruptRepeatedly(t, args, "step 1/3")
	sameCIRLRun(t, "whole", "out")
	var summary struct{ Data string }
	if err := json.Unmarshal([]byte(read(t, "out/summary.json")), &summary); err != nil ||
		summary.Data != "items.json, more.json" {
		t.Error(summary, err)
	}
}

// TestMixFaults: each is one line, and nothing is written.
func TestMixFaults(t *testing.T) {
	workMix(t)
	write(t, "empty.jsonl", "")
	for _, c := range []struct {
		data, weights, want string
	}{
		{"chats.jsonl,texts.json", "1", "data.weights [1]: data.train names 2 sources: want 2 weights"},
		{"chats.jsonl", "2", "data.weights [2]: they mix several sources, and data.train names one; remove it"},
		{"chats.jsonl,texts.json", "1,0", `data.weights "1,0": want a list, each item a number above 0`},
		{"chats.jsonl,texts.json", "1,-2", `data.weights "1,-2": want a list, each item a number above 0`},
		{"chats.jsonl,texts.json", "1,NaN", `data.weights "1,NaN": want a list, each item a number above 0`},
		{"chats.jsonl,texts.json", "1,Inf", `data.weights "1,Inf": want a list, each item a number above 0`},
		{"chats.jsonl,texts.json", "1,x", `data.weights "1,x": want a list, each item a number above 0`},
		{"chats.jsonl,texts.json", "1e9,1", "data.weights: with 1 an epoch of 16 rows has none of texts.json: " +
			"want a larger weight"},
		{"chats.jsonl,chats.jsonl", "", `data.train "chats.jsonl": it is named twice: name it once; data.weights says`},
		{"chats.jsonl,*.jsonl", "", `data.train: chats.jsonl is in "chats.jsonl" and in "*.jsonl": want each file`},
		{"chats.jsonl,embedded", "", `data.train "embedded": the embedded data is not mixed with files`},
		{"chats.jsonl,,texts.json", "", `data.train "": want a name in printable letters, of a file or data set`},
		{"chats.jsonl,empty.jsonl", "", "empty.jsonl: no rows: the file is empty"},
		{"chats.jsonl,none.jsonl", "", "none.jsonl: no such file"},
	} {
		args := tinySFT(2, "--data", c.data)
		if c.weights != "" {
			args = append(args, "--data-weights", c.weights)
		}
		o := cli(t, args...)
		if o.code == 0 || !strings.Contains(o.last(), c.want) || exists("out") {
			t.Errorf("%s by %s: code %d, %q: want %q", c.data, c.weights, o.code, o.last(), c.want)
		}
	}
	o := cli(t, "mappo", "--mode", "online", "--data", "a.jsonl,b.jsonl", "--data-weights", "1,2")
	if !strings.Contains(o.err, "data.weights [1 2]: mode online answers each prompt once") {
		t.Error(o.err)
	}
	if o := cli(t, "federated", "simulate", "--workload", "mappo", "--set", "mappo.data.weights=1,2"); o.code == 0 ||
		!strings.Contains(o.err, "mappo.data.weights") {
		t.Error(o.err)
	}
}
