package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/model"
)

// allCommands are all that a user can run.
func allCommands() []*cobra.Command {
	var all []*cobra.Command
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if all = append(all, c); c.Hidden {
			return
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(streams{}))
	return all
}

// TestHelp: every command says what it is for, and shows an example that can be run.
func TestHelp(t *testing.T) {
	t.Chdir(root)
	t.Setenv("COLUMNS", "400")
	for _, c := range allCommands() {
		t.Run(c.CommandPath(), func(t *testing.T) {
			if c.Short == "" && c.Long == "" || c.Example == "" {
				t.Errorf("short help %q, example %q: want both", c.Short, c.Example)
			}
			o := must(t, append(strings.Fields(c.CommandPath())[1:], "--help", all)...)
			for _, part := range []string{"Usage:\n  " + c.CommandPath(), "Examples:\n" + c.Example, "--help"} {
				if !strings.Contains(o.out, part) {
					t.Errorf("help lacks %q:\n%s", part, o.out)
				}
			}
			for _, line := range commandLinesIn("example", "```\n"+c.Example+"\n```") {
				if err := runnable(t, line); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
		})
	}
}

// TestExplain prints the objective of every config in the repository, its numbers filled in.
func TestExplain(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "configs", "*.yaml"))
	if err != nil || len(paths) < 6 {
		t.Fatalf("%v, %v: want the repository's configs", paths, err)
	}
	want := map[string][]string{
		"ci-rl.yaml": {"GRPO", "clip(ρ, 0.8, 1.2)", "0.001·KL", "32 prompts a step, 16 completions each",
			"1 update a step on 512 completions each", "every 240 steps", "AdamW at 1e-06",
			"ρ is 1, and the clip never acts", "grpo.updates_per_rollout: 1 (released: 1, paper: 4)",
			"sampling.temperature: 1 (released: 1, paper: 0.7)", "whatever the options, not as in the release"},
		"ci-rl-paper.yaml": {"4 updates a step on 128 completions each", "temperature 0.7",
			"of each completion: exp of its tokens' summed log-ratios", "data.items: all (released: released, paper: all)"},
		"federated.yaml": {"AFedPG", "α = 0.2", "θ̃ = θ + ((1-α)/α)", "a delay above 32", "each agent sends 5128 bytes",
			"ends after 400 updates", "a factor of 2.21"},
		"federated-admm.yaml": {"FedNPG-ADMM", "(H_i + (0 + 0.1)·I)⁻¹", "sqrt(2·0.01/gᵀy), without a line search",
			"for 10 rounds", "each agent sends 10256 bytes and is sent 10256, a round"},
		"cpo.yaml": {"MaPPO-CPO", "0.2", "no reference model"},
		"ipo.yaml": {"MaPPO-IPO", "the model before training"},
		"mappo.yaml": {"MaPPO-DPO", "-log σ(0.1·A - Δr·0.1·B)", "0.693147 (ln 2)",
			"train.learning_rate: 0.0001 (paper: 5e-07)"},
		"mappo-paper-dpo.yaml":   {"MaPPO-DPO", "128 pairs", "AdamW at 5e-07"},
		"mappo-paper-ipo.yaml":   {"MaPPO-IPO", "128 pairs", "AdamW at 5e-07", "dtype bfloat16"},
		"mappo-paper-simpo.yaml": {"MaPPO-SimPO", "128 pairs", "AdamW at 5e-07", "no reference model", "- 1)"},
		"mappo-paper-cpo.yaml":   {"MaPPO-CPO", "128 pairs", "AdamW at 5e-07", "no reference model", "0.2/|yw|"},
		"mappo-paper-online.yaml": {"MaPPO-DPO", "128 pairs", "AdamW at 5e-07", "in 3 parts",
			"answers each prompt 8 times (temperature 1,", "the reward model scores the answers",
			"RLHFlow/UltraFeedback-preference-standard"},
		"dpo-paper.yaml":   {"objective: DPO", "128 pairs", "loss.prior: none (paper: mappo)\n"},
		"ipo-paper.yaml":   {"objective: IPO", "128 pairs", "loss.prior: none (paper: mappo)\n"},
		"simpo-paper.yaml": {"objective: SimPO", "128 pairs", "loss.prior: none (paper: mappo)\n"},
		"cpo-paper.yaml":   {"objective: CPO", "128 pairs", "loss.prior: none (paper: mappo)\n"},
		"kto.yaml":         {"objective: KTO", "(A - z)", "50 steps of 16 answers", "loss.prior: none"},
		"reward-model.yaml": {"-log σ(r(chosen) - r(rejected)) + 0.01·(r(chosen) + r(rejected))²",
			"head: a new one, unless the model is a reward model", "16 pairs"},
		"sft.yaml":   {"negative log-likelihood", "the completions' tokens"},
		"simpo.yaml": {"MaPPO-SimPO", "no reference model"},
	}
	for _, path := range paths {
		if filepath.Base(path) == "gate-norms.yaml" { // a policy, no command's config
			continue
		}
		text := expect.Bytes(t, path)
		if strings.Contains(string(text), "\ncommand: eval ") || strings.Contains(string(text), "\ncommand: data ") {
			continue
		}
		o := must(t, append(strings.Fields(config.CommandOf(text)), "--explain", "--config", path)...)
		if !strings.HasPrefix(o.out, "objective: ") || !strings.Contains(o.out, "\ntraining: ") || o.err != "" {
			t.Errorf("%s: %q, %q", path, o.out, o.err)
		}
		for _, part := range want[filepath.Base(path)] {
			if !strings.Contains(o.out, part) {
				t.Errorf("%s: lacks %q:\n%s", path, part, o.out)
			}
		}
	}
	paper := must(t, "mappo", "--explain", "--config", filepath.Join(root, "configs", "mappo-paper-dpo.yaml")).out
	if strings.Contains(paper, "train.learning_rate:") || strings.Contains(paper, "loss.beta:") {
		t.Errorf("the paper's config deviates from the paper:\n%s", paper)
	}
	online := must(t, "mappo", "--explain", "--config", filepath.Join(root, "configs", "mappo-paper-online.yaml")).out
	if !strings.Contains(online, "\nno option deviates from the paper's\n") ||
		!strings.Contains(online, "\nnot compared: the reward model (FsfairX)\n") {
		t.Errorf("the paper's online config:\n%s", online)
	}
	plain := must(t, "mappo", "--explain", "--prior", "none", "--set", "loss.beta=0.25").out
	if !strings.Contains(plain, "objective: DPO") || !strings.Contains(plain, "0.25") ||
		strings.Contains(plain, "Δr") || !strings.Contains(plain, "loss.beta: 0.25 (paper: 0.1)") {
		t.Errorf("flags and --set do not count:\n%s", plain)
	}
}

// TestModelInfo describes every tiny model, with or without its tokenizer.
func TestModelInfo(t *testing.T) {
	paths, err := filepath.Glob(fixture("*-*er"))
	if err != nil || len(paths) < 8 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		o := must(t, "model", "info", path)
		kind, _, _ := strings.Cut(filepath.Base(path), "-")
		kind = cmp.Or(map[string]string{"gemma3": "gemma3_text", "qwen3moe": "qwen3_moe"}[kind], kind)
		if !regexp.MustCompile(`^`+kind+`: [23] layers, hidden \d+, .*, vocabulary \d+`).MatchString(o.out) ||
			!regexp.MustCompile(`\n\d+ parameters, stored as (F32|F16|BF16) in \d+ bytes\n`).MatchString(o.out) {
			t.Errorf("%s", o.out)
		}
		for _, part := range []string{"\nmodel.embed_tokens.weight ", "\nmodel.layers.*.self_attn.o_proj.weight ",
			"\ntokenizer: ", "What fits here?", "This does."} {
			if !strings.Contains(o.out, part) {
				t.Errorf("%s: lacks %q:\n%s", path, part, o.out)
			}
		}
		if strings.Contains(o.out, "&{") || strings.Contains(o.out, "0x") {
			t.Errorf("%s: a struct is printed:\n%s", path, o.out)
		}
	}
	work(t, "qwen2-newer")
	remove(t, "model/chat_template.jinja")
	if o := must(t, "model", "info", "model"); !strings.HasSuffix(o.out,
		"\ntokenizer: 304 ids\nchat template: none\n") {
		t.Errorf("without a template: %s", o.out)
	}
	remove(t, "model/tokenizer.json")
	if o := must(t, "model", "info", "model"); !strings.HasSuffix(o.out,
		"\ntokenizer: none (no tokenizer.json)\n") {
		t.Errorf("without a tokenizer: %s", o.out)
	}
}

// TestModelInit makes a model like another, from its folder or its config.json, which loads, repeats by seed and
// trains.
func TestModelInit(t *testing.T) {
	work(t, "llama-older")
	o := must(t, "model", "init", "--like", "model/config.json", "--out", "a", "--dtype", "bfloat16")
	if !regexp.MustCompile(`^a: llama with \d+ parameters, random weights of seed 1\n$`).MatchString(o.out) {
		t.Errorf("printed %q", o.out)
	}
	if o := must(t, "model", "info", "a"); !strings.Contains(o.out, "stored as BF16") ||
		!strings.Contains(o.out, "tokenizer: none") {
		t.Errorf("info: %s", o.out)
	}
	must(t, "model", "init", "--like", "model", "--out", "b", "--tokenizer", "model")
	must(t, "model", "init", "--like", "model", "--out", "c", "--tokenizer", "model")
	must(t, "model", "init", "--like", "model", "--out", "d", "--tokenizer", "model", "--seed", "2")
	b, c, d := read(t, "b/model.safetensors"), read(t, "c/model.safetensors"), read(t, "d/model.safetensors")
	if b != c || b == d {
		t.Errorf("same seed, same weights: %v; other seed, other weights: %v", b == c, b != d)
	}
	like, err := model.Load("model")
	if err != nil {
		t.Fatal(err)
	}
	made, err := model.Load("b")
	if err != nil || len(made.Params) != len(like.Params) {
		t.Fatalf("%v: %d tensors, want %d", err, len(made.Params), len(like.Params))
	}
	must(t, tinyMappo(1, "--model", "b")...)
}

// TestBackends says of every engine whether it is here and how to get it.
func TestBackends(t *testing.T) {
	t.Setenv("PJRT_PLUGIN_LIBRARY_PATH", t.TempDir())
	o := must(t, "version")
	for _, pattern := range []string{`(?m)^go +present +`, `(?m)^onnx +(present +ONNX Runtime \d|missing +)`,
		`(?m)^xla +missing +(no PJRT plugin in /|not built in).*\n +get it: `, `(?m)^ +plugins of xla are looked for in /`} {
		if !regexp.MustCompile(pattern).MatchString(o.out) {
			t.Errorf("lacks %s:\n%s", pattern, o.out)
		}
	}
}

// TestVersion: the modules that decide the numbers come first.
func TestVersion(t *testing.T) {
	o := must(t, "version")
	if !regexp.MustCompile(`^posttrain +\S+\ngo +go1\.\d+`).MatchString(o.out) {
		t.Errorf("%s", o.out)
	}
	if !backendtest.Cgo {
		need.Miss(t, "cc", "the modules of onnx and xla")
	} else if i := slices.IndexFunc(engines, func(m string) bool {
		return !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(m) + ` +v\d`).MatchString(o.out)
	}); i >= 0 {
		t.Errorf("lacks %s: %s", engines[i], o.out)
	}
	if short := must(t, "--version"); short.out != "posttrain version "+version()+"\n" {
		t.Errorf("--version prints %q", short.out)
	}
}

// TestCompletion writes a script for every shell, and completes commands and flags.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if o := must(t, "completion", shell); len(o.out) < 500 || !strings.Contains(o.out, "posttrain") {
			t.Errorf("%s: %q", shell, o.out)
		}
	}
	for typed, want := range map[string]string{"ma": "mappo", "mappo --pri": "--prior", "model in": "init"} {
		if o := must(t, append([]string{"__complete"}, strings.Fields(typed)...)...); !strings.Contains(o.out, want) {
			t.Errorf("%s: %q, want %s", typed, o.out, want)
		}
	}
}

// TestDataSynth writes demonstrations that sft reads, the same for the same seed.
func TestDataSynth(t *testing.T) {
	t.Chdir(t.TempDir())
	o := must(t, "data", "synth", "--n", "7", "--seed", "3", "--leak", "0.5", "--out", "a.jsonl")
	if o.out != "a.jsonl: 7 demonstrations\n" {
		t.Errorf("printed %q", o.out)
	}
	must(t, "data", "synth", "--n", "7", "--seed", "3", "--leak", "0.5", "--out", "b.jsonl")
	must(t, "data", "synth", "--n", "7", "--seed", "3", "--held-out", "--out", "c.jsonl")
	a := read(t, "a.jsonl")
	if strings.Count(a, "\n") != 7 || a != read(t, "b.jsonl") || a == read(t, "c.jsonl") {
		t.Errorf("7 lines, the same by seed, others held out:\n%s", a)
	}
	if !strings.Contains(a, "<think>") || !strings.Contains(a, `"prompt"`) {
		t.Errorf("%s", a)
	}
}

// TestEvalCI measures a model that knows nothing.
func TestEvalCI(t *testing.T) {
	work(t, "qwen2-newer")
	args := []string{"eval", "ci", "--model", "model", "--backend", "go", "--n", "2", "--max-new-tokens", "3",
		"--show", "1", "--out", "out"}
	o := must(t, args...)
	if !strings.Contains(o.out, "format") || !strings.Contains(o.out, "0/2") || !strings.Contains(o.out, "reward ") {
		t.Errorf("%s", o.out)
	}
	os.RemoveAll("out")
	if again := must(t, args...); again.out != o.out {
		t.Errorf("%s\nand then %s", o.out, again.out)
	}
	os.RemoveAll("out")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, errs := &watched{}, &watched{}
	if code := execute(ctx, streams{in: strings.NewReader(""), out: out, err: errs}, args); code != exitInterrupted ||
		out.Len() > 0 || !strings.Contains(errs.String(), "posttrain: interrupted in stage answers: continue with ") {
		t.Errorf("interrupted: exit code %d, %q, %q", code, out, errs)
	}
}
