package recipe_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/reward"
)

const minimalRL = "command: ci-rl\nmodel: m\ndata: {train: d.json}\n"

// parseRL is ParseCIRL of a text under a short name.
func parseRL(text string, sets ...string) (*rl.CI, error) {
	return parseCIRL("f.yaml", []byte(text), overridesOf(cirlFlags, sets))
}

// The defaults are the released settings, and so is the file that shows them.
func TestMinimalHasTheReleasedSettings(t *testing.T) {
	c, err := parseRL(minimalRL)
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Data; d.ValidationFraction != 0.09 || d.TestFraction != 0.10 || d.Prompt != ci.PromptCoT || !d.Prefill ||
		d.MaxPromptTokens != 768 || d.Scenarios != 0 {
		t.Errorf("data: %+v", d)
	}
	if s := c.Sampling; s.MaxNew != 2048 || s.Temperature != 1 || s.TopK != 0 || s.TopP != 0 || s.MinP != 0 {
		t.Errorf("sampling: %+v", s)
	}
	if c.Reward != reward.DefaultOptions() || c.GRPO != grpo.DefaultOptions() || c.Validation.Temperature != 0.7 ||
		c.Validation.Every != 240 {
		t.Errorf("got\n%s", c.Resolved())
	}
	if g := c.GRPO; g.Prompts != 32 || g.GroupSize != 16 || g.Updates != 1 || g.KL != "k3" ||
		g.KLCoef != 0.001 || g.ClipLow != 0.2 || g.ClipHigh != 0.2 {
		t.Errorf("grpo: %+v", g)
	}
	if o := c.Train; o.Epochs != 150 || o.LearningRate != 1e-6 || o.WarmupSteps != 0 || o.Schedule != "constant" ||
		o.CheckpointEvery != 240 {
		t.Errorf("train: %+v", o)
	}
	_, text := configs.Read("ci-rl.yaml")
	file, err := parseCIRL("ci-rl.yaml", text, overridesOf(cirlFlags, []string{"model=m", "data.train=d.json", "backend=auto",
		"data.items=", "data.prompt=cot", "train.max_grad_norm=1", "train.gradient_checkpointing=false", "train.dtype=auto"}))
	if err != nil || !reflect.DeepEqual(file, c) {
		t.Errorf("configs/ci-rl.yaml: %v\n%s\nwant\n%s", err, file.Resolved(), c.Resolved())
	}
}

func TestRLFaults(t *testing.T) {
	const data = "command: ci-rl\nmodel: m\ndata:\n  train: d.json\n"
	for _, c := range []struct {
		name, text string
		sets       []string
		want       string
	}{
		{"keys of other commands", minimalRL + "train:\n  batch_size: 8\n  eval_every: 3\n  share_prefix: on\nloss: " +
			"{beta: 1}\nreference: r", nil,
			"f.yaml:5: unknown key \"train.batch_size\": only `posttrain mappo`, `posttrain reward-model` " +
				"and `posttrain sft` have it\n" +
				"f.yaml:6: unknown key \"train.eval_every\": only `posttrain mappo`, `posttrain reward-model` " +
				"and `posttrain sft` have it\n" +
				"f.yaml:7: unknown key \"train.share_prefix\": only `posttrain mappo` and `posttrain reward-model` have it\n" +
				"f.yaml:8: unknown key \"loss\": only `posttrain mappo` and `posttrain reward-model` have it\n" +
				"f.yaml:9: unknown key \"reference\": only `posttrain mappo` has it"},
		{"misspelt", minimalRL + "grpo:\n  group_sise: 4\n  temperature: 1\nsampling: {max_tokens: 4}", nil,
			"f.yaml:5: unknown key \"grpo.group_sise\": did you mean grpo.group_size?\n" +
				"f.yaml:6: unknown key \"grpo.temperature\": did you mean sampling.temperature?\n" +
				"f.yaml:7: unknown key \"sampling.max_tokens\": did you mean sampling.max_new_tokens?"},
		{"wrong types", data + "  prefill: yes\ngrpo: {group_size: many, kl: 3}\nsampling: {top_k: 1.5}\nreward: " +
			"{format: 1}\nvalidation: {every: often}", nil,
			"f.yaml:5: data.prefill \"yes\": want true or false\n" +
				"f.yaml:6: grpo.group_size \"many\": want a whole number, 2 or more\n" +
				"f.yaml:6: grpo.kl 3: want none, k1, k2 or k3\n" +
				"f.yaml:7: sampling.top_k 1.5: want a whole number, 0 (off) or more\n" +
				"f.yaml:8: reward.format 1: want paper, strict or answer\n" +
				"f.yaml:9: validation.every \"often\": want a whole number, 0 (only at the end) or more"},
		{"ranges and words", data + "  validation_fraction: 0\n  test_fraction: 1\n  prompt: long\n  " +
			"max_prompt_tokens: -1\n" +
			"sampling: {max_new_tokens: 0, temperature: -1, top_p: 1.5, min_p: 1, top_k: -1}\nreward: {match: regex, " +
			"required_weight: -1}\nvalidation: {temperature: -1, samples: -1, every: -2}", nil,
			"f.yaml:5: data.validation_fraction 0: want a number above 0 and below 1\n" +
				"f.yaml:6: data.test_fraction 1: want a number, 0 or more and below 1\n" +
				"f.yaml:7: data.prompt \"long\": want compact, plain, cot, released, answer or a file such as ./prompt.tmpl\n" +
				"f.yaml:8: data.max_prompt_tokens -1: want a whole number, 0 or more\n" +
				"f.yaml:9: sampling.max_new_tokens 0: want a whole number, 1 or more\n" +
				"f.yaml:9: sampling.temperature -1: want a number, 0 (greedy) or more\n" +
				"f.yaml:9: sampling.top_k -1: want a whole number, 0 (off) or more\n" +
				"f.yaml:9: sampling.top_p 1.5: want a number, 0 (off) or more and at most 1\n" +
				"f.yaml:9: sampling.min_p 1: all completions of a prompt would be the same, and their advantages 0: " +
				"want a number below 1\n" +
				"f.yaml:10: reward.match \"regex\": want substring or word\n" +
				"f.yaml:10: reward.required_weight -1: want a number, 0 or more\n" +
				"f.yaml:11: validation.every -2: want a whole number, 0 (only at the end) or more\n" +
				"f.yaml:11: validation.temperature -1: want a number, 0 (greedy) or more\n" +
				"f.yaml:11: validation.samples -1: want a whole number, 0 or more"},
		{"the method", minimalRL + "grpo:\n  prompts_per_step: 10\n  updates_per_rollout: 4\n  group_size: 1\n  " +
			"norm_length: 100\n  std: yes\n  kl: none\n  kl_coef: 0.5", nil,
			"f.yaml:6: grpo.updates_per_rollout 4: want a divisor of prompts_per_step 10\n" +
				"f.yaml:7: grpo.group_size 1: want a whole number, 2 or more\n" +
				"f.yaml:8: grpo.norm_length 100: aggregation token-mean does not use it, only " +
				"seq-mean-token-sum-norm " +
				"does; remove it (for one run: --set grpo.norm_length=)\n" +
				"f.yaml:9: grpo.std \"yes\": want sample, population, batch or none\n" +
				"f.yaml:11: grpo.kl_coef 0.5: kl none does not use it; remove it (for one run: --set grpo.kl_coef=)"},
		{"across keys", data + "  scenarios: 100\n  validation_fraction: 0.5\n  test_fraction: 0.5\n  prompt: " +
			"compact\n  prefill: true\nsampling: {temperature: 0, top_k: 1}\nreward: {required_weight: 0, " +
			"restricted_weight: 0}\ntrain: {dtype: bfloat16}\nbackend: onnx", nil,
			"f.yaml:5: data.scenarios 100: only embedded scenarios are made to a number, and data.train is d.json; " +
				"remove it (for one run: --set data.scenarios=)\n" +
				"f.yaml:7: data.test_fraction 0.5: with data.validation_fraction 0.5 nothing is left to train on: " +
				"want a sum below 1\n" +
				"f.yaml:9: data.prefill true: with data.prompt compact the model opens the think block itself, as " +
				"the " +
				"embedded one was taught to; want false, or another data.prompt\n" +
				"f.yaml:10: sampling.top_k 1: temperature 0 always takes the likeliest token; remove one of the two\n" +
				"f.yaml:10: sampling.temperature 0: all completions of a prompt would be the same, and their " +
				"advantages 0: want a number above 0\n" +
				"f.yaml:11: reward.required_weight 0: restricted_weight is 0 too, so that only the format would " +
				"count: want one of them above 0\n" +
				"f.yaml:12: train.dtype bfloat16: backend onnx computes in float32, only xla can do bfloat16"},
		{"parts with a share and a file", data + "  test_fraction: 0.1\n  validation_fraction: 0.1\n  " +
			"test: t.json\n  validation: v.json\n  items: some", nil,
			"f.yaml:5: data.test_fraction 0.1: data.test \"t.json\" names the file of these items; remove one of the " +
				"two (for one run: --set data.test_fraction=)\n" +
				"f.yaml:6: data.validation_fraction 0.1: data.validation \"v.json\" names the file of these items; " +
				"remove one of the two (for one run: --set data.validation_fraction=)\n" +
				"f.yaml:9: data.items \"some\": want all or released"},
		{"released items of none", "command: ci-rl\nmodel: m\ndata: {train: embedded, items: released}", nil,
			"f.yaml:3: data.items \"released\": it is about files, and data.train is embedded; remove it (for one run: " +
				"--set data.items=)"},
		{"too few scenarios", "command: ci-rl\nmodel: m\ndata: {train: embedded, scenarios: 2}", nil,
			"f.yaml:3: data.scenarios 2: want 3 or more"},
		{"two lengths", minimalRL + "train: {epochs: 2, max_steps: 3}", nil,
			"f.yaml:4: train.max_steps 3: train.epochs 2 also says how long the run is; give one of the two"},
		{"flags", minimalRL, []string{"--group-size=1", "--kl=k4", "--temperature=0", "--prompt=cod",
			"--max-new-tokens=x"},
			"--group-size: grpo.group_size 1: want a whole number, 2 or more\n" +
				"--kl: grpo.kl \"k4\": want none, k1, k2 or k3\n" +
				"--max-new-tokens: sampling.max_new_tokens \"x\": want a whole number, 1 or more\n" +
				"--prompt: data.prompt \"cod\": want compact, plain, cot, released, answer or a file such as ./prompt.tmpl\n" +
				"--temperature: sampling.temperature 0: all completions of a prompt would be the same, and their " +
				"advantages 0: want a number above 0"},
		{"missing", "command: ci-rl", nil,
			"f.yaml: model is missing: want embedded, a Hugging Face model folder, or org/name on the hub\n" +
				"f.yaml: data.train is missing: want embedded, a .jsonl, .json, .parquet, .csv or .tsv file (also .gz), or org/name on the hub"},
		{"another command", "command: mappo\nmodel: m", nil, "f.yaml:1: is a config for `posttrain mappo`, not ci-rl"},
	} {
		_, err := parseRL(c.text, c.sets...)
		faults, ok := errors.AsType[config.Faults](err)
		if !ok {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := inOrder(c.name, faults); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	if _, err := parse("command: ci-rl\nmodel: m"); err == nil ||
		err.Error() != "f.yaml:1: is a config for `posttrain ci-rl`, not mappo" {
		t.Errorf("got %v", err)
	}
}

// inOrder joins faults; faults of the command line, which have no lines, by their place.
func inOrder(name string, faults config.Faults) string {
	lines := strings.Split(faults.Error(), "\n")
	if name == "flags" {
		for i := range lines {
			for k := i + 1; k < len(lines); k++ {
				if lines[k] < lines[i] {
					lines[i], lines[k] = lines[k], lines[i]
				}
			}
		}
	}
	return strings.Join(lines, "\n")
}

// What depends on other keys follows them, unless it is given.
func TestRLSettles(t *testing.T) {
	for _, c := range []struct {
		name, text string
		sets       []string
		holds      func(c *rl.CI) bool
	}{
		{"the embedded model knows the short form", "command: ci-rl\nmodel: embedded\ndata: {train: d.json}", nil,
			func(c *rl.CI) bool {
				return c.Data.Prompt == "compact" && !c.Data.Prefill && c.Data.Scenarios == 0
			}},
		{"others get CI-CoT, prefilled", minimalRL, nil,
			func(c *rl.CI) bool { return c.Data.Prompt == "cot" && c.Data.Prefill }},
		{"plain is not prefilled", minimalRL, []string{"--prompt=plain"},
			func(c *rl.CI) bool { return !c.Data.Prefill }},
		{"unless asked for", minimalRL, []string{"--prompt=plain", "data.prefill=true"},
			func(c *rl.CI) bool { return c.Data.Prefill }},
		{"scenarios are made", "command: ci-rl\nmodel: m\ndata: {train: embedded}", nil,
			func(c *rl.CI) bool { return c.Data.Scenarios == 2000 && c.Data.Prompt == "cot" }},
		{"to a number", "command: ci-rl\nmodel: m\ndata: {train: embedded, scenarios: 3}", nil,
			func(c *rl.CI) bool { return c.Data.Scenarios == 3 }},
		{"no KL, no weight", minimalRL, []string{"--kl=none"},
			func(c *rl.CI) bool { return c.GRPO.KLCoef == 0 && !c.GRPO.NeedsReference() }},
		{"the constant length", minimalRL, []string{"grpo.aggregation=seq-mean-token-sum-norm", "--max-new-tokens=77"},
			func(c *rl.CI) bool { return c.GRPO.NormLength == 77 }},
		{"or another one", minimalRL, []string{"grpo.aggregation=seq-mean-token-sum-norm", "grpo.norm_length=5"},
			func(c *rl.CI) bool { return c.GRPO.NormLength == 5 }},
		{"parts of files", minimalRL, []string{"data.test=t.json", "data.validation=v.json", "data.items=released"},
			func(c *rl.CI) bool {
				return c.Data.Test == "t.json" && !strings.Contains(string(c.Resolved()), "fraction") &&
					strings.Contains(c.Explain(), "v.json for validation and t.json for the test")
			}},
		{"steps stand for epochs", minimalRL, []string{"--max-steps=9"},
			func(c *rl.CI) bool { return c.Train.MaxSteps == 9 && c.Train.Epochs == 0 }},
		{"epochs again", "command: ci-rl\nmodel: m\ndata: {train: d.json}\ntrain: {max_steps: 9}",
			[]string{"train.epochs=2"}, func(c *rl.CI) bool {
				return c.Train.MaxSteps == 0 &&
					c.Train.Epochs == 2
			}},
	} {
		got, err := parseRL(c.text, c.sets...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !c.holds(got) {
			t.Errorf("%s: got\n%s", c.name, got.Resolved())
		}
		again, err := parseCIRL("config.yaml", got.Resolved(), nil)
		if err != nil || !reflect.DeepEqual(got, again) || string(got.Resolved()) != string(again.Resolved()) {
			t.Errorf("%s: %v\n%s", c.name, err, got.Resolved())
		}
	}
}

// Without flags it is the embedded quick start; a model or data of the user's own take the released settings.
func TestRLQuickStart(t *testing.T) {
	quick, err := loadCIRL("", nil)
	if err != nil || quick.Model != embedded.Name || !quick.Data.TrainFiles.Are(embedded.Name) ||
		quick.Train.MaxSteps == 0 ||
		quick.Sampling.MaxNew > 256 {
		t.Fatalf("%v\n%s", err, quick.Resolved())
	}
	for _, sets := range [][]config.Override{{{Flag: "--kl", Key: "grpo.kl", Value: "k3"}},
		{{Flag: "--kl", Key: "grpo.kl", Value: "none"}}, {{Flag: "--group-size", Key: "grpo.group_size", Value: "4"}},
		{{Flag: "--set", Key: "train.epochs", Value: "1"}}} {
		if _, err := loadCIRL("", sets); err != nil {
			t.Errorf("%v: %v", sets, err)
		}
	}
	own, err := loadCIRL("", []config.Override{{Flag: "--model", Key: "model", Value: "m"},
		{Flag: "--data", Key: "data.train", Value: "d.json"}})
	want := rl.CISpec.Defaults()
	want.Model, want.Data.TrainFiles, want.Data.Prompt, want.Data.Prefill = "m", config.Names{"d.json"}, "cot", true
	if err != nil || !reflect.DeepEqual(*own, want) {
		t.Errorf("%v\n%s", err, own.Resolved())
	}
	_, err = loadCIRL("", []config.Override{{Flag: "--model", Key: "model", Value: "m"}})
	if err == nil || err.Error() != "--data: data.train is missing: want embedded, a .jsonl, .json, .parquet, .csv or .tsv "+
		"file (also .gz), or org/name on the hub" {
		t.Errorf("no data: %v", err)
	}
}

// Every key that changes the method is listed with both values, and no key that only changes where it is computed, or
// what is written about it.
func TestDeviationsFromTheReleasedRun(t *testing.T) {
	set := map[string]string{
		"data.prompt": "plain", "data.prefill": "false", "data.max_prompt_tokens": "100", "data.test_fraction": "0.2",
		"sampling.max_new_tokens": "100", "sampling.temperature": "0.9", "sampling.top_p": "0.9",
		"reward.format": "strict", "reward.match": "word", "reward.restricted_weight": "2",
		"grpo.updates_per_rollout": "4", "grpo.kl": "k2", "grpo.kl_coef": "0.05", "grpo.clip_high": "0.28",
		"grpo.mask_truncated": "true", "grpo.dynamic_sampling": "2", "validation.every": "20",
		"validation.temperature": "1", "train.epochs": "3", "train.learning_rate": "1e-5", "train.warmup_steps": "10",
		"train.schedule": "cosine", "train.weight_decay": "0.1", "train.adam_beta2": "0.95", "train.max_grad_norm": "2",
		"train.dtype": "float32", "train.shuffle": "false", "lora.rank": "16", "lora.alpha": "8",
		"data.items": "all", "data.validation_fraction": "0.1",
	}
	released := map[string]string{
		"data.prompt": "released", "sampling.max_new_tokens": "2048", "grpo.updates_per_rollout": "1, paper: 4",
		"grpo.kl": "k3", "sampling.temperature": "1, paper: 0.7", "train.max_grad_norm": "4, paper: does not say",
		"data.items": "released, paper: all", "validation.every": "240", "train.epochs": "150", "lora.rank": "not given",
		"train.dtype": "bfloat16",
	}
	var sets []string
	for _, key := range slices.Sorted(maps.Keys(set)) {
		sets = append(sets, key+"="+set[key])
	}
	o, err := parseRL(minimalRL, append(sets, "backend=go", "seed=4", "train.log_every=7", "train.checkpoint_every=9",
		"validation.samples=1", "sampling.cache_gb=2")...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range o.Deviations() {
		value, given := set[c.Key]
		if c.Key == "grpo.ratio_level" || c.Key == "grpo.aggregation" { // as released, not as in the paper
			value, given = c.Now, strings.HasPrefix(c.Was, c.Now+", paper: ")
		}
		if was, ok := released[c.Key]; !given || ok && was != c.Was {
			t.Errorf("%v, want %s", c, released[c.Key])
		}
		line := fmt.Sprintf("\n  %s: %s (released: %s)\n", c.Key, c.Now, c.Was)
		if !strings.Contains(o.Explain(), line) {
			t.Errorf("%s=%s: explain lacks %q:\n%s", c.Key, value, line, o.Explain())
		}
		delete(set, c.Key)
	}
	if len(set) > 0 {
		t.Errorf("not listed: %v\n%s", set, o.Explain())
	}
}

// The quick start has settings of its own, which its published numbers were measured with.
func TestQuickStartKeepsItsSettings(t *testing.T) {
	quick, err := loadCIRL("", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := *quick
	want.GRPO = grpo.Options{Prompts: 16, GroupSize: 8, Updates: 1, Std: "sample", RatioLevel: "token",
		Aggregation: "token-mean", ClipLow: 0.2, ClipHigh: 0.2, KL: "none"}
	want.Validation = grpo.ValidationOptions{Every: 20, Temperature: 0.7, Samples: 4}
	want.Train.CheckpointEvery, want.Train.MaxSteps, want.Train.WarmupSteps = 20, 120, 5
	if !reflect.DeepEqual(*quick, want) {
		t.Errorf("%s\nwant\n%s", quick.Resolved(), want.Resolved())
	}
}

func TestExplainRL(t *testing.T) {
	c, err := parseRL(minimalRL, "grpo.std=population", "grpo.aggregation=seq-mean-token-sum-norm", "--kl=k2",
		"--kl-coef=0.05", "grpo.ratio_level=sequence", "grpo.clip_high=0.28",
		"reward.format=strict", "reward.match=word", "reward.restricted_weight=2", "sampling.top_p=0.9",
		"sampling.min_p=0.1", "sampling.top_k=40", "--max-steps=7", "validation.every=0",
		"data.max_prompt_tokens=0")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"objective: GRPO", "R = 1·(required", "- 2·(restricted", "divisor 16, over the 16 completions", "sum divided by 2048", "clip(ρ, 0.8, 1.28)",
		"+ 0.05·KL", "exp of its tokens' mean log-ratio", "KL = d²/2 (k2)", "training: 7 steps, 1 update a step on 512 completions each, AdamW at " +
			"1e-06"} {
		if !strings.Contains(c.Explain(), part) {
			t.Errorf("lacks %q:\n%s", part, c.Explain())
		}
	}
	plain, err := parseRL(minimalRL, "--kl=none", "grpo.std=none")
	if err != nil || !strings.Contains(plain.Explain(), "no KL") ||
		!strings.Contains(plain.Explain(), "A = (R - mean R), over") || strings.Contains(plain.Explain(), "kl_coef") {
		t.Errorf("%v\n%s", err, plain.Explain())
	}
}

// TestCIRLStops: texts with line ends stop completions, and stay in the config of a run.
func TestCIRLStops(t *testing.T) {
	text := minimalRL + "sampling: {stop: [\"\\n\\n\", \" \\n\"]}\n"
	for range 2 {
		o, err := rl.CISpec.Parse("f.yaml", []byte(text), config.Input{})
		if err != nil || !slices.Equal(o.Sampling.Stop, []string{"\n\n", " \n"}) {
			t.Fatalf("%v\n%s", err, text)
		}
		text = string(o.Resolved())
	}
	if _, err := parseRL(minimalRL + "sampling: {stop: [\"\"]}\n"); err == nil {
		t.Error("an empty text is taken")
	}
}
