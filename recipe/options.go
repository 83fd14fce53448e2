package recipe

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/track"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/train"
)

// Base are the settings of every command that trains a language model.
type Base struct {
	Model    string        `yaml:"model" want:"@model" hub:"model" flag:"model" help:"the model to train: folder in Hugging Face layout, org/name[@revision] on the hub, or embedded"`
	Adapting Adapting      `yaml:",inline"`
	Backend  string        `yaml:"backend" want:"@backend" needs:"libraries" default:"auto" flag:"backend" help:"engine:"`
	Devices  Devices       `yaml:"engine"`
	Seed     uint64        `yaml:"seed" flag:"seed" help:"of every random choice: the same seed repeats the run"`
	Chat     local.RowChat `yaml:"chat" flags:"-"`
	Train    train.Options `yaml:"train" defaults:"eval_metric="`
	Tracking track.Options `yaml:"tracking,omitempty"`
	Dir      RunDir        `yaml:"-"`
}

// Validate refuses what the engine cannot do: bfloat16, and several devices.
func (b *Base) Validate(g *config.Given) {
	if engine, _, _ := strings.Cut(b.Backend, ":"); engine != "go" && engine != "onnx" {
		return
	}
	if b.Train.DType == "bfloat16" {
		g.Refuse("train.dtype", "bfloat16", "backend %s computes in float32, only xla can do bfloat16", b.Backend)
	}
	if b.Train.Moments == "bfloat16" {
		g.Refuse("train.moments", "bfloat16", "backend %s keeps them in float32, only xla can keep bfloat16", b.Backend)
	}
	if b.Devices.several() {
		g.Refuse("engine.devices", b.Devices.Devices, "backend %s computes on one device, only xla can use several",
			b.Backend)
	}
}

// RunDirectory is where the run's folder is, which the command line says.
func (b *Base) RunDirectory() *RunDir { return &b.Dir }

// LocalModel is the model of a folder that a command asks. CacheGB is of keys and values.
type LocalModel struct {
	Model   string  `yaml:"model" want:"@model" hub:"model" default:"embedded" flag:"model" help:"model folder in Hugging Face layout, org/name[@revision] on the hub, or embedded"`
	Adapter string  `yaml:"adapter,omitempty" hub:"adapter" words:"an adapter's folder, or org/name on the hub" flag:"adapter" help:"folder of a LoRA adapter for the model, as peft or this program saves it"`
	CacheGB float64 `yaml:"cache_gb,omitempty" want:">=0" zero:"a quarter of the memory" flag:"cache-gb" help:"most gigabytes of the cache of keys and values; 0: a quarter of the memory"`
	Backend string  `yaml:"backend" want:"@backend" needs:"libraries" default:"auto" flag:"backend" help:"engine:"`
}

// EvaluateOn chooses the metric of the best checkpoint where there are examples to evaluate on.
func (b *Base) EvaluateOn(g *config.Given, s Source) {
	if !g.Has("train.eval_metric") && s.HasEval() {
		b.Train.EvalMetric = "eval_loss"
	}
}

// CheckEval wants a metric that is measured, and no evaluation without examples.
func (b *Base) CheckEval(g *config.Given, s Source, metrics []string) {
	const mend = "there is nothing to evaluate on; give data.eval or data.eval_fraction"
	switch t := b.Train; {
	case s.HasEval() && !slices.Contains(metrics, t.EvalMetric):
		g.Fault("train.eval_metric", "train.eval_metric %q: want %s", t.EvalMetric, fault.Or(metrics))
	case !s.HasEval() && t.EvalMetric != "":
		g.Fault("train.eval_metric", "train.eval_metric %q: %s", t.EvalMetric, mend)
	}
	if !s.HasEval() && b.Train.EvalEvery > 0 {
		g.Refuse("train.eval_every", b.Train.EvalEvery, mend)
	}
	switch t := b.Train; {
	case t.Patience == 0:
	case !s.HasEval():
		g.Refuse("train.patience", t.Patience, mend)
	case t.EvalEvery == 0 && !t.IsUnset("eval_every"):
		g.Refuse("train.patience", t.Patience, "no evaluation comes between the first and the last step: give "+
			"train.eval_every, 1 or more, too")
	}
}

// Source says where examples come from: files, relative to the working directory, or data sets of the hub, such as
// org/name:config:split.
type Source struct {
	Files        `yaml:",inline"`
	EvalFile     string  `yaml:"eval" hub:"data" flag:"eval" words:"a .jsonl, .json, .parquet, .csv or .tsv file (also .gz)" help:"file to evaluate on; empty: none, or a share of data.train"`
	EvalFraction float64 `yaml:"eval_fraction" want:">=0 <1" help:"share of data.train held out for evaluation; excludes data.eval"`
}

// Check refuses two sources of evaluation data.
func (s Source) Check() []fault.Fault {
	faults := fault.Check(s)
	if s.EvalFile != "" && s.EvalFraction != 0 {
		faults.Add("eval_fraction", s.EvalFraction, "data.eval already names the evaluation data; remove one of the "+
			"two")
	}
	return faults
}

// HasEval says that there are examples to evaluate on.
func (s Source) HasEval() bool { return s.EvalFile != "" || s.EvalFraction > 0 }

// String describes the source in a phrase.
func (s Source) String() string {
	switch {
	case s.EvalFile != "":
		return fmt.Sprintf("%s, evaluated on %s", s.Names(), s.EvalFile)
	case s.EvalFraction > 0:
		return fmt.Sprintf("%s, of which %v is held out for evaluation", s.Names(), s.EvalFraction)
	}
	return s.Names() + ", no evaluation"
}

// QuickStart reads a released file in the place of the user's, as long as model and data stay the embedded ones: its
// settings suit nothing but the tiny model.
func QuickStart(name string) func([]config.Override) (string, []byte) {
	return func(overrides []config.Override) (string, []byte) {
		for _, o := range overrides {
			if (o.Key == "model" || o.Key == "data.train") && o.Value != embedded.Name {
				return "", nil
			}
		}
		return configs.Read(name)
	}
}

// Describe says in lines which model is trained, and where.
func (b *Base) Describe() string {
	text := fmt.Sprintf("model: %s, backend %s, seed %d\n", b.Model, b.Backend, b.Seed) + b.Adapting.Explain() +
		b.Devices.Explain()
	if b.Chat.Plain == "text" {
		text += "plain prompts: as they are, without the model's chat template\n"
	}
	return text
}

// OtherChat is a deviation where prompts are not laid out by the model's own chat template, as they are in the papers.
func (b *Base) OtherChat() []config.Change {
	if b.Chat.Template == "" && len(b.Chat.Variables) == 0 {
		return nil
	}
	return []config.Change{{Key: "chat", Was: "the model's own template",
		Now: strings.TrimSpace(b.Chat.Template + " " + strings.Join(b.Chat.Variables, " "))}}
}

// ListDeviations prints what is not as in a source, one a line.
func ListDeviations(all []config.Change, source, where string) string {
	if len(all) == 0 {
		return fmt.Sprintf("no option deviates from the %s\n", cmp.Or(where, source+"'s"))
	}
	text := "not as in the " + cmp.Or(where, source) + ":\n"
	for _, c := range all {
		text += fmt.Sprintf("  %s: %s (%s: %s)\n", c.Key, c.Now, source, c.Was)
	}
	return text
}

// DescribeTraining says in a line how long and with which optimiser a run trains; batch is the part about batches.
func DescribeTraining(t train.Options, batch string) string {
	span := Count(t.Epochs, "epoch")
	if t.MaxSteps > 0 {
		span = Count(t.MaxSteps, "step")
	}
	clipping := "unclipped"
	if t.MaxGradNorm > 0 {
		clipping = fmt.Sprintf("at most %v", t.MaxGradNorm)
	}
	warmup := Count(t.WarmupSteps, "step")
	if t.IsUnset("warmup_steps") {
		warmup = warmupWords
	}
	return fmt.Sprintf("training: %s%s, AdamW at %v, %s of warm-up, then %s, weight decay %v, gradient norm %s, dtype "+
		"%s\n", span, batch, t.LearningRate, warmup, t.Schedule, t.WeightDecay, clipping, t.DType)
}

// DescribeBatch says how many examples an update has, and how many go through the model at a time.
func DescribeBatch(t train.Options, unit string) string {
	if t.IsUnset("batch_size") {
		return fmt.Sprintf(" of %s of the %s at a time (a power of two from %d to %d)", shareWords, unit, leastBatch,
			t.BatchSize)
	}
	micro := t.MicroBatchSize
	if micro == 0 {
		micro = t.BatchSize
	}
	return fmt.Sprintf(" of %d %s (%d at a time)", t.BatchSize, unit, micro)
}

// CheckLength refuses answers that are longer than the model, unless their length is the default, which no user gave.
func CheckLength(maxNew, byDefault, positions int) error {
	if maxNew < positions || maxNew == byDefault {
		return nil
	}
	return fault.Fault{Key: "max_new_tokens", Value: fmt.Sprint(maxNew),
		Problem: fmt.Sprintf("the model has %d positions, for prompt and answer together: want fewer", positions)}
}

// PromptLimit is the most tokens of a prompt: the configuration's (0: no limit), and room for one more in the model.
func PromptLimit(positions, most int) int {
	if most > 0 {
		return min(most, positions-1)
	}
	return positions - 1
}

// CheckOut refuses a key's data file of an unknown kind, or in a folder that does not exist.
func CheckOut(key, out string) (faults fault.Faults) {
	if out == "" {
		return nil
	}
	dir := filepath.Dir(out)
	if data.CheckWritable(out) != nil {
		faults.Add(key, out, "want a name that ends in .jsonl or .json, each also with .gz")
	} else if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		faults.Add(key, out, "there is no folder %s to write it in", dir)
	}
	return faults
}

// Count writes a number with its unit.
func Count(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}
