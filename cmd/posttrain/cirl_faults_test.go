package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/testkit"
)

// writeScenarios writes n changed scenarios as items.json.
func writeScenarios(n int, change func(items []ci.Item)) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		items := ci.Synthesize(n, 5)
		if change != nil {
			change(items)
		}
		if err := data.WriteAll("items.json", items); err != nil {
			t.Fatal(err)
		}
	}
}

// withTemplate writes own.tmpl.
func withTemplate(text string) func(t *testing.T) {
	return func(t *testing.T) { write(t, "own.tmpl", text) }
}

// withoutAnnotation writes items the second of which has no annotation.
func withoutAnnotation(t *testing.T) {
	t.Helper()
	var rows []map[string]any
	if err := json.Unmarshal([]byte(read(t, "items.json")), &rows); err != nil {
		t.Fatal(err)
	}
	delete(rows[1]["dataset_item"].(map[string]any), "annotation")
	b, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	write(t, "items.json", string(b))
}

// ciModel puts testkit.CIModel into the folder model.
func ciModel(t *testing.T) {
	t.Helper()
	if err := os.CopyFS("model", os.DirFS(testkit.CIModel())); err != nil {
		t.Fatal(err)
	}
}

// cirlFaults are what must be refused before anything is trained or written.
var cirlFaults = []faultCase{
	// configs and flags
	{"group of one", nil, tinyCIRL(2, "--group-size", "1"), 2, []string{"--group-size", "grpo.group_size 1",
		"2 or more"}, nil},
	{"prompts that the updates do not divide", nil, tinyCIRL(2, "--prompts", "3"), 2, []string{"--set",
		"grpo.updates_per_rollout 2", "divisor", "3"}, nil},
	{"option without KL", nil, tinyCIRL(2, "--kl", "none", "--kl-coef", "0.5"), 2, []string{"--kl-coef", "kl none",
		"remove it"}, nil},
	{"constant length without its aggregation", nil, tinyCIRL(2, "--set", "grpo.norm_length=9"), 2, []string{"--set",
		"norm_length 9", "seq-mean-token-sum-norm"}, nil},
	{"adapter on servers", nil, tinyCIRL(2, "--lora-rank", "2", "--set", "rollout.engine=sglang", "--set",
		"rollout.urls=[http://127.0.0.1:1]"), 2, []string{"rollout.engine sglang", "an adapter is trained"}, nil},
	{"few bits beside servers", nil, tinyCIRL(2, "--lora-rank", "2", "--quantize", "nf4", "--set",
		"rollout.engine=vllm", "--set", "rollout.urls=[http://127.0.0.1:1]"), 2, []string{"--quantize",
		"quantize nf4: the servers of rollout.urls draw with whole weights"}, nil},
	{"cold draws", nil, tinyCIRL(2, "--temperature", "0"), 2, []string{"--temperature",
		"all completions of a prompt would be the same"}, nil},
	{"no such prompt", nil, tinyCIRL(2, "--prompt", "short"), 2, []string{"--prompt", `"short"`,
		"compact, plain, cot, released, answer or a file"}, nil},
	{"a template with a field that no item has", withTemplate("{{.Task}}\n{{range .Attributes}}{{.Text}}{{end}}" +
		"{{.Recipent}}"), tinyCIRL(2, "--prompt", "own.tmpl"), 2, []string{"--prompt", "own.tmpl:2",
		"an item has no field .Recipent: want .Scenario, ", ".Recipient", ".Key, .Text"}, nil},
	{"a template without the task", withTemplate("{{range .Attributes}}{{.Text}}{{end}}"), tinyCIRL(2, "--prompt",
		"own.tmpl"), 2, []string{"own.tmpl", "the prompt lacks the task: want {{.Task}}"}, nil},
	{"a template that a config cannot keep", withTemplate("{{.Task}}{{range .Attributes}}{{.Text}}{{end}}" +
		strings.Repeat("[", 100)), tinyCIRL(2, "--prompt", "own.tmpl"), 2, []string{"own.tmpl", "nests"}, nil},
	{"no such template", nil, tinyCIRL(2, "--prompt", "gone.tmpl"), 2, []string{"--prompt", "gone.tmpl: no such file",
		"a file with a template"}, nil},
	{"a template beside a form", nil, tinyCIRL(2, "--prompt", "cot", "--set", "data.template=x"), 2, []string{
		"--prompt", "prompt cot has its own words", "remove one"}, nil},
	{"thoughts that the prompt does not ask for", nil, tinyCIRL(2, "--prompt", "answer", "--format", "strict"), 2, []string{
		"--format", "reward.format strict: data.prompt answer asks for no thoughts"}, nil},
	{"prefilled answer", nil, tinyCIRL(2, "--prompt", "answer", "--set", "data.prefill=true"), 2, []string{"--set",
		"data.prefill true: data.prompt answer asks for no thoughts"}, nil},
	{"prefilled miniature", nil, tinyCIRL(2, "--set", "data.prefill=true"), 2, []string{"--set", "data.prefill true",
		"compact"}, nil},
	{"everything held out", nil, tinyCIRL(2, "--set", "data.validation_fraction=0.6", "--set",
		"data.test_fraction=0.4"), 2,
		[]string{"data.test_fraction 0.4", "nothing is left to train on", "below 1"}, nil},
	{"number of items in a file", nil, tinyCIRL(2, "--set", "data.scenarios=100"), 2, []string{"data.scenarios 100",
		"items.json", "only embedded"}, nil},
	{"key of another command", nil, tinyCIRL(2, "--set", "train.batch_size=8"), 2, []string{"--set",
		"train.batch_size", "posttrain mappo", "posttrain sft"}, nil},
	{"flag of another command", nil, []string{"ci-rl", "--prior", "none"}, 2, []string{"--prior", "posttrain mappo",
		"posttrain ci-rl"}, nil},
	{"config of another command", withFile("bad.yaml", "command: mappo\n"), []string{"ci-rl", "--config",
		"bad.yaml"}, 1, []string{"bad.yaml:1", "posttrain mappo", "not ci-rl"}, nil},
	{"several faults", withFile("bad.yaml", "command: ci-rl\nmodel: embedded\ndata:\n  train: items.json\n  "+
		"validation_fraction: 2\ngrpo:\n  kl: k4\n"), []string{"ci-rl", "--config", "bad.yaml"}, 1,
		[]string{"bad.yaml:5", "data.validation_fraction 2", "below 1"}, [][]string{{"bad.yaml:7", `grpo.kl "k4"`,
			"none, k1, k2 or k3"}}},
	{"bad config to explain", withFile("bad.yaml",
		"command: ci-rl\nmodel: m\ndata: {train: d.json}\ngrpo: {std: yes}\n"), []string{"ci-rl", "--explain",
		"--config", "bad.yaml"}, 1, []string{"bad.yaml:4", `grpo.std "yes"`, "sample"}, nil},

	// data
	{"no file", nil, tinyCIRL(2, "--data", "no.json"), 1, []string{"no.json: no such file"}, nil},
	{"file of an unknown kind", withFile("items.txt", "a,b\n"), tinyCIRL(2, "--data", "items.txt"), 1,
		[]string{"items.txt", `".txt"`, ".jsonl, .json, .parquet, .csv or .tsv"}, nil},
	{"empty file", withFile("items.json", "[]"), tinyCIRL(2), 1, []string{"items.json", "empty"}, nil},
	{"item without annotations", withoutAnnotation, tinyCIRL(2), 1, []string{"items.json", "row 2", "annotation"}, nil},
	{"pairs for items", func(t *testing.T) { write(t, "items.jsonl", pairLines(3, true)) }, tinyCIRL(2, "--data",
		"items.jsonl"), 1, []string{"items.jsonl:1", "seed", "dataset_item"}, nil},
	{"empty split", writeScenarios(2, nil), tinyCIRL(2), 1, []string{"items.json", "data.validation_fraction 0.09",
		"data.test_fraction 0.1", "of 2 items", "at least one of each"}, nil},
	{"more prompts than items", nil, tinyCIRL(2, "--prompts", "40"), 1, []string{"grpo.prompts_per_step 40",
		"20 prompts to train on"}, nil},

	// what the model can take
	{"prompts longer than the limit", nil, tinyCIRL(2, "--set", "data.max_prompt_tokens=20"), 1,
		[]string{"items.json", "at most 20 tokens", "leave 0 to train on", "24 were dropped",
			"data.max_prompt_tokens 20"}, nil},
	{"prompts longer than the context", writeScenarios(24, func(items []ci.Item) {
		for i := range items {
			items[i].DatasetItem.UserTask += strings.Repeat(" and more of it", 400)
		}
	}), tinyCIRL(2, "--set", "data.max_prompt_tokens=0"), 1, []string{"items.json", "leave 0 to train on",
		"24 were dropped", "the model takes 512"}, nil},
	{"completions longer than the context", nil, tinyCIRL(2, "--max-new-tokens", "2048"), 1,
		[]string{"sampling.max_new_tokens 2048", "512 positions", "items.json", "want at most"}, nil},
	{"no chat template", func(t *testing.T) {
		ciModel(t)
		var c map[string]any
		if err := json.Unmarshal([]byte(read(t, "model/tokenizer_config.json")), &c); err != nil {
			t.Fatal(err)
		}
		delete(c, "chat_template")
		write(t, "model/tokenizer_config.json", jsonLine(c))
	}, tinyCIRL(2, "--model", "model"), 1, []string{"items.json", "conversation", "model", "chat"}, nil},
	{"bfloat16 on a CPU engine", nil, tinyCIRL(2, "--set", "train.dtype=bfloat16"), 2,
		[]string{"train.dtype bfloat16", "backend go", "xla"}, nil},

	// adapters
	{"targets that match nothing", nil, tinyCIRL(2, "--lora-rank", "2", "--set", "lora.targets=[q_porj]"), 1,
		[]string{`lora.targets "q_porj" matches no module`, "want some of self_attn.q_proj"}, nil},
	{"adapter of another base", func(t *testing.T) {
		makeRandomModel(t)
		writeAdapter(t, "random", "adapter")
	}, tinyCIRL(2, "--adapter", "adapter"), 1, []string{"adapter/adapter_model.safetensors",
		"the adapter was trained on other weights than the model's"}, nil},
	{"adapter of another rank", func(t *testing.T) {
		ciModel(t)
		writeAdapter(t, "model", "adapter")
		text := read(t, "adapter/adapter_config.json")
		write(t, "adapter/adapter_config.json", strings.Replace(text, `"r": 2`, `"r": 3`, 1))
	}, tinyCIRL(2, "--adapter", "adapter"), 1, []string{"adapter/adapter_model.safetensors", "want [3 ",
		"r 3 in adapter_config.json"}, nil},

	// run folders
	{"folder in use", func(t *testing.T) {
		if err := os.Mkdir("out", 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, "out/thesis.tex", "")
	}, tinyCIRL(1), 1, []string{"out", "not empty", "thesis.tex", "--out"}, nil},
	{"resume of no run", nil, []string{"ci-rl", "--resume", "nowhere"}, 1, []string{"--resume nowhere",
		"config.yaml", "runs/ci-rl-"}, nil},
}

// TestCIRLFaults: every bad input gives a line that names the place, what was found and what is accepted, and leaves
// nothing.
func TestCIRLFaults(t *testing.T) {
	refuseAll(t, workCI, cirlFaults)
}

// makeRandomModel puts a model of random weights with CIModel's tokenizer into the folder random: it never writes a
// tag.
func makeRandomModel(t *testing.T) {
	t.Helper()
	ciModel(t)
	must(t, "model", "init", "--like", "model", "--tokenizer", "model", "--out", "random")
}

// TestModelWithoutTheFormat: after a few steps without one readable answer the run stops and shows what the answers
// look like; the first step warns that every completion was cut.
func TestModelWithoutTheFormat(t *testing.T) {
	workCI(t)
	makeRandomModel(t)
	args := tinyCIRL(9, "--model", "random", "--prompt", "compact", "--max-new-tokens", "4", "--kl", "none", "--set",
		"validation.every=0", "--set", "grpo.updates_per_rollout=1")
	o := cli(t, args...)
	checkRefusal(t, o, faultCase{code: 1, says: []string{"step 5", "all completions of 5 steps broke the format",
		`begins "`, "no <think>", "were cut at 4 tokens", "sampling.max_new_tokens", "posttrain sft"}})
	if !strings.Contains(o.err, "warning: step 1: 100% of the completions were cut at sampling.max_new_tokens 4") {
		t.Errorf("nothing says that all were cut:\n%s", o.err)
	}
	if exists("out/model") || exists("out/summary.txt") {
		t.Error("a failed run has a model or a summary")
	}
}

// TestCIRLNaN: a rate that explodes names the step and the last good checkpoint, which is not the one with the weights
// that gave it.
func TestCIRLNaN(t *testing.T) {
	workCI(t)
	o := cli(t, tinyCIRL(6, "--set", "train.learning_rate=1e30", "--set", "validation.every=0", "--set",
		"grpo.updates_per_rollout=1", "--set", "train.warmup_steps=0")...)
	checkRefusal(t, o, faultCase{code: 1, says: []string{"step 2", "NaN",
		"the best weights are out/checkpoints/best-00000000"}})
}

// TestResumeOfAChangedCIRL: config, items and engine belong to the run.
func TestResumeOfAChangedCIRL(t *testing.T) {
	workCI(t)
	must(t, tinyCIRL(1, "--max-new-tokens", "16")...)
	checkRefusal(t, cli(t, "ci-rl", "--resume", "out", "--group-size", "8"), faultCase{code: 1,
		says: []string{"--resume out", "grpo.group_size: 4, now 8", "--out"}})
	checkRefusal(t, cli(t, "mappo", "--resume", "out"), faultCase{code: 1, says: []string{"out/config.yaml:1",
		"posttrain ci-rl", "not mappo"}})
	items, _, err := ci.Read("items.json")
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		items[i].DatasetItem.UserTask = fmt.Sprintf("%s (%d)", items[i].DatasetItem.UserTask, i)
	}
	if err := data.WriteAll("items.json", items); err != nil {
		t.Fatal(err)
	}
	checkRefusal(t, cli(t, "ci-rl", "--resume", "out"), faultCase{code: 1, says: []string{"out/test-before.jsonl",
		"test data", "start a new run with --out"}})
	// the prompts stay, a keyword changes: what is trained on is another thing
	writeScenarios(24, func(items []ci.Item) {
		for i := range items {
			items[i].DatasetItem.Annotation.Allowed = append(items[i].DatasetItem.Annotation.Allowed,
				ci.Keyword{Key: "X", Words: []string{"x"}})
		}
	})(t)
	checkRefusal(t, cli(t, "ci-rl", "--resume", "out"), faultCase{code: 1, says: []string{"data",
		"has changed since the run was started", "start a new run with --out"}})
}
