// Package preference is the recipe of posttrain mappo: it trains a model on preference pairs with a loss of the DPO
// family, with the MaPPO prior (arXiv 2507.21183) or without.
package preference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
)

// Command is the command that runs this recipe.
const Command = "mappo"

// Options say what is trained, on what and how.
type Options struct {
	// where the pairs come from: a file, or answers that the model gives while it trains; "": offline
	Mode        string `yaml:"mode,omitempty" want:"|offline|online" words:"offline or online" flag:"mode" help:"offline: pairs of a file; online: pairs of the model's own answers"`
	recipe.Base `yaml:",inline" defaults:"train.batch_size=128 train.learning_rate=5e-7 train.warmup_steps=100 train.weight_decay=0.01" paper:"adapter= lora.rank=0 quantize= train.moments= train.batch_size=128 train.learning_rate=5e-7 train.warmup_steps=100 train.weight_decay=0.01 train.dtype=bfloat16"`
	Reference   string         `yaml:"reference" hub:"model" words:"a model folder, org/name on the hub, or nothing" flag:"reference" help:"folder of the reference model; empty: the model before training"`
	Data        Data           `yaml:"data"`
	Loss        losses.Options `yaml:"loss"`
	Online      Online         `yaml:"online"` // of mode online alone
}

// Data says where the pairs come from. With prior none the options of scores and rewards keep their defaults: rewards
// show in the logged prior/reward_gap and do nothing else.
type Data struct {
	recipe.Source          `yaml:",inline"`
	data.PreferenceOptions `yaml:",inline"`
	data.RewardOptions     `yaml:",inline"`
	batch.Options          `yaml:",inline"`
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command:    Command,
	QuickStart: quickStart,
})

// onlineKey is the section, and the mode, of online training.
const onlineKey = "online"

func (o *Options) isOnline() bool { return o.Mode == onlineKey }

// quickStart is the released file of the mode.
func quickStart(overrides []config.Override) (string, []byte) {
	name := "mappo.yaml"
	if slices.ContainsFunc(overrides, func(o config.Override) bool { return o.Key == "mode" && o.Value == onlineKey }) {
		name = "mappo-online.yaml"
	}
	return recipe.QuickStart(name)(overrides)
}

// Idle are the keys of the other mode.
func (o *Options) Idle(*config.Given) config.Idle {
	if o.isOnline() {
		return config.Idle{"train.max_steps": ""}
	}
	return config.Idle{onlineKey: "the pairs come from a file; remove it, or set mode online"}
}

// Resolve gives the options that depend on others their defaults.
func (o *Options) Resolve(g *config.Given) {
	o.EvaluateOn(g, o.Data.Source)
	o.UseRate(Command)
	if o.Mode == "offline" {
		o.Mode = ""
	}
	if o.isOnline() {
		o.Online.Depend(g.In(onlineKey+"."), o.Model, o.Data.TrainFiles.String())
	}
}

// watched are the metrics that may name the best checkpoint: a smaller loss is better, and more of the rest.
var watched = []string{"eval_" + losses.MetricLoss, "eval_" + losses.MetricAccuracies, "eval_" + losses.MetricMargins,
	"eval_" + losses.MetricLogpsChosen, "eval_" + losses.MetricRewardsChosen}

// Validate looks across sections. It checks values, not who gave them, so that the resolved configuration passes as
// well.
func (o *Options) Validate(g *config.Given) {
	metrics := watched
	if o.Loss.Unpaired() {
		metrics = slices.DeleteFunc(slices.Clone(watched), func(m string) bool {
			return m == "eval_"+losses.MetricAccuracies // of pairs
		})
		if o.Train.BatchSize < 2 {
			g.Fault("train.batch_size", "train.batch_size %d: kto measures answers of a batch to other prompts of it: "+
				"want 2 or more", o.Train.BatchSize)
		}
	}
	o.CheckEval(g, o.Data.Source, metrics)
	if o.Reference != "" && o.Loss.ReferenceFree() {
		g.Fault("reference", "reference %q: %s uses no reference model; remove it", o.Reference, o.Loss.Type)
	}
	if o.Loss.Prior == losses.None {
		o.Data.CheckPlain(g)
	}
	o.checkMode(g)
}

// checkMode refuses options that have no effect in the mode.
func (o *Options) checkMode(g *config.Given) {
	if !o.isOnline() {
		return
	}
	if o.Loss.Unpaired() {
		g.Fault("loss.type", "loss.type %s: in mode online the answers to a prompt are paired: want a loss of pairs",
			o.Loss.Type)
	}
	if o.Data.EvalFraction > 0 {
		g.Fault("data.eval_fraction", "data.eval_fraction %v: in mode online the pairs are made while the model "+
			"trains: want data.eval, a file of pairs, or neither", o.Data.EvalFraction)
	}
	if o.Data.EvalFile == "" && len(o.Data.ScoreColumns) > 0 {
		g.Fault("data.score_columns", "data.score_columns %s: in mode online online.reward scores, and there is no "+
			"data.eval; remove it", strings.Join(o.Data.ScoreColumns, ","))
	}
	if o.Train.MaxSteps > 0 {
		g.Fault("train.max_steps", "train.max_steps %d: in mode online each round makes train.epochs passes over its "+
			"pairs, however many there are; for fewer steps want online.prompts (of all rounds), online.rounds or "+
			"train.epochs in its place", o.Train.MaxSteps)
	}
	if o.Train.Patience > 0 {
		g.Fault("train.patience", "train.patience %d: in mode online a round ends with its pairs: want mode offline, or "+
			"no patience", o.Train.Patience)
	}
	if o.Reference != "" && o.Online.Reference == eachRound {
		g.Fault("reference", "reference %q: online.reference round takes the model before each round; remove one of "+
			"the two", o.Reference)
	}
	if o.Loss.ReferenceFree() && o.Online.Reference == eachRound {
		g.Fault("online.reference", "online.reference round: %s uses no reference model; remove it", o.Loss.Type)
	}
	if !o.Data.TrainFiles.Are(embedded.Name) && g.Has("online.scenarios") && o.Online.Scenarios > 0 {
		g.Fault("online.scenarios", "online.scenarios %d: only embedded scenarios are made to a number, and "+
			"data.train is %s; remove it", o.Online.Scenarios, o.Data.TrainFiles)
	}
	if o.Data.TrainFiles.Are(embedded.Name) && o.Online.Scenarios < 3 {
		g.Fault("online.scenarios", "online.scenarios %d: want 3 or more", o.Online.Scenarios)
	}
}

// CheckPlain refuses options of rewards for a loss that uses none. It accepts their defaults, which a resolved
// configuration names. prefix is what the keys have before "data.".
func (d Data) CheckPlain(g *config.Given) {
	unused := func(key string, value any, given bool) {
		if given {
			g.Refuse(key, value, "%s none uses no rewards; remove it (for one run: --set %s=)", g.Key("loss.prior"), g.Key(key))
		}
	}
	defaults := data.DefaultRewardOptions()
	unused("data.score_columns", d.ScoreColumns, len(d.ScoreColumns) > 0)
	unused("data.reward_transform", d.Transform, d.Transform != defaults.Transform)
	unused("data.reward_range", d.Range, len(d.Range) > 0)
	unused("data.reward_temperature", d.Temperature, d.Temperature > 0)
	unused("data.on_negative_gap", d.OnNegativeGap, d.OnNegativeGap != defaults.OnNegativeGap)
}

// Explain says in words what the options train: the objective as a formula with its numbers, the training around it,
// and every option that is not the paper's. Its lines end in \n.
func (o *Options) Explain() string {
	var s strings.Builder
	s.WriteString(o.Loss.Describe())
	s.WriteString(o.Base.Describe())
	if !o.Loss.ReferenceFree() {
		fmt.Fprintf(&s, "reference: %s, its log-probabilities computed once ahead of %s\n", o.describeReference(),
			map[bool]string{false: "training", true: "each round"}[o.isOnline()])
	}
	if o.isOnline() {
		s.WriteString(o.Online.Explain(o.Data.TrainFiles.String()))
	}
	if !o.isOnline() || o.Data.EvalFile != "" {
		fmt.Fprintf(&s, "data: %s\n", o.Data.Source)
	}
	s.WriteString(recipe.DescribeTraining(o.Train, recipe.DescribeBatch(o.Train, o.unit())))
	s.WriteString(recipe.ListDeviations(o.Deviations(), "paper", "") + o.leftOpen())
	return s.String()
}

// unit names several examples.
func (o *Options) unit() string {
	if o.Loss.Unpaired() {
		return "answers"
	}
	return "pairs"
}

func (o *Options) describeReference() string {
	if o.isOnline() && o.Online.Reference == eachRound {
		return "the model before each round"
	}
	return cmp.Or(o.Reference, before)
}

const before = "the model before training"

// leftOpen are the choices in force that the paper leaves open, and what cannot be compared with it.
func (o *Options) leftOpen() string {
	t, choices := o.Train, []string{}
	choice := func(key string, value any) { choices = append(choices, fmt.Sprint(key, " ", value)) }
	if choice("train.schedule", t.Schedule); t.MaxSteps == 0 {
		choice("train.epochs", t.Epochs)
	}
	choice("train.max_grad_norm", t.MaxGradNorm)
	if o.Loss.NeedsGap() {
		choice("data.on_negative_gap", o.Data.OnNegativeGap)
	}
	if o.Data.MaxTokens > 0 {
		choice("data.max_tokens", o.Data.MaxTokens)
	}
	pairs := "the pairs (paper: best and worst of the model's own 8 answers to prompts of " + paperPrompts + ") and "
	if o.isOnline() { // online.samples and other keys say it
		choice("online.reference", o.Online.Reference)
		choice("online.max_new_tokens", o.Online.MaxNew)
		pairs = ""
	}
	return "the paper does not say: " + strings.Join(choices, ", ") + "\nnot compared: " + pairs +
		"the reward model (FsfairX)\n"
}

// paperPrompts is the data set of the paper's prompts, footnote 3.
const paperPrompts = "RLHFlow/UltraFeedback-preference-standard"

// Deviations are the options that are not the paper's, the loss's own among them.
func (o *Options) Deviations() []config.Change {
	all := o.Loss.Deviations()
	differ := func(key string, value, paper any) {
		if value != paper {
			all = append(all, config.Change{Key: key, Was: fmt.Sprint(paper), Now: fmt.Sprint(value)})
		}
	}
	if !o.Loss.ReferenceFree() {
		differ("reference", o.describeReference(), before)
	}
	if o.Loss.NeedsGap() {
		if o.Data.Transform != data.TransformLogistic {
			differ("data.reward_transform", o.Data.Transform, "logistic, of the reward model's own scores")
		}
		differ("data.reward_temperature", cmp.Or(o.Data.Temperature, 1), 1.0)
	}
	if o.Train.IsUnset("batch_size") || o.Train.IsUnset("warmup_steps") {
		all = append(all, config.Change{Key: "train.batch_size, train.warmup_steps", Was: "128, 100",
			Now: "by the data"})
	}
	if from := o.Data.TrainFiles.String(); o.isOnline() && strings.FieldsFunc(from+":", func(r rune) bool {
		return r == ':' || r == '@'
	})[0] != paperPrompts {
		differ("data.train", from, paperPrompts)
	}
	all = append(all, slices.DeleteFunc(Spec.Departures(o), func(c config.Change) bool {
		return strings.HasPrefix(c.Key, onlineKey+".") && !o.isOnline()
	})...)
	return append(all, o.OtherChat()...)
}

// Resolved is everything in force as YAML, which loads to the same value.
func (o *Options) Resolved() []byte { return Spec.Resolve(o) }
