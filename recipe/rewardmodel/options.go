// Package rewardmodel is the recipe of posttrain reward-model: it trains a reward model on preference pairs, with the
// loss of Bradley and Terry.
package rewardmodel

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// Command is the command that runs this recipe.
const Command = "reward-model"

// Options say what is trained, on what and how.
type Options struct {
	recipe.Base `yaml:",inline" defaults:"train.batch_size=32 train.learning_rate=1e-5"`
	Data        Data `yaml:"data"`
	Loss        Loss `yaml:"loss"`
}

// Data says where the pairs come from.
type Data struct {
	recipe.Source          `yaml:",inline"`
	data.PreferenceOptions `yaml:",inline"`
	MaxTokens              int `yaml:"max_tokens" want:">=0" zero:"no limit" help:"longest prompt + answer kept; 0: no limit"`
}

// Loss has TRL's options of RewardConfig.
type Loss struct {
	Margin      string  `yaml:"margin" want:"none|scores" default:"none" flag:"margin" help:"none, or scores: the chosen answer should win by the difference of the scores"`
	MarginScale float64 `yaml:"margin_scale" want:">0" default:"1" help:"margins are multiplied by it"`
	Center      float64 `yaml:"center_rewards_coefficient" want:">=0" help:"weight of (r(chosen) + r(rejected))², which holds scores near 0"`
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command:    Command,
	QuickStart: recipe.QuickStart("reward-model.yaml"),
	Without:    []string{"train.show_samples"}, // a reward model answers nothing
})

// watched are the metrics that may name the best checkpoint.
var watched = []string{"eval_" + losses.MetricLoss, "eval_" + train.MetricAccuracy, "eval_" + train.MetricMargin}

// Resolve chooses the metric, and the rate that is usual.
func (o *Options) Resolve(g *config.Given) {
	o.EvaluateOn(g, o.Data.Source)
	o.UseRate(Command)
}

// Validate looks across sections.
func (o *Options) Validate(g *config.Given) {
	o.CheckEval(g, o.Data.Source, watched)
	if o.Loss.Margin == "none" && o.Loss.MarginScale != 1 {
		g.Refuse("loss.margin_scale", o.Loss.MarginScale, "without loss.margin scores there is no margin; remove it")
	}
	if o.Loss.Margin == "none" && len(o.Data.ScoreColumns) > 0 {
		g.Refuse("data.score_columns", o.Data.ScoreColumns, "without loss.margin scores no scores are used; remove it")
	}
}

// Explain says in words what the options train. Its lines end in \n.
func (o *Options) Explain() string {
	var s strings.Builder
	s.WriteString("objective: mean over the pairs of a batch of -log σ(r(chosen) - r(rejected)")
	if o.Loss.Margin == "scores" {
		s.WriteString(" - margin")
	}
	s.WriteString(")")
	if o.Loss.Center > 0 {
		fmt.Fprintf(&s, " + %v·(r(chosen) + r(rejected))²", o.Loss.Center)
	}
	s.WriteString(" (Bradley and Terry)\nr: the score that the head gives the last token of the conversation\n")
	if o.Loss.Margin == "scores" {
		fmt.Fprintf(&s, "margin: %v times the difference of the answers' scores\n", o.Loss.MarginScale)
	}
	fmt.Fprintf(&s, "head: a new one, unless the model is a reward model; trained whole, also beside an adapter\n%sdata: %s\n", o.Base.Describe(), o.Data.Source)
	s.WriteString(recipe.DescribeTraining(o.Train, recipe.DescribeBatch(o.Train, "pairs")))
	return s.String()
}

// Resolved is everything in force as YAML, which loads to the same value.
func (o *Options) Resolved() []byte { return Spec.Resolve(o) }
