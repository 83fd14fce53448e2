package recipe

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/train"
)

// Source says where examples come from: files, relative to the working directory, or data sets of the hub, such as
// org/name:config:split.
type Source struct {
	Mix `yaml:",inline"`
	// for evaluation; empty: none
	Eval string `yaml:"eval" hub:"data" words:"a .jsonl, .json or .parquet file (also .gz)"`
	// the share of Train that is held out for evaluation; excludes Eval
	EvalFraction float64 `yaml:"eval_fraction" want:">=0 <1"`
}

// Check refuses two sources of evaluation data.
func (s Source) Check() []fault.Fault {
	faults := fault.Check(s)
	if s.Eval != "" && s.EvalFraction != 0 {
		faults.Add("eval_fraction", s.EvalFraction, "data.eval already names the evaluation data; remove one of the "+
			"two")
	}
	return faults
}

// HasEval says that there are examples to evaluate on.
func (s Source) HasEval() bool { return s.Eval != "" || s.EvalFraction > 0 }

// String describes the source in a phrase.
func (s Source) String() string {
	switch {
	case s.Eval != "":
		return fmt.Sprintf("%s, evaluated on %s", s.Describe(), s.Eval)
	case s.EvalFraction > 0:
		return fmt.Sprintf("%s, of which %v is held out for evaluation", s.Describe(), s.EvalFraction)
	}
	return s.Describe() + ", no evaluation"
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
		return ReleasedConfig(name)
	}
}

// ReleasedConfig is a file of the folder configs, with its name for messages.
func ReleasedConfig(name string) (string, []byte) {
	text, err := configs.Files.ReadFile(name)
	if err != nil {
		panic(err) // the files are part of the program
	}
	return "configs/" + name, text
}

// ChooseLength leaves one of train.epochs and train.max_steps where both say how long the run is: the command line wins
// over the file; both from one of them is a fault.
func ChooseLength(g *config.Given) {
	const epochs, steps = "train.epochs", "train.max_steps"
	if g.Text(epochs) == "0" {
		g.Fault(epochs, "%s 0: want a whole number, 1 or more", epochs)
	}
	if !g.Positive(epochs) || !g.Positive(steps) {
		return
	}
	switch e, s := g.FromCommandLine(epochs), g.FromCommandLine(steps); {
	case e == s:
		g.Fault(steps, "%s %s: %s %s also says how long the run is; give one of the two",
			steps, g.Text(steps), epochs, g.Text(epochs))
	case e:
		g.Drop(steps)
	default:
		g.Drop(epochs)
	}
}

// ChoosePrompt forgets the text of a template that the file has where the command line names another form of prompts.
// prefix is that of the section's keys, such as "data.".
func ChoosePrompt(g *config.Given, prefix string) {
	if g.FromCommandLine(prefix+"prompt") && !g.FromCommandLine(prefix+"template") {
		g.Drop(prefix + "template")
	}
}

// CheckPrompt reads the template that a form of prompts names, and refuses one that gives no prompts or that the run's
// config could not keep.
func CheckPrompt(g *config.Given, prefix string, f *ci.Form) {
	key := prefix + "prompt"
	if g.Bad(key) {
		return
	}
	err := f.Load()
	if err == nil {
		if err = config.CheckBounds([]byte(f.Template)); err != nil {
			err = fmt.Errorf("%s: %w", f.Prompt, err)
		}
	}
	if err != nil {
		g.Fault(key, "%s: %v", key, err)
	}
}

// defaultMicroBatch bounds the memory of a step where the user does not.
const defaultMicroBatch = 8

// Settle gives the training options that depend on others their defaults.
func Settle(g *config.Given, s Source, t *train.Options) {
	if !g.Has("train.micro_batch_size") {
		t.MicroBatchSize = min(defaultMicroBatch, max(t.BatchSize, 0))
	}
	if !g.Has("train.eval_metric") && s.HasEval() {
		t.EvalMetric = "eval_loss"
	}
	DropEpochs(t)
}

// DropEpochs removes the epochs where max_steps replaces them, so that nothing shows them as in force.
func DropEpochs(t *train.Options) {
	if t.MaxSteps > 0 {
		t.Epochs = 0
	}
}

// CheckDType refuses bfloat16 where the engine has none.
func CheckDType(g *config.Given, backend string, t train.Options) {
	if engine, _, _ := strings.Cut(backend, ":"); engine != "go" && engine != "onnx" {
		return
	}
	if t.DType == "bfloat16" {
		g.Fault("train.dtype", "train.dtype bfloat16: backend %s computes in float32, only xla can do bfloat16",
			backend)
	}
	if t.Moments == "bfloat16" {
		g.Fault("train.moments", "train.moments bfloat16: backend %s keeps them in float32, only xla can keep bfloat16",
			backend)
	}
}

// CheckEval wants a metric that is measured, and no evaluation without examples.
func CheckEval(g *config.Given, s Source, t train.Options, metrics []string) {
	const mend = "there is nothing to evaluate on; give data.eval or data.eval_fraction"
	switch {
	case s.HasEval() && !slices.Contains(metrics, t.EvalMetric):
		g.Fault("train.eval_metric", "train.eval_metric %q: want %s", t.EvalMetric, fault.Or(metrics))
	case !s.HasEval() && t.EvalMetric != "":
		g.Fault("train.eval_metric", "train.eval_metric %q: %s", t.EvalMetric, mend)
	}
	if !s.HasEval() && t.EvalEvery > 0 {
		g.Fault("train.eval_every", "train.eval_every %d: %s", t.EvalEvery, mend)
	}
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
	return fmt.Sprintf("training: %s%s, AdamW at %v, %s of warm-up, then %s, weight decay %v, gradient norm %s, dtype "+
		"%s\n",
		span, batch, t.LearningRate, Count(t.WarmupSteps, "step"), t.Schedule, t.WeightDecay, clipping, t.DType)
}

// DescribeBatch says how many examples an update has, and how many go through the model at a time.
func DescribeBatch(t train.Options, unit string) string {
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

// CheckOut refuses a data file of an unknown kind, or in a folder that does not exist.
func CheckOut(out string) (faults fault.Faults) {
	if out == "" {
		return nil
	}
	dir := filepath.Dir(out)
	if data.CheckWritable(out) != nil {
		faults.Add("out", out, "want a name that ends in .jsonl, .json or .parquet, each also with .gz")
	} else if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		faults.Add("out", out, "there is no folder %s to write it in", dir)
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
