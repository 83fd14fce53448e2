package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/recipe/rl"
)

// ciLine is a scenario in the release's shape, with a value that is a list and a restricted keyword inside a required
// one.
const ciLine = `{"seed":{"scenario":"email","domain":"Work","user_intention":"ask","sender":"user",` +
	`"recipient":"boss","data_subject":"user","transmission_principle":"Consent"},` +
	`"dataset_item":{"user_task":"Ask for a day off","information":{"Name":"Ann Lee","Chats":["hi","bye"],` +
	`"Bag":"red"},"annotation":{"allowed":{"Name":"Ann Lee"},"disallowed":{"Chats":"bye","Name":"Lee"}}}}` + "\n"

func withItems(t *testing.T) { write(t, "items.jsonl", strings.Repeat(ciLine, 4)) }

// TestDataFaults: bad input to data best, check and convert gives one line, and leaves nothing behind.
func TestDataFaults(t *testing.T) {
	best := func(more ...string) []string {
		return append([]string{"data", "pairs", "--write", "demonstrations", "--model", "model", "--backend", "go", "--n", "2", "--answers", "2",
			"--max-new-tokens", "2", "--out", "x.jsonl"}, more...)
	}
	refuseAll(t, func(t *testing.T) { work(t, "qwen2-newer") }, []faultCase{
		{"best without out", nil, []string{"data", "pairs", "--write", "demonstrations"}, 2, []string{"--out", "out is missing",
			".jsonl or .json"}, nil},
		{"best into another kind of file", nil, best("--out", "x.csv"), 2, []string{"--out", "x.csv",
			".jsonl or .json"}, nil},
		{"pairs into a file without kind", nil, []string{"data", "pairs", "--out", "pairs"}, 2,
			[]string{`--out: out "pairs"`, ".jsonl"}, nil},
		{"best into no folder", nil, best("--out", "no/x.jsonl"), 2, []string{`--out: out "no/x.jsonl"`,
			"no folder no"}, nil},
		{"best of too much", nil, best("--min-score", "1.5"), 2, []string{"--min-score: min_score 1.5",
			"from 0 to 1"}, nil},
		{"best of no number", nil, best("--min-score", "NaN"), 2, []string{"--min-score: min_score", "NaN",
			"from 0 to 1"}, nil},
		{"best keeps none", nil, best("--most", "-1"), 2, []string{"--most: most -1", "0"}, nil},
		{"best by templates of a model", nil, []string{"data", "pairs", "--write", "demonstrations", "--templates", "--answers", "2", "--out",
			"x.jsonl"}, 2, []string{"--answers: answers 2", "no model is asked", "remove one"}, nil},
		{"best of no answers", nil, best("--answers", "0"), 2, []string{"--answers: answers 0", "1 or more"}, nil},
		{"best of no scenarios", nil, best("--n", "0"), 2, []string{"--n: n 0", "1 or more"}, nil},
		{"best of an unknown format", nil, best("--set", "reward.ci.format=xml"), 2, []string{`reward.ci.format "xml"`,
			"paper, strict or answer"}, nil},
		{"best of an unknown match", nil, best("--set", "reward.ci.match=exact"), 2, []string{`reward.ci.match "exact"`,
			"substring or word"}, nil},
		{"best of a config without name", nil, []string{"data", "pairs", "--write", "demonstrations", "--config", "", "--out", "x.jsonl"}, 2,
			[]string{"--config is empty", "a config file"}, nil},
		{"best of no config", nil, []string{"data", "pairs", "--write", "demonstrations", "--config", "no.yaml", "--out", "x.jsonl"}, 1,
			[]string{"no.yaml: no such file"}, nil},
		{"best of another command's config", withConfig(mappoHead, ""), []string{"data", "pairs", "--write", "demonstrations", "--config",
			"bad.yaml", "--out", "x.jsonl"}, 1, []string{"bad.yaml:1", "posttrain mappo", "not data pairs"}, nil},
		{"best of a config and more", withFile("rl.yaml", "command: ci-rl\nmodel: embedded\ndata: {train: "+
			"embedded}\n"), best("--config", "rl.yaml"), 2, []string{"--n: n 2", "the run rl.yaml has that",
			"remove one"}, nil},
		{"best of an unknown model", nil, []string{"data", "pairs", "--write", "demonstrations", "--model", "nowhere", "--out", "x.jsonl"}, 1,
			[]string{"nowhere", "config.json"}, nil},

		{"check of no file", nil, []string{"data", "check", "no.jsonl"}, 1, []string{"no.jsonl: no such file"}, nil},
		{"check of nothing", nil, []string{"data", "check"}, 2, []string{"one data file or more", "found 0"}, nil},
		{"check of an unknown kind", nil, []string{"data", "check", "--kind", "sft", "pairs.jsonl"}, 2,
			[]string{`--kind "sft"`, "demonstrations, items, labelled or pairs"}, nil},
		{"check mends several", nil, []string{"data", "check", "--fix", "x.jsonl", "pairs.jsonl", "pairs.jsonl"}, 2,
			[]string{"--fix x.jsonl", "one file is written for one", "found 2"}, nil},
		{"check mends in place", nil, []string{"data", "check", "--fix", "./pairs.jsonl", "pairs.jsonl"}, 1,
			[]string{"are one file", "another name"}, nil},
		{"check for repetitions beyond all", nil, []string{"data", "check", "--near", "2", "pairs.jsonl"}, 2,
			[]string{"--near 2", "0 (no near-duplicates) to 1"}, nil},
		{"check of scores of no kind of file", nil, []string{"data", "check", "--kind", "demonstrations",
			"--score-columns", "a,b", "pairs.jsonl"}, 1, []string{"score columns a, b", "only preference pairs"}, nil},
		{"check of a folder", func(t *testing.T) { os.Mkdir("d.json", 0o777) }, []string{"data", "check", "d.json"},
			1, []string{"d.json", "folder"}, nil},
		{"check of an unknown kind of file", withFile("a.txt", "x"), []string{"data", "check", "a.txt"}, 1,
			[]string{"a.txt", `".txt"`, ".jsonl, .json, .parquet, .csv or .tsv"}, nil},
		{"check of unknown columns", withFile("a.jsonl", `{"question":"a"}`), []string{"data", "check", "a.jsonl"},
			1, []string{"a.jsonl:1", "found columns question", "seed and dataset_item", "chosen and rejected",
				"messages"}, nil},
		{"check of an empty file", withFile("a.json", "[]"), []string{"data", "check", "a.json"}, 1,
			[]string{"a.json", "empty"}, nil},
		{"check of broken parquet", withFile("a.parquet", "PAR1 and no more"), []string{"data", "check",
			"a.parquet"}, 1, []string{"a.parquet", "parquet"}, nil},
		{"check of an item without information", withFile("a.jsonl", strings.Replace(ciLine,
			`"information":{"Name":"Ann Lee","Chats":["hi","bye"],"Bag":"red"}`, `"information":null`, 1)),
			[]string{"data", "check", "a.jsonl"}, 1, []string{"a.jsonl: 1 of 1 rows have errors"}, nil},
		{"check of a file that ends early", withFile("a.json", `[{"prompt":"q","chosen":"a","rejected":"b"},{`),
			[]string{"data", "check", "a.json"}, 1, []string{"a.json: row 2: bad JSON: the file ends inside a value"}, nil},
		{"check scores of items", withItems, []string{"data", "check", "--score-columns", "a,b", "items.jsonl"}, 1,
			[]string{"score columns a, b", "only preference pairs"}, nil},
		{"check one score column", nil, []string{"data", "check", "--score-columns", "a", "pairs.jsonl"}, 1,
			[]string{"score_columns", "[a]", "two column names"}, nil},

		{"convert one file", nil, []string{"data", "convert", "pairs.jsonl"}, 2,
			[]string{"IN and OUT", "found 1"}, nil},
		{"convert to an unknown kind of file", nil, []string{"data", "convert", "pairs.jsonl", "pairs.csv"}, 1,
			[]string{"pairs.csv", `".csv"`, ".jsonl or .json"}, nil},
		{"convert to itself", nil, []string{"data", "convert", "pairs.jsonl", "./pairs.jsonl"}, 1,
			[]string{"pairs.jsonl", "one file", "another name"}, nil},
		{"convert to no folder", nil, []string{"data", "convert", "pairs.jsonl", "no/pairs.json"}, 1,
			[]string{"no/pairs.json", "no such file"}, nil},
		{"convert nothing", nil, []string{"data", "convert", "no.jsonl", "x.json"}, 1,
			[]string{"no.jsonl: no such file"}, nil},
	})
}

func TestDataConvertAndCheck(t *testing.T) {
	work(t, "qwen2-newer")
	withItems(t)
	for _, c := range [][3]string{
		{"items.jsonl", "items.json.gz", "items.json.gz: 4 contextual-integrity items\n"},
		{"items.json.gz", "items2.jsonl", "items2.jsonl: 4 contextual-integrity items\n"},
		{"pairs.jsonl", "pairs.json.gz", "pairs.json.gz: 12 preference pairs\n"},
		{"pairs.json.gz", "pairs2.jsonl", "pairs2.jsonl: 12 preference pairs\n"},
	} {
		if o := must(t, "data", "convert", c[0], c[1]); o.out != c[2] || !strings.Contains(o.err, " rows read") {
			t.Errorf("%s: %q, %q", c[1], o.out, o.err)
		}
	}
	if read(t, "pairs2.jsonl") == "" || read(t, "items2.jsonl") != strings.Repeat(strings.Replace(flat(t), "\n", "",
		1)+"\n", 4) {
		t.Errorf("after three conversions:\n%s", read(t, "items2.jsonl"))
	}
	want := `items.jsonl: 4 rows read, 4 kept
  contextual-integrity items
  scenarios: email 4
  domains: Work 4
  principles: Consent 4
  an item: 2.0 pieces of information in its prompt, 1.0 required and 2.0 restricted keywords
  error: 4: a restricted keyword is part of a required one: the full reward cannot be reached (inside)
    line 1: dataset_item.annotation.disallowed.Name: "Lee" is part of the required keyword "Ann Lee"
    line 2: dataset_item.annotation.disallowed.Name: "Lee" is part of the required keyword "Ann Lee"
    line 3: dataset_item.annotation.disallowed.Name: "Lee" is part of the required keyword "Ann Lee"
    in line 4
  warning: 3: the row is there already (duplicate)
    line 2: as line 1
    line 3: as line 1
    line 4: as line 1
  note: 4: information value is a list (flattened)
    line 1: dataset_item.information.Chats
    line 2: dataset_item.information.Chats
    line 3: dataset_item.information.Chats
    in line 4
  note: 4: a keyword, or the information that it is for, is no string: the released preprocessing leaves the item ` +
		`out, and so does items: released (released)
    in lines 1, 2, 3, 4
  note: 8 in 4 rows: a piece of information has several keywords or no keyword, or a keyword has no information (label)
    line 1: dataset_item.information.Name: it has 2 keywords: want one, on one side
    line 2: dataset_item.information.Name: it has 2 keywords: want one, on one side
    line 3: dataset_item.information.Name: it has 2 keywords: want one, on one side
    in line 4
`
	o := cli(t, "data", "check", "items.jsonl")
	if o.out != want || o.code != exitFailed || o.last() != "posttrain: items.jsonl: 4 of 4 rows have errors" {
		t.Errorf("%d, %s\n%s\nwant\n%s", o.code, o.err, o.out, want)
	}
	var result struct {
		Files []struct {
			Path, Kind string
			Findings   []struct {
				Severity, Rule string
				Count, Rows    int
			}
		}
		Errors int `json:"rows_with_errors"`
	}
	o = cli(t, "data", "check", "--json", "items.jsonl", "pairs.jsonl")
	if err := json.Unmarshal([]byte(o.out), &result); err != nil || o.code != exitFailed || result.Errors != 4 ||
		result.Files[0].Findings[0].Rule != "inside" || result.Files[1].Kind != "preference pairs" {
		t.Errorf("%d, %v: %s", o.code, err, o.out)
	}
	o = must(t, "data", "check", "--fix", "mended.jsonl", "pairs.jsonl")
	if !strings.HasSuffix(o.out, "mended.jsonl: 12 preference pairs, in the columns of data convert\n"+
		"  no row was left out\n") || read(t, "mended.jsonl") != read(t, "pairs2.jsonl") {
		t.Error(o.out)
	}
	o = must(t, "data", "check", "pairs.jsonl")
	if !strings.Contains(o.out, "12 scored (chosen_score, rejected_score)\n  preference pairs\n  prior: 12 of 12 ") {
		t.Errorf("%s", o.out)
	}
}

// flat is ciLine as conversions leave it.
func flat(t *testing.T) string {
	t.Helper()
	items, _, err := ci.Read("items.jsonl")
	if err == nil {
		err = data.WriteAll("flat.jsonl", items[:1])
	}
	if err != nil {
		t.Fatal(err)
	}
	return read(t, "flat.jsonl")
}

// TestDataBest: every answer of the embedded model that is good enough becomes a demonstration that posttrain sft
// takes; the same again gives the same file.
func TestDataBest(t *testing.T) {
	work(t, "qwen2-newer")
	args := []string{"data", "pairs", "--write", "demonstrations", "--backend", "go", "--n", "3", "--answers", "3", "--min-score", "0",
		"--max-new-tokens", "64", "--seed", "5"}
	o := must(t, append(args, "--out", "all.jsonl")...)
	if !strings.Contains(o.out, "9 of 9 answers have a score of 0 or more") || !strings.Contains(o.out,
		"to 3 of 3 prompts") {
		t.Errorf("%s", o.out)
	}
	must(t, append(args, "--out", "again.jsonl")...)
	if read(t, "all.jsonl") != read(t, "again.jsonl") {
		t.Error("the same seed gives other demonstrations")
	}
	demos, _, err := data.ReadDemonstrations("all.jsonl")
	if err != nil || len(demos) < 3 || len(demos) > 9 {
		t.Fatalf("%d demonstrations, %v", len(demos), err)
	}
	// The scenarios are those that a training run with this number and seed makes.
	items := ci.Synthesize(3, 5)
	if got := demos[0].Prompt.Messages; !strings.HasPrefix(got[0].Content,
		items[0].Seed.Domain+". "+items[0].DatasetItem.UserTask) {
		t.Errorf("first prompt %+v, want scenario %+v", got, items[0])
	}
	must(t, append(args, "--most", "1", "--out", "one.json")...)
	if one, _, err := data.ReadDemonstrations("one.json"); err != nil || len(one) != 3 {
		t.Errorf("--most 1: %d demonstrations, %v", len(one), err)
	}
	must(t, "sft", "--model", "embedded", "--data", "all.jsonl", "--backend", "go", "--set", "train.max_steps=1",
		"--set", "data.eval_fraction=0", "--out", "run")
}

// TestDataBestOfARun: with the config of a ci-rl run come its training scenarios, in the prompts that it trains with.
func TestDataBestOfARun(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "rl.yaml", "command: ci-rl\nmodel: embedded\nbackend: go\nseed: 9\ndata:\n  train: embedded\n  "+
		"scenarios: 6\n  prompt: compact\n  validation_fraction: 0.2\n  test_fraction: 0.2\nsampling:\n  "+
		"max_new_tokens: 8\ngrpo:\n  prompts_per_step: 4\n  updates_per_rollout: 1\n")
	must(t, "data", "pairs", "--write", "demonstrations", "--config", "rl.yaml", "--answers", "1", "--min-score", "0", "--out", "x.jsonl")
	demos, _, err := data.ReadDemonstrations("x.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	c, err := rl.CISpec.Load(config.Input{Path: "rl.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := c.Items(nil)
	if err != nil || len(parts[0]) != len(demos) {
		t.Fatalf("%d training items, %d demonstrations, %v", len(parts[0]), len(demos), err)
	}
	for i, item := range parts[0] {
		want := ci.Prompt(item, ci.PromptCompact, ci.Order(9, ci.Train, i))[0].Content
		if got := demos[i].Prompt.Messages[0].Content; got != want {
			t.Errorf("demonstration %d asks\n%s\nci-rl asks\n%s", i, got, want)
		}
	}
}

// TestReleaseThroughTheCommands converts and checks the real set.
func TestReleaseThroughTheCommands(t *testing.T) {
	path := need.File(t, "data", "contextual-integrity/dataset.json")
	t.Chdir(t.TempDir())
	must(t, "data", "convert", path, "items.jsonl")
	o := cli(t, "data", "check", "items.jsonl")
	for _, part := range []string{"729 rows read, 729 kept", "scenarios: email 500, chat messages 229",
		"principles: Confidentiality 428, Proportionality 201, Consent 100",
		"error: 35 in 32 rows: a restricted keyword is part of a required one"} {
		if !strings.Contains(o.out, part) {
			t.Errorf("%q is missing in\n%s", part, o.out)
		}
	}
}

// TestDataBestLeavesLongPromptsOut: and says how many.
func TestDataBestLeavesLongPromptsOut(t *testing.T) {
	work(t, "qwen2-newer")
	items := ci.Synthesize(6, 3)
	for i := range 3 {
		items[i].DatasetItem.UserTask = strings.Repeat("Write ", 600)
	}
	if err := data.WriteAll("items.json", items); err != nil {
		t.Fatal(err)
	}
	write(t, "rl.yaml", "command: ci-rl\nmodel: embedded\nbackend: go\ndata:\n  train: items.json\n  prompt: compact\n  "+
		"max_prompt_tokens: 0\n  validation_fraction: 0.1\n  test_fraction: 0.1\nsampling:\n  max_new_tokens: 4\n")
	o := must(t, "data", "pairs", "--write", "demonstrations", "--config", "rl.yaml", "--answers", "1", "--min-score", "0",
		"--out", "x.jsonl")
	if !strings.Contains(o.err, " prompts left out: they have no token, or more than ") {
		t.Errorf("%s\n%s", o.err, o.out)
	}
}

// TestDataBestInterrupted: Ctrl-C ends it with its own exit code and without a file.
func TestDataBestInterrupted(t *testing.T) {
	work(t, "qwen2-newer")
	o := cliUntil(t, "prompt ", "data", "pairs", "--write", "demonstrations", "--backend", "go", "--n", "200", "--max-new-tokens", "8", "--out",
		"x.jsonl")
	if o.code != exitInterrupted || !strings.HasPrefix(o.last(), "posttrain: interrupted") {
		t.Errorf("exit code %d: %s", o.code, o.err)
	}
	if _, err := os.Stat("x.jsonl"); err == nil {
		t.Error("half of the demonstrations were written")
	}
}

// TestPairsOfNothing: a model that says nothing gives no pair; its answers and scores stay for the next call.
func TestPairsOfNothing(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "rl.yaml", "command: ci-rl\nmodel: model\nbackend: go\ndata: {train: embedded, scenarios: 3, prompt: compact}\n"+
		"sampling: {max_new_tokens: 2}\n")
	o := cli(t, "data", "pairs", "--config", "rl.yaml", "--answers", "2", "--out", "x.jsonl")
	if last := o.last(); o.code != exitFailed || !strings.Contains(last, "no prompt of 1 gives a pair") ||
		!strings.Contains(last, "score the same") {
		t.Errorf("%d, %q", o.code, o.err)
	}
	if _, err := os.Stat("x.jsonl"); err == nil {
		t.Error("x.jsonl was written")
	}
}
