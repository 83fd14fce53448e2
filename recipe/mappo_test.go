package recipe_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/eval/alpaca"
	"github.com/posttrain/posttrain/eval/arena"
	"github.com/posttrain/posttrain/eval/confaide"
	"github.com/posttrain/posttrain/eval/gate"
	"github.com/posttrain/posttrain/eval/mtbench"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/eval/xstest"
	_ "github.com/posttrain/posttrain/internal/backend/backendtest" // tests keep no compiled programs
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe/federated"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/recipe/rewardmodel"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/recipe/sft"
	"github.com/posttrain/posttrain/recipe/synth"
)

const minimal = "command: mappo\nmodel: embedded\ndata: {train: embedded}\n"

// parse is ParseMappo of a text under a short name.
func parse(text string, sets ...string) (*preference.Options, error) {
	return parseMappo("f.yaml", []byte(text), overridesOf(mappoFlags, sets))
}

// overridesOf turns "--prior=none" into the flag and "loss.beta=1" into --set.
func overridesOf(flags []config.Flag, sets []string) []config.Override {
	var all []config.Override
	for _, set := range sets {
		if flag, ok := strings.CutPrefix(set, "--"); ok {
			name, value, _ := strings.Cut(flag, "=")
			for _, f := range flags {
				if f.Name == name {
					all = append(all, f.Override(value))
				}
			}
			continue
		}
		o, err := config.ParseSet(set)
		if err != nil {
			panic(err)
		}
		all = append(all, o)
	}
	return all
}

// open leaves the options open that follow the data: their values are bounds, and the rate is a small model's.
func open(o preference.Options) preference.Options {
	o.Train.Unset = []string{"batch_size", "eval_every", "learning_rate", "micro_batch_size", "warmup_steps"}
	o.Train.MicroBatchSize, o.Train.LearningRate = 8, 5e-6
	return o
}

// What does not follow the data is the paper's.
func TestMinimalHasThePapersSettings(t *testing.T) {
	c, err := parse(minimal)
	if err != nil {
		t.Fatal(err)
	}
	want := open(preference.Spec.Defaults())
	want.Model, want.Data.TrainFiles = embedded.Name, config.Names{embedded.Name}
	if !reflect.DeepEqual(*c, want) {
		t.Errorf("got\n%s", c.Resolved())
	}
	if c.Train.CheckpointEvery <= 0 {
		t.Errorf("a crash loses the whole run: a checkpoint every %d steps", c.Train.CheckpointEvery)
	}
	if c.Train.BatchSize != 128 || c.Train.WarmupSteps != 100 ||
		c.Train.WeightDecay != 0.01 || c.Loss.Beta != 0.1 {
		t.Errorf("not the paper's:\n%s", c.Resolved())
	}
}

func TestValuesReachTheirOptions(t *testing.T) {
	c, err := parse(`
command: mappo
model: "models/qwen"
reference: 'other'
backend: onnx
seed: 18446744073709551615
data:
  train: a.jsonl
  eval: b.parquet
  score_columns: [good, "bad"]
  on_negative_gap: drop
  max_tokens: 1_024
loss:
  type: cpo
  beta: 5e-2
  lambda: 0
  nll: sum
train:
  learning_rate: 1e-6 # without a point
  weight_decay: 0
  shuffle: false
  share_prefix: on
  batch_size: 4
`, "reference=")
	if err != nil {
		t.Fatal(err)
	}
	if c.Model != "models/qwen" || c.Reference != "" || c.Backend != "onnx" || c.Seed != 1<<64-1 {
		t.Errorf("top: %+v", c)
	}
	if d := c.Data; !d.TrainFiles.Are("a.jsonl") || d.EvalFile != "b.parquet" ||
		strings.Join(d.ScoreColumns, "|") != "good|bad" || d.OnNegativeGap != "drop" || d.MaxTokens != 1024 {
		t.Errorf("data: %+v", d)
	}
	if l := c.Loss; l.Type != "cpo" || l.Beta != 0.05 || *l.Lambda != 0 || *l.NLL != "sum" || *l.LabelSmoothing != 0 ||
		l.Gamma != nil {
		t.Errorf("loss: %+v", l)
	}
	if o := c.Train; o.LearningRate != 1e-6 || o.WeightDecay != 0 || o.Shuffle || o.SharePrefix != "on" ||
		o.MicroBatchSize != 4 || o.EvalMetric != "eval_loss" {
		t.Errorf("train: %+v", o)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, text string
		sets       []string
		want       string
	}{
		{"misspelt loss", minimal + "loss:\n  type: dop", nil,
			`f.yaml:5: loss.type "dop": want dpo, ipo, simpo, cpo, hinge, robust, rpo, orpo or kto`},
		{"unknown keys", minimal + "sed: 1\ntrain:\n  learning_rat: 1\n  beta: 2\n  zzz: 3\nloss: {bta: " +
			"2}\nfrobnicate: {a: 1}", nil,
			"f.yaml:4: unknown key \"sed\": did you mean seed?\n" +
				"f.yaml:6: unknown key \"train.learning_rat\": did you mean train.learning_rate?\n" +
				"f.yaml:7: unknown key \"train.beta\": did you mean loss.beta?\n" +
				"f.yaml:8: unknown key \"train.zzz\": want epochs, max_steps, batch_size, micro_batch_size, " +
				"learning_rate, schedule, warmup_steps, weight_decay, " +
				"adam_beta1, adam_beta2, adam_epsilon, max_grad_norm, gradient_checkpointing, dtype, moments, save_dtype, " +
				"share_prefix, shuffle, log_every, eval_every, " +
				"eval_metric, patience, show_samples, checkpoint_every, checkpoint_minutes or checkpoint_keep\n" +
				"f.yaml:9: unknown key \"loss.bta\": did you mean loss.beta?\n" +
				"f.yaml:10: unknown key \"frobnicate\": want command, mode, model, adapter, quantize, backend, seed, " +
				"reference, lora, engine, chat, train, tracking, data, loss or online"},
		{"another command's key", minimal + "data.loss_on: all", nil,
			"f.yaml:4: unknown key \"data.loss_on\": only `posttrain sft` has it"},
		{"dotted key", minimal + "train.epochs: 1", nil,
			`f.yaml:4: unknown key "train.epochs": write epochs within the section train`},
		{"wrong types", "command: mappo\nmodel: 7\nseed: -1\ndata: {train: {a: 1}}\nloss: {beta: strong, gamma: " +
			"true}\ntrain:\n  epochs: 1.5\n  shuffle: yes\n  batch_size: \"8\"\n  max_steps: '8'\n  learning_rate: " +
			"{a: 1}\n", nil,
			"f.yaml:2: model 7: want embedded, a Hugging Face model folder, or org/name on the hub\n" +
				"f.yaml:3: seed -1: want a whole number, 0 or more\n" +
				"f.yaml:4: data.train {a: 1}: want embedded, a .jsonl, .json, .parquet, .csv or .tsv file (also .gz), or org/name on the hub\n" +
				"f.yaml:5: loss.beta \"strong\": want a number above 0\n" +
				"f.yaml:5: loss.gamma true: want a number, 0 or more\n" +
				"f.yaml:7: train.epochs 1.5: want a whole number, 1 or more\n" +
				"f.yaml:8: train.shuffle \"yes\": want true or false\n" +
				"f.yaml:9: train.batch_size \"8\": want a whole number, 1 or more\n" +
				"f.yaml:10: train.max_steps \"8\": want a whole number, 0 or more\n" +
				"f.yaml:11: train.learning_rate {a: 1}: want a number above 0"},
		{"ranges and words", minimal + "backend: tpu\nloss: {beta: 0}\ntrain:\n  epochs: 0\n  learning_rate: .inf\n  " +
			"schedule: cosin\n  max_grad_norm: -1\n  adam_beta1: .nan\n  checkpoint_keep:", nil,
			"f.yaml:4: backend \"tpu\": want auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN\n" +
				"f.yaml:5: loss.beta 0: want a number above 0\n" +
				"f.yaml:7: train.epochs 0: want a whole number, 1 or more\n" +
				"f.yaml:8: train.learning_rate inf: want a number above 0\n" +
				"f.yaml:9: train.schedule \"cosin\": want constant, linear or cosine\n" +
				"f.yaml:10: train.max_grad_norm -1: want a number, 0 (off) or more\n" +
				"f.yaml:11: train.adam_beta1 NaN: want a number, 0 or more and below 1\n" +
				"f.yaml:12: train.checkpoint_keep is empty: want a whole number, 1 or more"},
		{"unused options", "command: mappo\nreference: ref\nmodel: embedded\ndata: {train: embedded}\nloss:\n  type: " +
			"simpo\n  lambda: 0.2\n  logps: sum", nil,
			"f.yaml:2: reference \"ref\": simpo uses no reference model; remove it\n" +
				"f.yaml:7: loss.lambda 0.2: simpo does not use it, only cpo and rpo do; remove it (for one run: --set " +
				"loss.lambda=)\n" +
				"f.yaml:8: loss.logps sum: simpo does not use it, only ipo does; remove it (for one run: --set " +
				"loss.logps=)"},
		{"unused after a flag", minimal + "loss:\n  gamma: 1\n  type: simpo", []string{"--loss=dpo"},
			"f.yaml:5: loss.gamma 1: dpo does not use it, only simpo does; remove it (for one run: --set loss.gamma=)"},
		{"duplicates", minimal + "seed: 1\nloss: {beta: 1, beta: 2}\nseed: 2\nloss: {}", nil,
			"f.yaml:5: loss.beta is given again: line 5 has it already\n" +
				"f.yaml:6: seed is given again: line 4 has it already\n" +
				"f.yaml:7: loss is given again: line 5 has it already"},
		{"missing", "seed: 1", nil,
			"f.yaml: command is missing: want command: mappo, the command that the file is for\n" +
				"f.yaml: model is missing: want embedded, a Hugging Face model folder, or org/name on the hub\n" +
				"f.yaml: data.train is missing: want embedded, a .jsonl, .json, .parquet, .csv or .tsv file (also .gz), or org/name on the hub"},
		{"another command", "# hi\ncommand: sft\nloss_on: 3", nil,
			"f.yaml:2: is a config for `posttrain sft`, not mappo"},
		{"no command", "command: mapo\nmodel: m\ndata: {train: t}", nil, `f.yaml:1: command "mapo": want mappo`},
		{"across keys", minimal + "train: {batch_size: 4, micro_batch_size: 8, eval_every: 5, eval_metric: " +
			"eval_loss, " +
			"dtype: bfloat16}\nbackend: go", nil,
			"f.yaml:4: train.micro_batch_size 8: want at most train.batch_size, 4\n" +
				"f.yaml:4: train.dtype bfloat16: backend go computes in float32, only xla can do bfloat16\n" +
				"f.yaml:4: train.eval_metric \"eval_loss\": there is nothing to evaluate on; give data.eval or " +
				"data.eval_fraction\n" +
				"f.yaml:4: train.eval_every 5: there is nothing to evaluate on; give data.eval or data.eval_fraction"},
		{"bfloat16 of a library", minimal + "train: {dtype: bfloat16}", []string{"--backend=onnx:/lib/x.so"},
			"f.yaml:4: train.dtype bfloat16: backend onnx:/lib/x.so computes in float32, only xla can do bfloat16"},
		{"data across keys", "command: mappo\nmodel: m\ndata:\n  train: t\n  eval: e\n  eval_fraction: 0.1\n  " +
			"truncate: prompt\n  score_columns: [a]\ntrain: {eval_metric: loss}", nil,
			"f.yaml:6: data.eval_fraction 0.1: data.eval already names the evaluation data; remove one of the two\n" +
				"f.yaml:7: data.truncate prompt: give the limit to cut at, data.max_prompt_tokens or " +
				"data.max_tokens\n" +
				"f.yaml:8: data.score_columns [a]: want two column names, the chosen answer's score and the rejected " +
				"one's\n" +
				"f.yaml:9: train.eval_metric \"loss\": want eval_loss, eval_rewards/accuracies, " +
				"eval_rewards/margins, " +
				"eval_logps/chosen or eval_rewards/chosen"},
		{"metric that is better neither way", minimal + "train: {eval_metric: eval_logps/rejected}",
			[]string{"data.eval_fraction=0.5"},
			"f.yaml:4: train.eval_metric \"eval_logps/rejected\": want eval_loss, eval_rewards/accuracies, " +
				"eval_rewards/margins, eval_logps/chosen or eval_rewards/chosen"},
		{"two lengths", minimal + "train:\n  max_steps: 60\n  epochs: 3", nil,
			"f.yaml:5: train.max_steps 60: train.epochs 3 also says how long the run is; give one of the two"},
		{"two lengths by flags", minimal, []string{"--max-steps=60", "train.epochs=1"},
			"--max-steps: train.max_steps 60: train.epochs 1 also says how long the run is; give one of the two"},
		{"rewards of the plain loss", "command: mappo\nmodel: m\ndata:\n  train: t\n  score_columns: [a, b]\n  " +
			"reward_transform: none\n  on_negative_gap: drop", []string{"--prior=none"},
			"f.yaml:5: data.score_columns [a b]: loss.prior none uses no rewards; remove it (for one run: --set " +
				"data.score_columns=)\n" +
				"f.yaml:6: data.reward_transform none: loss.prior none uses no rewards; remove it (for one run: " +
				"--set " +
				"data.reward_transform=)\n" +
				"f.yaml:7: data.on_negative_gap drop: loss.prior none uses no rewards; remove it (for one run: --set " +
				"data.on_negative_gap=)"},
		{"section", "command: mappo\nmodel: m\ndata: pairs.jsonl\nloss: [1]\ntrain:", nil,
			"f.yaml:3: data \"pairs.jsonl\": want a section with train, weights, columns, eval, eval_fraction, score_columns, " +
				"reward_transform, reward_range, reward_temperature, on_negative_gap, max_prompt_tokens, " +
				"max_completion_tokens, max_tokens or truncate\n" +
				"f.yaml:4: loss [1]: want a section with type, prior, beta, gamma, lambda, label_smoothing, logps, " +
				"nll, desirable_weight or undesirable_weight\n" +
				"f.yaml: data.train is missing: want embedded, a .jsonl, .json, .parquet, .csv or .tsv file (also .gz), or org/name on the hub"},
		{"empty", "# nothing\n", nil, "f.yaml: the file is empty: want command: mappo and what it needs"},
		{"not a mapping", "- a\n", nil, "f.yaml:1: - a: want keys and values, such as command: mappo"},
		{"two documents", minimal + "---\na: 1", nil, "f.yaml: 2 documents divided by ---: want one"},
		{"not YAML", minimal + "loss: 3\n  beta: 2", nil,
			"f.yaml:4: not YAML: mapping value is not allowed in this context"},
		{"flags", minimal, []string{"--prior=map", "loss.bta=1", "loss=3", "command=sft", "train.epochs=x",
			"data.score_columns=a,b,c", "train.shuffle=no"},
			"--set: unknown key \"loss.bta\": did you mean loss.beta?\n" +
				"--set: loss is a section: set one of its keys, such as loss.type\n" +
				"--set: command cannot be set: it says which command the file is for\n" +
				"--set: train.epochs \"x\": want a whole number, 1 or more\n" +
				"--set: train.shuffle \"no\": want true or false\n" +
				"--prior: loss.prior \"map\": want mappo or none\n" +
				"--set: data.score_columns [a b c]: want two column names, the chosen answer's score and the " +
				"rejected " +
				"one's"},
	} {
		_, err := parse(c.text, c.sets...)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		if _, ok := errors.AsType[config.Faults](err); !ok || err.Error() != c.want {
			t.Errorf("%s (%T):\n%v\nwant\n%s", c.name, err, err, c.want)
		}
	}
}

func TestOverridesWin(t *testing.T) {
	c, err := parse(minimal+"loss: {type: simpo, gamma: 2, beta: 0.3}\nseed: 4",
		"--loss=ipo", "loss.gamma=", "--seed=5", "--model=7", "--score-columns=a, b", "--max-steps=3", "loss.beta=0.4",
		"train.learning_rate=1e-5", "train.shuffle=false", "--backend=go")
	if err != nil {
		t.Fatal(err)
	}
	if c.Loss.Type != "ipo" || c.Loss.Gamma != nil || *c.Loss.Logps != "mean" || c.Loss.Beta != 0.4 {
		t.Errorf("loss %+v", c.Loss)
	}
	if c.Seed != 5 || c.Model != "7" || strings.Join(c.Data.ScoreColumns, "|") != "a|b" || c.Train.MaxSteps != 3 ||
		c.Train.LearningRate != 1e-5 || c.Train.Shuffle || c.Backend != "go" {
		t.Errorf("got\n%s", c.Resolved())
	}
	for _, text := range []string{"", "loss.beta", "=3", " = "} {
		if _, err := config.ParseSet(text); err == nil || !strings.Contains(err.Error(), "want key=value") {
			t.Errorf("--set %q: %v", text, err)
		}
	}
}

// The run ends with its epochs or its steps; the command line's word counts before the file's.
func TestLengthOfTheRun(t *testing.T) {
	for _, c := range []struct {
		file          string
		sets          []string
		epochs, steps int
	}{
		{"", nil, 1, 0},
		{"epochs: 3", nil, 3, 0},
		{"max_steps: 60", nil, 0, 60},
		{"max_steps: 0\n  epochs: 3", nil, 3, 0},
		{"max_steps: 60", []string{"train.epochs=2"}, 2, 0},
		{"max_steps: 60", []string{"--max-steps=0"}, 1, 0},
		{"max_steps: 60", []string{"--max-steps="}, 1, 0},
		{"epochs: 3", []string{"--max-steps=5"}, 0, 5},
		{"epochs: 3", []string{"--max-steps=0"}, 3, 0},
		{"epochs: 3", []string{"train.epochs=", "--max-steps=5"}, 0, 5},
	} {
		got, err := parse(minimal+"train:\n  "+c.file, c.sets...)
		if err != nil {
			t.Fatalf("%q %v: %v", c.file, c.sets, err)
		}
		if got.Train.Epochs != c.epochs || got.Train.MaxSteps != c.steps {
			t.Errorf("%q %v: %d epochs, %d steps, want %d and %d", c.file, c.sets, got.Train.Epochs, got.Train.MaxSteps,
				c.epochs, c.steps)
		}
	}
	quick, err := loadMappo("", []config.Override{{Flag: "--set", Key: "train.epochs", Value: "2"}})
	if err != nil || quick.Train.Epochs != 2 || quick.Train.MaxSteps != 0 {
		t.Errorf("--set train.epochs=2 is ignored: %v\n%s", err, quick.Resolved())
	}
}

func TestResolvedLoadsToTheSame(t *testing.T) {
	for _, sets := range [][]string{
		nil, {"--max-steps=9"}, {"train.epochs=9"}, {"--loss=ipo"}, {"--loss=simpo"},
		{"--loss=cpo", "--prior=none", "data.on_negative_gap=clamp", "data.score_columns="},
		{"train.learning_rate=1e-7", "seed=18446744073709551615"},
		{"--model=1e3", "--data=true", "--score-columns=yes,null"},
		{"data.eval=a: b #c", "data.eval_fraction=", "--reference= ' \" - x"},
		{"data.eval_fraction=0.25", "train.eval_metric=eval_rewards/accuracies"},
	} {
		c, err := parse(minimal, sets...)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseMappo("config.yaml", c.Resolved(), nil)
		if err != nil {
			t.Errorf("%v: %v\n%s", sets, err, c.Resolved())
			continue
		}
		if !reflect.DeepEqual(c, again) || string(c.Resolved()) != string(again.Resolved()) {
			t.Errorf("%v:\n%s\nbecame\n%s", sets, c.Resolved(), again.Resolved())
		}
	}
}

// Every metric that may name the best checkpoint is taken, and measured.
func TestWatchedMetrics(t *testing.T) {
	measured := losses.Outcome{}.Metrics(losses.Batch{})
	for _, name := range []string{"eval_loss", "eval_rewards/accuracies", "eval_rewards/margins", "eval_logps/chosen",
		"eval_rewards/chosen"} {
		if _, ok := measured[strings.TrimPrefix(name, "eval_")]; !ok {
			t.Errorf("%s is not measured", name)
		}
		if _, err := parse(minimal, "data.eval_fraction=0.1", "train.eval_metric="+name); err != nil {
			t.Error(err)
		}
	}
}

func TestLoad(t *testing.T) {
	c, err := loadMappo("", nil)
	if err != nil || c.Model != embedded.Name || !c.Data.TrainFiles.Are(embedded.Name) ||
		c.Loss.Prior != losses.MaPPO || c.Loss.Type != losses.DPO {
		t.Errorf("embedded default: %+v, %v", c, err)
	}
	for _, loss := range losses.Types() {
		if _, err := loadMappo("", []config.Override{{Flag: "--loss", Key: "loss.type", Value: loss},
			{Flag: "--prior", Key: "loss.prior", Value: "none"}}); err != nil {
			t.Errorf("the embedded default with --loss %s: %v", loss, err)
		}
	}
	_, err = loadMappo("", []config.Override{{Flag: "--loss", Key: "loss.type", Value: losses.KTO}})
	const noPrior = "configs/mappo.yaml:23: loss.prior mappo: kto learns from single responses, and the prior is the " +
		"reward gap of a pair: want none"
	if err == nil || err.Error() != noPrior {
		t.Errorf("kto with the prior: %v", err)
	}
	if s, err := loadSFT("", nil); err != nil || s.Data.LossOn != "completion" {
		t.Errorf("embedded sft: %+v, %v", s, err)
	}
	path := filepath.Join(t.TempDir(), "x.yaml")
	if _, err := loadMappo(path, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: %v", err)
	}
	expect.Write(t, path, "command: mappo\nmodel: m\ndata: {train: t, loss_on: all}\nloss: {}")
	want := path + ":3: unknown key \"data.loss_on\": only `posttrain sft` has it"
	if _, err := loadMappo(path, nil); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if _, err := loadSFT(path, nil); err == nil || err.Error() != path+":1: is a config for `posttrain mappo`, not "+
		"sft" {
		t.Errorf("got %v", err)
	}
}

// The quick start's settings are for its tiny model alone: another model, or other data, takes the general defaults.
func TestQuickStartIsForTheEmbeddedModelOnly(t *testing.T) {
	quick, err := loadMappo("", []config.Override{{Flag: "--model", Key: "model", Value: embedded.Name},
		{Flag: "--data", Key: "data.train", Value: embedded.Name}})
	if err != nil || quick.Train.MaxSteps == 0 || quick.Train.LearningRate < 1e-5 {
		t.Errorf("the embedded model has no quick start: %v\n%s", err, quick.Resolved())
	}
	other := []config.Override{{Flag: "--model", Key: "model", Value: "embedded"},
		{Flag: "--model", Key: "model", Value: "m"}, {Flag: "--data", Key: "data.train", Value: "p.jsonl"}}
	c, err := loadMappo("", other)
	if err != nil {
		t.Fatal(err)
	}
	want := open(preference.Spec.Defaults())
	want.Model, want.Data.TrainFiles = "m", config.Names{"p.jsonl"}
	if !reflect.DeepEqual(*c, want) {
		t.Errorf("got\n%s", c.Resolved())
	}
	if text := c.Explain(); !strings.Contains(text, "1 epoch of a 32nd of the pairs at a time (a power of two "+
		"from 4 to 128), AdamW at 5e-06, a tenth of the steps (at most 100) of warm-up, then linear, weight decay 0.01") {
		t.Errorf("not by the data:\n%s", text)
	}
	s, err := loadSFT("", other)
	if wantSFT := sft.Spec.Defaults(); err != nil || s.Train.LearningRate != wantSFT.Train.LearningRate ||
		s.Train.MaxSteps != 0 || s.Data.MaxTokens != 0 {
		t.Errorf("sft: %v\n%s", err, s.Resolved())
	}
	_, err = loadMappo("", []config.Override{{Flag: "--model", Key: "model", Value: "m"},
		{Flag: "--loss", Key: "loss.type", Value: "dop"}})
	faults := "--data: data.train is missing: want embedded, a .jsonl, .json, .parquet, .csv or .tsv file (also .gz), or org/name on the hub\n--loss: " +
		"loss.type \"dop\": want dpo, ipo, simpo, cpo, hinge, robust, rpo, orpo or kto"
	if err == nil || err.Error() != faults {
		t.Errorf("no data: %v", err)
	}
	_, err = loadSFT("", []config.Override{{Flag: "--data", Key: "data.train", Value: "d.jsonl"}})
	if err == nil || err.Error() != "--model: model is missing: want embedded, a Hugging Face model folder, or org/name on the hub" {
		t.Errorf("no model: %v", err)
	}
}

func TestSFTFaults(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"data: {train: t, loss_on: prompt, score_columns: [a, b], eval_fraction: 0.5}\nloss: {type: dpo}\ntrain: " +
			"{eval_metric: eval_rewards/margins}",
			"s.yaml:3: unknown key \"data.score_columns\": only `posttrain mappo` and `posttrain reward-model` have it\n" +
				"s.yaml:3: data.loss_on \"prompt\": want completion, turns, last or all\n" +
				"s.yaml:4: unknown key \"loss\": only `posttrain mappo` and `posttrain reward-model` have it\n" +
				"s.yaml:5: train.eval_metric \"eval_rewards/margins\": want eval_loss"},
		{"data: {train: t}\ntrain: {share_prefix: auto}",
			"s.yaml:4: unknown key \"train.share_prefix\": only `posttrain mappo` and `posttrain reward-model` have it"},
		{"data: {train: t, loss_on: all, max_tokens: 9, max_prompt_tokens: 5}",
			"s.yaml:3: data.max_prompt_tokens 5: with data.loss_on all the whole text is the completion; use " +
				"data.max_tokens"},
		{"data: {train: t, loss_on: all, max_tokens: 9, truncate: prompt}",
			"s.yaml:3: data.truncate prompt: with data.loss_on all the whole text is the completion; want none or " +
				"completion"},
		{"data: {train: t, loss_on: all, max_tokens: 9, truncate: both}",
			"s.yaml:3: data.truncate both: with data.loss_on all the whole text is the completion; want none or " +
				"completion"},
	} {
		_, err := parseSFT("s.yaml", []byte("command: sft\nmodel: m\n"+c.text), nil)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n%v\nwant\n%s", c.text, err, c.want)
		}
	}
}

// Cutting wants a limit that cuts what is asked for.
func TestTruncateNeedsItsLimit(t *testing.T) {
	for _, c := range []struct {
		truncate, limits string
		ok               bool
	}{
		{"none", "", true},
		{"prompt", "max_completion_tokens: 4", false}, {"prompt", "max_prompt_tokens: 4", true},
		{"prompt", "max_tokens: 4", true},
		{"completion", "max_prompt_tokens: 4", false}, {"completion", "max_completion_tokens: 4", true},
		{"completion", "max_tokens: 4", true},
		{"both", "max_prompt_tokens: 4", false}, {"both", "max_completion_tokens: 4", false},
		{"both", "max_tokens: 4", true},
		{"both", "max_prompt_tokens: 4, max_completion_tokens: 4", true},
	} {
		text := "command: sft\nmodel: m\ndata: {train: t, truncate: " + c.truncate + ", " + c.limits + "}"
		resolved, err := parseSFT("s.yaml", []byte(text), nil)
		if ok := err == nil; ok != c.ok {
			t.Errorf("%s with %q: %v", c.truncate, c.limits, err)
			continue
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "s.yaml:3: data.truncate "+c.truncate+": give the limit to cut at, "+
				"data.max_") {
				t.Error(err)
			}
			continue
		}
		if again, err := parseSFT("config.yaml", resolved.Resolved(), nil); err != nil ||
			!reflect.DeepEqual(again, resolved) {
			t.Errorf("%v\n%s", err, resolved.Resolved())
		}
	}
}

func TestDiff(t *testing.T) {
	resolved := func(sets ...string) []byte {
		c, err := parse(minimal, sets...)
		if err != nil {
			t.Fatal(err)
		}
		return c.Resolved()
	}
	if d := config.Diff(resolved(), resolved()); d != nil {
		t.Errorf("of the same: %v", d)
	}
	got := strings.Join(config.Diff(resolved(), resolved("loss.beta=0.2", "--loss=ipo", "--score-columns=a,b",
		"--reference=r")), "\n")
	want := "data.score_columns: [], now [a b]\nloss.beta: 0.1, now 0.2\nloss.label_smoothing: 0, now not " +
		"given\nloss.logps: not given, now mean\nloss.type: dpo, now ipo\nreference: \"\", now r"
	if got != want {
		t.Errorf("got\n%s", got)
	}
	if d := config.Diff([]byte("a: ["), resolved()); len(d) != 1 || !strings.Contains(d[0], "older") {
		t.Errorf("broken: %v", d)
	}
}

func TestExplain(t *testing.T) {
	paper, err := loadMappo("", []config.Override{{Flag: "--set", Key: "train.batch_size", Value: "128"},
		{Flag: "--set", Key: "train.learning_rate", Value: "5e-7"},
		{Flag: "--set", Key: "train.warmup_steps", Value: "100"},
		{Flag: "--set", Key: "data.reward_transform", Value: "logistic"},
		{Flag: "--set", Key: "train.dtype", Value: "bfloat16"}, {Flag: "--backend", Key: "backend", Value: "xla"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"no option deviates from the paper's\n", "does not say: train.schedule constant, " +
		"train.max_grad_norm 1, data.on_negative_gap clamp, data.max_tokens 512\n",
		"not compared: the pairs (paper: best and worst of the model's own 8 answers to prompts of " +
			"RLHFlow/UltraFeedback-preference-standard)"} {
		if !strings.Contains(paper.Explain(), part) {
			t.Errorf("the paper's settings: lacks %q:\n%s", part, paper.Explain())
		}
	}
	for set, line := range map[string]string{
		"lora.rank=8": "lora.rank: 8 (paper: not given)", "chat.variables=[a=b]": "chat: a=b (paper: the model's own template)",
		"mode=online": "", // the defaults of online training are the paper's, but for the reward
	} {
		c, err := parse(minimal, set)
		if err != nil {
			t.Fatal(err)
		}
		if want := cmp.Or(line, "online.reward.kind: ci (paper: model)"); !strings.Contains(c.Explain(), want) {
			t.Errorf("%s: lacks %q:\n%s", set, want, c.Explain())
		}
		if strings.Contains(c.Explain(), "online.rounds") {
			t.Errorf("%s: rounds are the paper's:\n%s", set, c.Explain())
		}
	}
	paper.Data.Temperature = 2
	if want := "data.reward_temperature: 2 (paper: 1)"; !strings.Contains(paper.Explain(), want) {
		t.Errorf("lacks %q:\n%s", want, paper.Explain())
	}
	paper.Data.Transform, paper.Data.Temperature = "auto", 0
	if want := "data.reward_transform: auto (paper: logistic, of the reward model's own scores)"; !strings.Contains(
		paper.Explain(), want) {
		t.Errorf("lacks %q:\n%s", want, paper.Explain())
	}
	c, err := parse(minimal, "--loss=ipo", "--prior=none", "train.learning_rate=1e-6", "loss.beta=0.5", "--reference=r",
		"train.max_steps=7")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"loss = (A - B - 1)²", "7 steps of a 32nd of the pairs at a time", "a tenth of the steps (at most 100) of warm-up",
		"train.batch_size, train.warmup_steps: by the data (paper: 128, 100)",
		"loss.prior: none (paper: mappo)", "loss.beta: 0.5 (paper: 0.1)",
		"train.learning_rate: 1e-06 (paper: 5e-07)", "train.dtype: auto (paper: bfloat16)",
		"reference: r (paper: the model before training)"} {
		if !strings.Contains(c.Explain(), part) {
			t.Errorf("lacks %q:\n%s", part, c.Explain())
		}
	}
	if strings.Contains(c.Explain(), "negative_gap") {
		t.Errorf("the prior is off:\n%s", c.Explain())
	}
	s, err := loadSFT("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Train.MaxSteps, s.Train.Epochs = 0, 1; !strings.Contains(s.Explain(), "training: 1 epoch of") {
		t.Errorf("got\n%s", s.Explain())
	}
	if !strings.Contains(s.Explain(), "of the completions' tokens") {
		t.Errorf("got\n%s", s.Explain())
	}
}

// The parser never panics, never accepts what it then cannot resolve, and its faults are one line each.
func FuzzParse(f *testing.F) {
	f.Add(minimal+"loss: {type: dop, beta: 1e-3}\ntrain:\n  epochs: 1.5\n", "a: 'b' #c")
	f.Add("command: mappo\nmodel: &a x\ndata: {train: *a}\n<<: {seed: 1}\n? z\n: 2\n", "a: 'b' #c")
	f.Add("a: |\n  b\n - c: 'd\n", "a: 'b' #c")
	f.Add("command: mappo\nmodel: !!str 5\nseed: 0x10\ndata:\n  train: >-\n    x\n    y\n", "a: 'b' #c")
	f.Fuzz(func(t *testing.T, text, value string) {
		sets := []config.Override{{Flag: "--eval", Key: "data.eval", Value: value},
			{Flag: "--score-columns", Key: "data.score_columns", Value: value + "," + value}}
		c, err := parseMappo("f.yaml", []byte(text), sets)
		if err != nil {
			faults, ok := errors.AsType[config.Faults](err)
			if !ok {
				t.Fatalf("%T", err)
			}
			for _, fault := range faults {
				if strings.ContainsAny(fault.Error(), "\n\r") {
					t.Fatalf("%q", fault.Error())
				}
			}
			return
		}
		again, err := parseMappo("config.yaml", c.Resolved(), nil)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%v\n%s", err, c.Resolved())
		}
	})
}

func TestTextIsOnePrintableLine(t *testing.T) {
	_, err := parse("command: mappo\nmodel: |\n  a\n  b\ndata: {train: embedded}", "data.eval=a\x00b",
		"data.score_columns=a\nb,c")
	want := "f.yaml:2: model \"a\\nb\\n\": want embedded, a Hugging Face model folder, or org/name on the hub\n" +
		"--set: data.eval \"a\\x00b\": want a .jsonl, .json, .parquet, .csv or .tsv file (also .gz)\n" +
		"--set: data.score_columns \"a\\nb,c\": want two column names, for the chosen and the rejected score"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v", err)
	}
}

// flags are some of the command line's.
var mappoFlags = []config.Flag{
	{Name: "model", Key: "model"}, {Name: "reference", Key: "reference"}, {Name: "data", Key: "data.train"},
	{Name: "score-columns", Key: "data.score_columns"}, {Name: "loss", Key: "loss.type"},
	{Name: "prior", Key: "loss.prior"},
	{Name: "backend", Key: "backend"}, {Name: "seed", Key: "seed"}, {Name: "max-steps", Key: "train.max_steps"},
}

var cirlFlags = []config.Flag{
	{Name: "data", Key: "data.train"}, {Name: "prompt", Key: "data.prompt"},
	{Name: "prompts", Key: "grpo.prompts_per_step"},
	{Name: "group-size", Key: "grpo.group_size"}, {Name: "max-new-tokens", Key: "sampling.max_new_tokens"},
	{Name: "temperature", Key: "sampling.temperature"}, {Name: "kl", Key: "grpo.kl"},
	{Name: "kl-coef", Key: "grpo.kl_coef"},
	{Name: "max-steps", Key: "train.max_steps"},
}

func loadMappo(path string, sets []config.Override) (*preference.Options, error) {
	return preference.Spec.Load(config.Input{Path: path, Overrides: sets, Flags: mappoFlags})
}

func parseMappo(name string, text []byte, sets []config.Override) (*preference.Options, error) {
	return preference.Spec.Parse(name, text, config.Input{Overrides: sets, Flags: mappoFlags})
}

func loadSFT(path string, sets []config.Override) (*sft.Options, error) {
	return sft.Spec.Load(config.Input{Path: path, Overrides: sets, Flags: mappoFlags})
}

func parseSFT(name string, text []byte, sets []config.Override) (*sft.Options, error) {
	return sft.Spec.Parse(name, text, config.Input{Overrides: sets, Flags: mappoFlags})
}

func loadCIRL(path string, sets []config.Override) (*rl.CI, error) {
	return rl.CISpec.Load(config.Input{Path: path, Overrides: sets, Flags: cirlFlags})
}

func parseCIRL(name string, text []byte, sets []config.Override) (*rl.CI, error) {
	return rl.CISpec.Parse(name, text, config.Input{Overrides: sets, Flags: cirlFlags})
}

// resolve reads a configuration of any registered command and gives it back resolved.
func resolve(name string, text []byte) ([]byte, any, error) {
	switch config.CommandOf(text) {
	case sft.Command:
		c, err := parseSFT(name, text, nil)
		return sft.Spec.Resolve(c), c, err
	case rewardmodel.Command:
		return parsed(rewardmodel.Spec, name, text)
	case rl.CICommand:
		c, err := parseCIRL(name, text, nil)
		return rl.CISpec.Resolve(c), c, err
	case federated.Command:
		return parsed(federated.Spec, name, text)
	case rl.Command:
		return parsed(rl.Spec, name, text)
	case privacylens.Benchmark.Command:
		return parsed(privacylens.Benchmark.Spec, name, text)
	case alpaca.Benchmark.Command:
		return parsed(alpaca.Benchmark.Spec, name, text)
	case arena.Benchmark.Command:
		return parsed(arena.Benchmark.Spec, name, text)
	case synth.Command:
		return parsed(synth.Spec, name, text)
	case xstest.Benchmark.Command:
		return parsed(xstest.Benchmark.Spec, name, text)
	case mtbench.Benchmark.Command:
		return parsed(mtbench.Benchmark.Spec, name, text)
	case confaide.Benchmark.Command:
		return parsed(confaide.Benchmark.Spec, name, text)
	case gate.Benchmark.Command:
		return parsed(gate.Benchmark.Spec, name, text)
	case xstest.Benchmark.Command:
		return parsed(xstest.Benchmark.Spec, name, text)
	}
	c, err := parseMappo(name, text, nil)
	return preference.Spec.Resolve(c), c, err
}

func parsed[O any](s *config.Spec[O], name string, text []byte) ([]byte, any, error) {
	c, err := s.Parse(name, text, config.Input{Allow: config.Anything})
	return s.Resolve(c), c, err
}

// Every released file loads, and is resolved to what loads to the same.
func TestReleasedFiles(t *testing.T) {
	entries, err := configs.Files.ReadDir(".")
	if err != nil || len(entries) < 6 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, e := range entries {
		if e.Name() == "gate-norms.yaml" { // no command's config: eval/gate tests it
			continue
		}
		_, text := configs.Read(e.Name())
		resolved, c, err := resolve("configs/"+e.Name(), text)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, again, err := resolve("config.yaml", resolved); err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("%s: %v", e.Name(), err)
		}
	}
}

// The files that explain every key show every key that applies.
func TestReferenceFilesHaveEveryKey(t *testing.T) {
	for name, elsewhere := range map[string][]string{
		"mappo-paper-dpo.yaml": nil,
		"ci-rl.yaml":           nil,
		"federated.yaml":       nil,
		"data-synth.yaml":      nil,
		"alpaca.yaml":          {"agent.top_k", "agent.top_p", "agent.min_p", "agent.keep_special_tokens"}, // in privacylens.yaml
		"federated-admm.yaml": {"control.activation", "control.output_tanh", "control.log_std", "control.gamma",
			"control.hidden", "control.lambda", "control.returns", "control.normalize", "control.norm", "control.entropy",
			"control.critic.lr", "control.critic.epochs", "control.critic.minibatch"}, // in federated.yaml
	} {
		_, text := configs.Read(name)
		resolved, _, err := resolve(name, text)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range config.Diff(text, resolved) {
			key, change, _ := strings.Cut(line, ": ")
			if strings.HasPrefix(change, "not given") && !slices.Contains(elsewhere, key) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
	_, text := configs.Read("ci-rl.yaml")
	c, err := parseCIRL("ci-rl.yaml", text, nil)
	if err != nil || len(c.Deviations()) != 6 {
		t.Errorf("%v: release and paper contradict each other in six keys: %v", err, c.Deviations())
	}
	for _, d := range c.Deviations() {
		if !strings.HasPrefix(d.Was, d.Now+", paper: ") {
			t.Errorf("the released run deviates from itself: %v", d)
		}
	}
}
