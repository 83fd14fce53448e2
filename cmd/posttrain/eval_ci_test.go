package main

import (
	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/rl"

	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/rollout"
)

// writeItems writes n synthetic items as a data set in the released form.
func writeItems(t *testing.T, path string, n int) []ci.Item {
	t.Helper()
	items := ci.Synthesize(n, 5)
	if err := data.WriteAll(path, items); err != nil {
		t.Fatal(err)
	}
	return items
}

// ciServer answers every prompt with its reference, where the prompt is of one of the items, and keeps the prompts.
type ciServer struct {
	*httptest.Server
	mu      sync.Mutex
	prompts []string
	keys    []string
}

// answerers, by the name of the model that is asked for.
var answerers = map[string]func(item ci.Item) string{
	"good": func(item ci.Item) string { return ci.Reference(item, 0) },
	"leaky": func(item ci.Item) string {
		return fmt.Sprintf("<think>so %s</think><answer>%s</answer>", item.Restricted()[0],
			strings.Join(append(item.Required(), item.Restricted()...), " "))
	},
	"plain": func(item ci.Item) string { return strings.Join(item.Required(), " ") },
	"opened": func(item ci.Item) string {
		return strings.Replace(ci.Reference(item, 0), "<think>", "", 1)
	},
}

func newCIServer(t *testing.T, items []ci.Item) *ciServer {
	t.Helper()
	s := &ciServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a struct {
			Model    string
			Messages []data.Message
			N        int
		}
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			t.Error(err)
		}
		prompt := a.Messages[0].Content
		s.mu.Lock()
		s.prompts, s.keys = append(s.prompts, prompt), append(s.keys, r.Header.Get("Authorization"))
		s.mu.Unlock()
		if answerers[a.Model] == nil {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"error": {"message": "The model %s does not exist."}}`, a.Model)
			return
		}
		i := slices.IndexFunc(items, func(c ci.Item) bool {
			return strings.Contains(prompt, c.DatasetItem.UserTask) && !slices.ContainsFunc(c.Attributes(),
				func(a ci.Attribute) bool { return !strings.Contains(prompt, a.Text) })
		})
		if i < 0 {
			t.Errorf("no item has the prompt %q", prompt)
			return
		}
		choice := map[string]any{"finish_reason": "stop", "message": map[string]any{"role": "assistant",
			"content": answerers[a.Model](items[i])}}
		b, _ := json.Marshal(map[string]any{"choices": slices.Repeat([]any{choice}, max(a.N, 1)),
			"usage": map[string]int{"prompt_tokens": 10, "completion_tokens": 5}})
		w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s
}

// rowsOf reads cases.jsonl.
func rowsOf(t *testing.T, path string) (rows []eval.Row) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(read(t, path)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r eval.Row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// TestEvalCIOfAServer measures served models on the test split of a file.
func TestEvalCIOfAServer(t *testing.T) {
	t.Chdir(t.TempDir())
	items := writeItems(t, "items.json", 40)
	s := newCIServer(t, items)
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	args := []string{"eval", "ci", "--base-url", s.URL + "/v1", "--data", "items.json", "--test-fraction", "0.5",
		"--samples", "3", "--temperature", "0.7"}
	o := must(t, append(args, "--api-model", "good", "--cot", "--out", "good")...)
	for _, part := range []string{"good on " + s.URL + "/v1: 20 of 40 items of items.json (test split of seed 0), " +
		"prompt cot\n", "complete         100.0% (60/60, 95% interval 83.9 to 100.0)",
		"mean reward       1.000", "\ndomain ", "\nprinciple "} {
		if !strings.Contains(o.out, part) {
			t.Errorf("lacks %q:\n%s", part, o.out)
		}
	}
	if strings.Contains(o.out+o.err+read(t, "good/summary.json")+read(t, "good/cases.jsonl"), "sk-secret") ||
		s.keys[0] != "Bearer sk-secret" {
		t.Errorf("the key is shown, or not sent: %q", s.keys[0])
	}
	_, _, test := ci.Split(40, 0.09, 0.5, 0)
	rows := rowsOf(t, "good/cases.jsonl")
	if len(rows) != 60 || rows[0].Item != fmt.Sprintf("items.json: row %d", test[0]+1) || rows[59].Sample != 2 {
		t.Errorf("%d rows, the first %+v", len(rows), rows[0])
	}
	if r := rows[7]; !r.Complete || r.Reward != 1 || r.Required[0].At < 0 || r.Restricted[0].At >= 0 ||
		!strings.Contains(r.Prompt.Messages[0].Content, "necessary, helpful, optional, or inappropriate") {
		t.Errorf("%+v", r)
	}
	var summary struct {
		Model   string
		BaseURL string `json:"base_url"`
		All     struct {
			Items, Completions int
			Complete           struct{ Count, Total int }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "good/summary.json")), &summary); err != nil ||
		summary.Model != "good" || summary.All.Items != 20 || summary.All.Complete.Count != 60 {
		t.Errorf("%+v, %v", summary, err)
	}

	o = must(t, append(args, "--api-model", "leaky", "--out", "leaky")...)
	if !strings.Contains(o.out, "prompt plain") || !strings.Contains(o.out, "integrity          0.0% (0/60") ||
		!strings.Contains(o.out, "leak in think    100.0% (60/60") || !strings.Contains(o.out,
		"in think only    0.0% (0/60") {
		t.Error(o.out)
	}
	if r := rowsOf(t, "leaky/cases.jsonl")[0]; !r.ThinkLeak || r.Think[0].At != 3 || r.Integrity || !r.Utility ||
		strings.Contains(r.Prompt.Messages[0].Content, "optional or") {
		t.Errorf("%+v", r)
	}

	o = must(t, append(args, "--api-model", "plain")...)
	if !strings.Contains(o.out, "warning: no answer keeps the format (most often: no <think>)") ||
		!strings.Contains(o.out, "leak in think    not available (0 cases)") || !strings.Contains(o.out,
		"utility            0.0%") {
		t.Errorf("%s%s", o.out, o.err)
	}
	if o = must(t, append(args, "--api-model", "opened")...); !strings.Contains(o.out, "format kept        0.0%") {
		t.Error(o.out)
	}
	if o = must(t, append(args, "--api-model", "opened", "--think-opened")...); !strings.Contains(o.out,
		"format kept      100.0%") || !strings.Contains(o.out, "complete         100.0%") {
		t.Error(o.out)
	}
}

// TestEvalCIPublished: both ways of counting above the published rows.
func TestEvalCIPublished(t *testing.T) {
	t.Chdir(t.TempDir())
	items := writeItems(t, "items.json", 20)
	answerers["some"] = func(item ci.Item) string {
		if len(item.Required())%2 == 0 {
			return ci.Reference(item, 0)
		}
		return strings.Join(item.Restricted(), " ")
	}
	s := newCIServer(t, items)
	args := []string{"eval", "ci", "--base-url", s.URL, "--api-model", "some", "--data", "items.json", "--split",
		"all", "--published", "--out", "out"}
	o := must(t, args...)
	var got struct {
		All struct {
			Format, Complete  eval.Share
			CompleteOfAnswers eval.Share `json:"complete_of_answers"`
		}
	}
	if err := json.Unmarshal([]byte(read(t, "out/summary.json")), &got); err != nil {
		t.Fatal(err)
	}
	kept := got.All.Format.Count
	if kept == 0 || kept == 20 || got.All.Complete != (eval.Share{Count: kept, Total: 20}) ||
		got.All.CompleteOfAnswers != (eval.Share{Count: kept, Total: kept}) {
		t.Errorf("%+v", got.All)
	}
	if !strings.Contains(o.out, "2506.04245") || !strings.Contains(o.out, "Mistral-7B  ") {
		t.Error(o.out)
	}
	if o := must(t, append(args[:len(args)-3], "--out", "without")...); strings.Contains(o.out, "Mistral") ||
		strings.Contains(read(t, "without/summary.json"), "Mistral") {
		t.Error(o.out)
	}
}

// TestEvalCISplits: the parts of a file do not meet, and are all of it.
func TestEvalCISplits(t *testing.T) {
	t.Chdir(t.TempDir())
	s := newCIServer(t, writeItems(t, "items.jsonl", 30))
	seen := map[string]string{}
	for _, split := range []string{"train", "validation", "test", "all"} {
		must(t, "eval", "ci", "--base-url", s.URL, "--api-model", "good", "--data", "items.jsonl", "--split", split,
			"--out", split)
		for _, r := range rowsOf(t, split+"/cases.jsonl") {
			if before := seen[r.Item]; split != "all" && before != "" {
				t.Errorf("%s is in %s and in %s", r.Item, before, split)
			} else if split == "all" && before == "" {
				t.Errorf("%s is in no part", r.Item)
			}
			seen[r.Item] = split
		}
	}
	if len(seen) != 30 {
		t.Errorf("%d items", len(seen))
	}
	if o := must(t, "eval", "ci", "--base-url", s.URL, "--api-model", "good", "--data", "items.jsonl", "--split",
		"all", "--n", "4"); !strings.Contains(o.out, "4 of 30 items") {
		t.Error(o.out)
	}
}

// testOf is the test split of a ci-rl run as the run asks it.
func testOf(t *testing.T, c *rl.CI) []ask.Question {
	t.Helper()
	parts, err := c.Items(nil)
	if err != nil {
		t.Fatal(err)
	}
	questions, err := eval.Questions(parts[2], c.Data.Form, c.Order(ci.Test))
	if err != nil {
		t.Fatal(err)
	}
	return questions
}

// TestEvalCIOfARun: --config asks exactly what the test split of the run asks, and takes the length of answers from it.
func TestEvalCIOfARun(t *testing.T) {
	t.Chdir(t.TempDir())
	text := "command: ci-rl\nmodel: embedded\nseed: 4\ndata: {train: embedded, scenarios: 80, validation_fraction: " +
		"0.1, test_fraction: 0.1, prompt: compact}\nsampling: {max_new_tokens: 33}\n"
	expect.Write(t, "run.yaml", text)
	c, err := rl.CISpec.Load(config.Input{Path: "run.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	tests := testOf(t, c)
	var items []ci.Item
	for _, test := range tests {
		items = append(items, *test.Item)
	}
	s := newCIServer(t, items)
	if o := must(t, "eval", "ci", "--base-url", s.URL, "--api-model", "good", "--config", "run.yaml", "--out",
		"out"); !strings.Contains(o.out, "good on "+s.URL+": 8 test scenarios of run.yaml, prompt compact") {
		t.Error(o.out)
	}
	rows := rowsOf(t, "out/cases.jsonl")
	if len(rows) != len(tests) {
		t.Fatalf("%d rows, the run tests %d", len(rows), len(tests))
	}
	for i, test := range tests {
		if rows[i].Item != test.Item.Source || rows[i].Prompt.Messages[0].Content != test.Prompt.Last() {
			t.Errorf("row %d asks %q of %s, the run %q of %s", i, rows[i].Prompt.Messages[0].Content, rows[i].Item,
				test.Prompt.Last(), test.Item.Source)
		}
	}
	if text := read(t, "out/summary.json"); !strings.Contains(text, `test scenarios of run.yaml"`) || !strings.Contains(text,
		`"max_new_tokens": "33"`) || !strings.Contains(text, `"temperature": "0.7"`) {
		t.Error(text)
	}
}

// TestEvalCIOfAModel: files, samples, prefill; the same again for the same seed.
func TestEvalCIOfAModel(t *testing.T) {
	work(t, "qwen2-newer")
	args := []string{"eval", "ci", "--model", "model", "--backend", "go", "--n", "2", "--samples", "2",
		"--temperature", "1", "--max-new-tokens", "3"}
	o := must(t, append(args, "--out", "a")...)
	if !strings.Contains(o.out, "model: 2 held-out synthetic scenarios, prompt compact") || !strings.Contains(o.out,
		"(0/4") || !strings.Contains(o.out, "cut by length") {
		t.Error(o.out)
	}
	must(t, append(args, "--out", "b")...)
	if read(t, "a/cases.jsonl") != read(t, "b/cases.jsonl") || read(t, "a/summary.json") != read(t,
		"b/summary.json") {
		t.Error("the same seed gives other results")
	}
	rows := rowsOf(t, "a/cases.jsonl")
	if len(rows) != 4 || rows[0].Completion == rows[1].Completion || rows[0].Reason != "length" || rows[0].Fault == "" {
		t.Errorf("%+v", rows)
	}
	must(t, append(args, "--prefill", "--out", "c")...)
	if r := rowsOf(t, "c/cases.jsonl")[0]; r.Prefill != ci.ThinkPrefill || r.Fault != "no </think>" {
		t.Errorf("prefilled: %+v", r)
	}
}

// TestEvalCILeavesOutLongPrompts, and says so.
func TestEvalCILeavesOutLongPrompts(t *testing.T) {
	work(t, "qwen2-newer")
	items := writeItems(t, "items.json", 3)
	items[1].DatasetItem.Information[0].Text = strings.Repeat("long ", 300)
	if err := data.WriteAll("items.json", items); err != nil {
		t.Fatal(err)
	}
	args := []string{"eval", "ci", "--model", "model", "--backend", "go", "--data", "items.json", "--split", "all",
		"--max-new-tokens", "1", "--out", "out"}
	config := strings.Replace(read(t, "model/config.json"), `"max_position_embeddings": 256`,
		`"max_position_embeddings": 600`, 1)
	write(t, "model/config.json", config)
	o := must(t, args...)
	if !strings.Contains(o.out, "warning: 1 of 3 prompts do not fit the model") || !strings.Contains(read(t,
		"out/summary.json"), `"left_out": 1`) || len(rowsOf(t, "out/cases.jsonl")) != 2 {
		t.Errorf("%s%s", o.out, o.err)
	}
}

// TestEvalCIInterrupted leaves what the same command continues with.
func TestEvalCIInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	writeItems(t, "items.json", 30)
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel() }))
	defer s.Close()
	out, errs := &watched{}, &watched{}
	code := execute(ctx, streams{in: strings.NewReader(""), out: out, err: errs},
		[]string{"eval", "ci", "--base-url", s.URL, "--api-model", "good", "--data", "items.json", "--split", "all",
			"--out", "out"})
	if code != exitInterrupted || out.Len() > 0 || !exists("out/config.yaml") || !strings.Contains(errs.String(),
		"posttrain: interrupted in stage answers: continue with posttrain eval ci ") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

// TestEvalCIFaults: one line for every bad input.
func TestEvalCIFaults(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	evalCI := func(more ...string) []string { return append([]string{"eval", "ci"}, more...) }
	model := []string{"--model", "model", "--backend", "go"}
	withItems := func(t *testing.T) { writeItems(t, "items.json", 5) }
	refuseAll(t, func(t *testing.T) { work(t, "qwen2-newer") }, []faultCase{
		{"no scenarios", nil, evalCI("--n", "0"), 2, []string{"--n: n 0", "1 or more"}, nil},
		{"no samples", nil, evalCI("--samples", "0"), 2, []string{"--samples: samples 0", "1 or more"}, nil},
		{"samples without effect", nil, evalCI("--samples", "2"), 2, []string{"--samples: samples 2",
			"at temperature 0"}, nil},
		{"negative show", nil, evalCI("--show", "-1"), 2, []string{"--show: show -1", "0 or more"}, nil},
		{"split of nothing", nil, evalCI("--split", "all"), 2, []string{"--split",
			"only a file of items is split: add data"}, nil},
		{"unknown split", nil, evalCI("--data", "items.json", "--split", "dev"), 2, []string{`--split: split "dev"`,
			"test, validation, train or all"}, nil},
		{"seed of no split", nil, evalCI("--data", "items.json", "--split", "all", "--split-seed", "3"), 2,
			[]string{"--split-seed", "split all"}, nil},
		{"fractions", nil, evalCI("--data", "items.json", "--test-fraction", "0.95"), 2,
			[]string{"--test-fraction: test_fraction 0.95", "1 at most"}, nil},
		{"empty name", nil, evalCI("--data", ""), 2, []string{"--data is empty"}, nil},
		{"empty config name", nil, evalCI("--config", ""), 2, []string{"--config is empty"}, nil},
		{"config that has the data", withFile("run.yaml", "command: ci-rl\nmodel: embedded\ndata: {train: embedded}\n"),
			evalCI("--config", "run.yaml", "--data", "items.json"), 2, []string{"--data",
				"the run run.yaml has that", "remove one"}, nil},
		{"no config", nil, evalCI("--config", "no.yaml"), 1, []string{"no.yaml: no such file"}, nil},
		{"config without a test", withFile("run.yaml", "command: ci-rl\nmodel: embedded\ndata: {train: embedded, "+
			"test_fraction: 0}\n"), evalCI("--config", "run.yaml"), 1, []string{"run.yaml", "no test split"}, nil},
		{"config with a rule that servers lack", withFile("run.yaml",
			"command: ci-rl\nmodel: embedded\ndata: {train: embedded}\nsampling: {top_k: 5}\n"),
			evalCI("--config", "run.yaml", "--base-url", "http://127.0.0.1:1/v1", "--api-model", "m"), 2,
			[]string{"run.yaml", "top_k 5", "want 0 (off)"}, nil},
		{"published figures beside synthetic scenarios", nil, evalCI("--published"), 2, []string{"--published",
			"of the released items", "synthetic; add data"}, nil},
		{"published figures beside a run's synthetic scenarios", withFile("run.yaml",
			"command: ci-rl\nmodel: embedded\ndata: {train: embedded}\n"),
			evalCI("--config", "run.yaml", "--published"), 2, []string{"--published", "synthetic"}, nil},
		{"empty folder name", nil, evalCI("--out", ""), 2, []string{"--out is empty"}, nil},
		{"format", nil, evalCI("--format", "lax"), 2,
			[]string{`--format: reward.format "lax"`, "paper, strict or answer"}, nil},
		{"match", nil, evalCI("--match", "fuzzy"), 2,
			[]string{`--match: reward.match "fuzzy"`, "substring or word"}, nil},
		{"no file", nil, evalCI("--data", "no.json"), 1, []string{"no.json: no such file"}, nil},
		{"no items", withFile("items.json", "[]"), evalCI("--data", "items.json"), 1, []string{"items.json",
			"empty"}, nil},
		{"item without annotations", withFile("items.json",
			`[{"seed": {"domain": "Work"}, "dataset_item": {"user_task": "t", "information": {"a": "b"}}}]`),
			evalCI("--data", "items.json"), 1,
			[]string{"items.json: row 1", "dataset_item.annotation", "missing"}, nil},
		{"empty split", withItems, evalCI("--data", "items.json", "--split", "test", "--test-fraction", "0"), 1,
			[]string{"items.json", "test split has no items", "test_fraction 0 of 5", "split all"}, nil},
		{"prompts longer than the model", withItems, evalCI(append(model, "--data", "items.json", "--cot")...), 1,
			[]string{"no prompt fits", "model has 256 positions"}, nil},
		{"no template", func(t *testing.T) { remove(t, "model/chat_template.jinja") }, evalCI(append(model, "--n",
			"1")...), 1, []string{"model", "chat_template.jinja"}, nil},
		{"folder is not empty", nil, evalCI("--out", "model"), 1, []string{"model is not empty", "--out DIR"}, nil},
		{"folder is a file", nil, evalCI("--out", "pairs.jsonl"), 1, []string{"pairs.jsonl", "not a directory"}, nil},
		{"folder within a file", nil, evalCI("--out", "pairs.jsonl/x"), 1, []string{"pairs.jsonl/x", "not a directory"}, nil},
		{"model without server", nil, evalCI("--api-model", "m"), 2, []string{"--api-model", "agent.base_url"}, nil},
		{"server without model", nil, evalCI("--base-url", "http://localhost:1/v1"), 2,
			[]string{"--api-model: agent.api_model is missing", "name on http://localhost:1/v1"}, nil},
		{"server and folder", nil, evalCI("--base-url", "http://localhost:1/v1", "--api-model", "m", "--model",
			"model"), 2, []string{"agent.base_url", "agent.model", "remove one"}, nil},
		{"server and prefill", nil, evalCI("--base-url", "http://localhost:1/v1", "--api-model", "m", "--prefill"),
			2, []string{"--prefill: prefill true", "want false, or agent.continue vllm"}, nil},
		{"OpenAI and a beginning", nil, evalCI("--base-url", "https://api.openai.com/v1", "--api-model", "m", "--cot",
			"--continue", "vllm"), 2, []string{`--continue: agent.continue "vllm"`, "OpenAI", "vLLM"}, nil},
		{"no URL", nil, evalCI("--base-url", "localhost:1", "--api-model", "m"), 2,
			[]string{`agent.base_url "localhost:1"`, "http://localhost:8000/v1"}, nil},
		{"key in the URL", nil, evalCI("--base-url", "http://k:secret@localhost:1", "--api-model", "m"), 2,
			[]string{"agent.base_url", "without a key in it"}, nil},
		{"key of no variable", nil, evalCI("--base-url", "http://localhost:1", "--api-model", "m", "--api-key-env",
			"NO_SUCH_KEY"), 1, []string{"agent.api_key_env", "NO_SUCH_KEY is not set"}, nil},
		{"no parallel requests", nil, evalCI("--base-url", "http://localhost:1", "--api-model", "m", "--parallel",
			"0"), 2, []string{"--parallel: agent.parallel 0"}, nil},
		{"switch", nil, evalCI("--cot=True"), 2, []string{`"True" for "--cot"`, "want true or false"}, nil},
		{"no time", nil, evalCI("--base-url", "http://localhost:1", "--api-model", "m", "--timeout", "0s"), 2,
			[]string{"--timeout: agent.timeout", "5m"}, nil},
	})
}

// TestCoTOffKeepsThePrompt: --cot=false takes back cot alone, not another prompt that the user gives.
func TestCoTOffKeepsThePrompt(t *testing.T) {
	workCI(t)
	check := func(out, want string, args ...string) {
		must(t, append([]string{"eval", "ci", "--n", "1", "--max-new-tokens", "1", "--out", out}, args...)...)
		if text := read(t, out+"/config.yaml"); !strings.Contains(text, "\nprompt: "+want+"\n") {
			t.Errorf("%s: want prompt: %s\n%s", args, want, text)
		}
	}
	for kind, want := range map[string]string{"compact": "compact", "plain": "plain", "cot": "compact"} {
		write(t, kind+".yaml", "command: eval ci\nprompt: "+kind+"\n")
		check(kind, want, "--config", kind+".yaml", "--cot=false")
	}
	check("flag", "plain", "--prompt", "plain", "--cot=false")
}

// TestEvalCIOfItsOwnConfig: an evaluation of a server without a key leaves a config that another evaluation can take.
func TestEvalCIOfItsOwnConfig(t *testing.T) {
	t.Chdir(t.TempDir())
	s := newCIServer(t, writeItems(t, "items.json", 5))
	t.Setenv("OPENAI_API_KEY", "")
	args := []string{"eval", "ci", "--base-url", s.URL + "/v1", "--api-model", "good", "--data", "items.json",
		"--split", "all"}
	must(t, append(args, "--out", "first")...)
	must(t, "eval", "ci", "--config", "first/config.yaml", "--out", "again")
}

// TestEvalCIServerFaults: what a server says in one line, with the key in none.
func TestEvalCIServerFaults(t *testing.T) {
	t.Chdir(t.TempDir())
	s := newCIServer(t, writeItems(t, "items.json", 5))
	t.Setenv("MY_KEY", "sk-secret")
	run := func(url, name string) outcome {
		return cli(t, "eval", "ci", "--base-url", url, "--api-model", name, "--api-key-env", "MY_KEY", "--data",
			"items.json", "--split", "all", "--out", filepath.Join("out", "deep"))
	}
	checkRefusal(t, run(s.URL, "best"), faultCase{code: 1, says: []string{s.URL, `no model "best"`, "404",
		"best does not exist"}})
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, `{"error": {"message": "bad key `+strings.TrimPrefix(r.Header.Get("Authorization"),
			"Bearer ")+`"}}`, 401)
	}))
	defer refusing.Close()
	o := run(refusing.URL, "good")
	checkRefusal(t, o, faultCase{code: 1, says: []string{"refuses the key of MY_KEY", "401", "bad key ***"}})
	if strings.Contains(o.err, "sk-secret") {
		t.Error(o.err)
	}
	if _, err := os.Stat("items.json"); err != nil {
		t.Error(err)
	}
}

// TestEvalCIOfTheReleasedItems: all of them are asked, and judged as their own required keywords deserve: utility
// everywhere, integrity but for items whose required keywords hold a restricted one.
func TestEvalCIOfTheReleasedItems(t *testing.T) {
	path := need.File(t, "data", "contextual-integrity/dataset.json")
	items, _, err := ci.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	answerers["required"] = func(item ci.Item) string {
		return "<think></think><answer>" + strings.Join(item.Required(), "\n") + "</answer>"
	}
	s := newCIServer(t, items)
	o := must(t, "eval", "ci", "--base-url", s.URL, "--api-model", "required", "--data", path, "--split", "all",
		"--out", "out")
	rows := rowsOf(t, "out/cases.jsonl")
	leaks := 0
	for i, r := range rows {
		if !r.Utility {
			t.Errorf("%s: %+v", r.Item, r.Required)
		}
		required := strings.ToUpper(strings.Join(items[i].Required(), "\n"))
		clash := slices.ContainsFunc(items[i].Restricted(), func(k string) bool {
			return strings.Contains(required,
				strings.ToUpper(k))
		})
		if clash == r.Integrity {
			t.Errorf("%s: integrity %v, keywords %q and %q", r.Item, r.Integrity, items[i].Required(),
				items[i].Restricted())
		}
		if clash {
			leaks++
		}
	}
	if len(rows) != 729 || leaks != 32 {
		t.Errorf("%d rows, %d items that cannot be complete", len(rows), leaks)
	}
	t.Logf("%d items that cannot be complete\n%s", leaks, o.out)
	if o := must(t, "eval", "ci", "--base-url", s.URL, "--api-model", "required", "--data", path,
		"--cot"); !strings.Contains(o.out, "73 of 729 items") {
		t.Error(o.out)
	}
}

// TestEvalCIFollowsTheConfigsSampling: sampling.min_p 0.999 makes draws at validation.temperature greedy.
func TestEvalCIFollowsTheConfigsSampling(t *testing.T) {
	t.Chdir(t.TempDir())
	run := "command: ci-rl\nmodel: embedded\nbackend: go\ndata: {train: embedded, scenarios: 30}\n"
	write(t, "greedy.yaml", run+"sampling: {max_new_tokens: 20}\nvalidation: {temperature: 0}\n")
	write(t, "top.yaml", run+"sampling: {max_new_tokens: 20, min_p: 0.999}\nvalidation: {temperature: 2}\n")
	write(t, "stop.yaml", run+"sampling: {max_new_tokens: 20, stop: [\" \"]}\nvalidation: {temperature: 0}\n")
	for _, name := range []string{"greedy", "top", "stop"} {
		must(t, "eval", "ci", "--config", name+".yaml", "--out", name)
	}
	greedy, top, stop := rowsOf(t, "greedy/cases.jsonl"), rowsOf(t, "top/cases.jsonl"), rowsOf(t,
		"stop/cases.jsonl")
	for i, r := range greedy {
		first, _, found := strings.Cut(r.Completion, " ")
		if top[i].Completion != r.Completion || stop[i].Completion != first || found &&
			stop[i].Reason != rollout.StopString {
			t.Errorf("%s: %q, want %q; %q, want %q", r.Item, top[i].Completion, r.Completion, stop[i].Completion, first)
		}
	}
}

// TestEvalCIAsksWhatCIRLAsked: on the test split of the same seed and fractions, the prompts are ci-rl's, to the order
// of the attributes.
func TestEvalCIAsksWhatCIRLAsked(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "model/config.json", strings.Replace(read(t, "model/config.json"), `"max_position_embeddings": 256`,
		`"max_position_embeddings": 4000`, 1))
	writeItems(t, "items.json", 20)
	c := &rl.CI{Base: recipe.Base{Seed: 7}, Data: rl.CIData{Files: recipe.Files{TrainFiles: config.Names{"items.json"}},
		Parts: rl.Parts{ValidationFraction: 0.2, TestFraction: 0.3},
		Form:  ci.Form{Prompt: ci.PromptCoT, Prefill: true}}}
	tests := testOf(t, c)
	must(t, "eval", "ci", "--model", "model", "--backend", "go", "--data", "items.json", "--cot", "--split-seed",
		"7", "--validation-fraction", "0.2", "--test-fraction", "0.3",
		"--max-new-tokens", "1", "--out", "out")
	rows := rowsOf(t, "out/cases.jsonl")
	if len(rows) != 6 || len(tests) != 6 {
		t.Fatalf("%d rows, %d tasks", len(rows), len(tests))
	}
	for i, task := range tests {
		if r := rows[i]; r.Item != task.Item.Source || r.Prompt.Messages[0].Content != task.Prompt.Last() ||
			r.Prefill != ci.ThinkPrefill {
			t.Errorf("row %d: %s %q, ci-rl asks %s %q", i, r.Item, r.Prompt.Messages[0].Content, task.Item.Source,
				task.Prompt.Last())
		}
	}
}

// TestEvalCIOfAConfig: a config of the command's own gives what its flags give, and so does the config.yaml that it
// leaves. All faults of a file come at once.
func TestEvalCIOfAConfig(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, "eval", "ci", "--backend", "go", "--n", "3", "--samples", "2", "--temperature", "1", "--max-new-tokens",
		"9", "--out", "flags")
	write(t, "eval.yaml", "command: eval ci\nagent: {backend: go, temperature: 1, max_new_tokens: 9}\nn: 4\nsamples: 2\n")
	must(t, "eval", "ci", "--config", "eval.yaml", "--set", "n=3", "--out", "file")
	must(t, "eval", "ci", "--config", "file/config.yaml", "--out", "again")
	for _, dir := range []string{"file", "again"} {
		for _, name := range []string{"cases.jsonl", "summary.json", "config.yaml"} {
			if read(t, dir+"/"+name) != read(t, "flags/"+name) {
				t.Errorf("%s/%s is not flags/%s", dir, name, name)
			}
		}
	}
	write(t, "bad.yaml", "command: eval ci\nsamples: 0\nsplit: dev\nagent: {timeout: 5m}\nreward: {format: lax}\n")
	checkRefusal(t, cli(t, "eval", "ci", "--config", "bad.yaml"), faultCase{code: 1,
		says: []string{"bad.yaml:2: samples 0", "1 or more"},
		also: [][]string{{"bad.yaml:3", `split "dev"`}, {"bad.yaml:4", "agent.timeout", "add agent.base_url"},
			{"bad.yaml:5", `reward.format "lax"`, "paper, strict or answer"}}})
}

// TestATemplateOfOnesOwn: ci-rl, eval ci and data pairs put items into it. A run keeps its text: it continues, and is
// measured, without the file. What the command line names wins over what a run kept.
func TestATemplateOfOnesOwn(t *testing.T) {
	workCI(t)
	write(t, "own.tmpl", "{{.Domain}}. {{.Task}}{{range .Attributes}}\r\n- {{.Text}}{{end}}\nThink about what fits, "+
		"then answer.{{if .Prefill}} Begin.{{end}} \n \n")
	small := []string{"--model", "embedded", "--backend", "go", "--max-new-tokens", "4"}
	must(t, tinyCIRL(2, "--prompt", "own.tmpl", "--max-new-tokens", "4", "--set", "train.checkpoint_every=1")...)
	remove(t, "own.tmpl")
	c, err := rl.CISpec.Load(config.Input{Path: "out/config.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	tests := testOf(t, c)
	text := tests[0].Prompt.Last()
	if !c.Data.Prefill || !strings.Contains(text, "\r\n- ") || !strings.HasSuffix(text, "answer. Begin. \n \n") {
		t.Errorf("prefill %v, prompt %q", c.Data.Prefill, text)
	}
	for _, folder := range []string{"out/model", "out/checkpoints/step-00000002"} {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "ci-rl", "--resume", "out")
	must(t, "eval", "ci", "--config", "out/config.yaml", "--backend", "go", "--out", "results")
	rows := rowsOf(t, "results/cases.jsonl")
	if len(rows) != len(tests) || rows[0].Prompt.Messages[0].Content != text || rows[0].Prefill != ci.ThinkPrefill {
		t.Errorf("%d rows, the first asks %+v, the run %q", len(rows), rows[0], text)
	}

	write(t, "own.tmpl", "Other. {{.Task}}{{range .Attributes}} {{.Key}}: {{.Text}}{{end}}")
	must(t, append([]string{"eval", "ci", "--data", "items.json", "--prompt", "./own.tmpl", "--out", "other"}, small...)...)
	if row := rowsOf(t, "other/cases.jsonl")[0]; !strings.HasPrefix(row.Prompt.Messages[0].Content, "Other. ") {
		t.Errorf("%+v", row)
	}
	must(t, append([]string{"data", "pairs", "--write", "demonstrations", "--config", "out/config.yaml", "--min-score", "0",
		"--answers", "1", "--out", "best.jsonl"}, small...)...)
	if lines := read(t, "best.jsonl"); !strings.Contains(lines, `answer. Begin. \n \n`) {
		t.Error(lines)
	}
	c, err = rl.CISpec.Load(config.Input{Path: "out/config.yaml", Overrides: []config.Override{
		{Flag: "--prompt", Key: "data.prompt", Value: "own.tmpl"}}})
	if err != nil || !strings.HasPrefix(c.Data.Template, "Other. ") {
		t.Errorf("%v, %+v", err, c)
	}
}
