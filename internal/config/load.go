package config

import (
	"fmt"
	"os"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/train"
)

// LoadMappo reads the configuration of posttrain mappo from a file. When path is "", it is the quick start of the
// embedded model on the embedded data; as soon as overrides name another model or other data, it is the general defaults,
// since the quick start's settings suit nothing but its tiny model. The error is a Faults when the file can be read and
// something is wrong with it.
func LoadMappo(path string, overrides []Override) (*Mappo, error) {
	name, text, err := read(path, CommandMappo, overrides)
	if err != nil {
		return nil, err
	}
	return ParseMappo(name, text, overrides)
}

// LoadSFT is LoadMappo for posttrain sft.
func LoadSFT(path string, overrides []Override) (*SFT, error) {
	name, text, err := read(path, CommandSFT, overrides)
	if err != nil {
		return nil, err
	}
	return ParseSFT(name, text, overrides)
}

// read gives the text of the file, or of what stands for it; the name is "" where there is no file.
func read(path, command string, overrides []Override) (name string, text []byte, err error) {
	switch {
	case path != "":
		text, err = os.ReadFile(path)
		return path, text, err
	case !quickStart(command, overrides):
		return "", []byte("command: " + command), nil
	}
	name = quickStarts[command]
	text, err = configs.Files.ReadFile(name)
	return "configs/" + name, text, err
}

// quickStarts are the files that stand for a command without flags.
var quickStarts = map[string]string{CommandMappo: "mappo.yaml", CommandSFT: "sft.yaml", CommandCIRL: "ci-rl-quickstart.yaml", CommandPrivacyLens: "privacylens-quickstart.yaml"}

// quickStart says that both the model and the data stay the embedded ones; for an evaluation, the agent and the cases.
func quickStart(command string, overrides []Override) bool {
	if command == CommandPrivacyLens {
		return !slices.ContainsFunc(overrides, func(o Override) bool {
			return section(o.Key) == "agent." || o.Key == "data.cases" && o.Value != Embedded
		})
	}
	values := map[string]string{"model": Embedded, "data.train": Embedded}
	for _, o := range overrides {
		values[o.Key] = o.Value
	}
	return values["model"] == Embedded && values["data.train"] == Embedded
}

// ParseMappo is LoadMappo of a text; name stands for the file in messages, "" where there is only the command line.
func ParseMappo(name string, text []byte, overrides []Override) (*Mappo, error) {
	l := newLoader(name, schemaFor(CommandMappo))
	if !l.parse(text) {
		return nil, l.err()
	}
	l.override(overrides)
	l.chooseLength()
	c := defaultMappo(l.lossType())
	l.decode(&c)
	settle(l, c.Data.Source, &c.Train)
	l.hold(&c)
	dropEpochs(&c.Train)
	l.checkCommon(c.Command, c.Backend, c.Data.Source, c.Data.Options, c.Train, watched)
	l.checkLoss(c)
	l.checkPlain(c)
	if err := l.err(); err != nil {
		return nil, err
	}
	return &c, nil
}

// ParseSFT is LoadSFT of a text; name stands for the file in messages.
func ParseSFT(name string, text []byte, overrides []Override) (*SFT, error) {
	l := newLoader(name, schemaFor(CommandSFT))
	if !l.parse(text) {
		return nil, l.err()
	}
	l.override(overrides)
	l.chooseLength()
	c := defaultSFT()
	l.decode(&c)
	settle(l, c.Data.Source, &c.Train)
	l.hold(&c)
	dropEpochs(&c.Train)
	l.checkCommon(c.Command, c.Backend, c.Data.Source, c.Data.Options, c.Train, watched[:1])
	l.checkWholeText(c.Data)
	if err := l.err(); err != nil {
		return nil, err
	}
	return &c, nil
}

// lossType is the loss whose defaults hold.
func (l *loader) lossType() string {
	if g, ok := l.given["loss.type"]; ok && g.isText() {
		return g.text
	}
	return losses.DPO
}

// chooseLength leaves one of train.epochs and train.max_steps where both say how long the run is: what the command line
// gives takes the place of what the file gives; both from one of them is a fault.
func (l *loader) chooseLength() {
	const epochs, steps = "train.epochs", "train.max_steps"
	if !l.above0(epochs) || !l.above0(steps) {
		return
	}
	e, s := l.given[epochs], l.given[steps]
	switch {
	case (e.form == formRaw) == (s.form == formRaw):
		l.faultOf(steps, "%s %s: %s %s says as well how long the run is; give one of the two", steps, s.text, epochs, e.text)
	case e.form == formRaw:
		delete(l.given, steps)
	default:
		delete(l.given, epochs)
	}
}

// dropEpochs takes away the epochs that max_steps stands in for, so that nothing shows them as in force.
func dropEpochs(t *train.Options) {
	if t.MaxSteps > 0 {
		t.Epochs = 0
	}
}

// checkCommon looks across the keys that all commands have. Every check is of values, not of who gave them, so that the
// resolved configuration passes as well.
func (l *loader) checkCommon(command, backend string, s Source, limits batch.Options, t train.Options, metrics []string) {
	l.checkCommand(command)
	if s.Eval != "" && s.EvalFraction != 0 {
		l.faultOf("data.eval_fraction", "data.eval_fraction %v: data.eval already names the evaluation data; remove one of the two", s.EvalFraction)
	}
	if t.BatchSize > 0 && t.MicroBatchSize > t.BatchSize {
		l.faultOf("train.micro_batch_size", "train.micro_batch_size %d: want at most train.batch_size, %d", t.MicroBatchSize, t.BatchSize)
	}
	l.checkDType(backend, t.DType)
	l.checkTruncate(limits)
	l.checkEval(s, t, metrics)
}

// checkTruncate wants the limits by which a stretch is cut.
func (l *loader) checkTruncate(o batch.Options) {
	prompt, completion, whole := o.MaxPromptTokens > 0, o.MaxCompletionTokens > 0, o.MaxTokens > 0
	const both = "data.max_tokens, or both data.max_prompt_tokens and data.max_completion_tokens"
	for _, c := range []struct {
		truncate string
		enough   bool
		needs    string
	}{
		{"prompt", prompt || whole, "data.max_prompt_tokens or data.max_tokens"},
		{"completion", completion || whole, "data.max_completion_tokens or data.max_tokens"},
		{"both", prompt && completion || whole, both},
	} {
		if o.Truncate == c.truncate && !c.enough {
			l.faultOf("data.truncate", "data.truncate %s: give the limit to cut at, %s", o.Truncate, c.needs)
		}
	}
}

// checkWholeText refuses what is about prompts where the loss is on all tokens: then there are none.
func (l *loader) checkWholeText(d DemonstrationData) {
	if d.LossOn != "all" {
		return
	}
	const why = "with data.loss_on all the whole text is the completion"
	if d.MaxPromptTokens > 0 {
		l.faultOf("data.max_prompt_tokens", "data.max_prompt_tokens %d: %s; use data.max_tokens", d.MaxPromptTokens, why)
	}
	if d.Truncate == "prompt" || d.Truncate == "both" {
		l.faultOf("data.truncate", "data.truncate %s: %s; want none or completion", d.Truncate, why)
	}
}

// watched are the metrics that may name the best checkpoint, those of which it is known where better is: a smaller loss,
// more of the rest. The first is that of every objective.
var watched = []string{"eval_" + losses.MetricLoss, "eval_" + losses.MetricAccuracies, "eval_" + losses.MetricMargins,
	"eval_" + losses.MetricLogpsChosen, "eval_" + losses.MetricRewardsChosen}

func (l *loader) checkEval(s Source, t train.Options, metrics []string) {
	switch {
	case s.HasEval() && !slices.Contains(metrics, t.EvalMetric):
		l.faultOf("train.eval_metric", "train.eval_metric %q: want %s", t.EvalMetric, list(metrics))
	case !s.HasEval() && t.EvalMetric != "":
		l.faultOf("train.eval_metric", "train.eval_metric %q: there is nothing to evaluate on; give data.eval or data.eval_fraction", t.EvalMetric)
	}
	if !s.HasEval() && t.EvalEvery > 0 {
		l.faultOf("train.eval_every", "train.eval_every %d: there is nothing to evaluate on; give data.eval or data.eval_fraction", t.EvalEvery)
	}
}

func (l *loader) checkLoss(c Mappo) {
	for _, f := range c.Loss.Validate() {
		l.faultOf("loss."+f.Key, "loss.%s", f.Error())
	}
	if c.Reference != "" && c.Loss.ReferenceFree() {
		l.faultOf("reference", "reference %q: %s uses no reference model; remove it", c.Reference, c.Loss.Type)
	}
}

// checkPlain refuses what is about rewards where the loss uses none; the defaults, which a resolved configuration names,
// are let be.
func (l *loader) checkPlain(c Mappo) {
	if c.Loss.Prior != losses.None {
		return
	}
	unused := func(key string, value any, given bool) {
		if given {
			l.faultOf(key, "%s %v: loss.prior none uses no rewards; remove it (for one run: --set %s=)", key, value, key)
		}
	}
	defaults := data.DefaultRewardOptions()
	unused("data.score_columns", c.Data.ScoreColumns, len(c.Data.ScoreColumns) > 0)
	unused("data.reward_transform", c.Data.Transform, c.Data.Transform != defaults.Transform)
	unused("data.on_negative_gap", c.Data.OnNegativeGap, c.Data.OnNegativeGap != defaults.OnNegativeGap)
}

// Resolved is everything in force as YAML, which loads to the same value.
func (c *Mappo) Resolved() []byte { return resolved(c) }

// Resolved is everything in force as YAML, which loads to the same value.
func (c *SFT) Resolved() []byte { return resolved(c) }

func resolved(config any) []byte {
	text, err := yaml.Marshal(config)
	if err != nil {
		panic(fmt.Errorf("config: %w", err)) // plain structs of words and numbers
	}
	return text
}

// CommandOf is the command that a file says it is for, "" where it does not say so.
func CommandOf(text []byte) string {
	file, err := syntax(text)
	if err != nil || len(file.Docs) == 0 {
		return ""
	}
	for _, p := range pairs(file.Docs[0].Body) {
		if key, _ := keyOf(p); key == "command" {
			return valueOf(p.Value).text
		}
	}
	return ""
}
