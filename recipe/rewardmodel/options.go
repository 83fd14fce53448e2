// Package rewardmodel is the recipe of posttrain reward-model: it trains a reward model on preference pairs, with the
// loss of Bradley and Terry.
package rewardmodel

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/track"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/train"
)

// Command is the command that runs this recipe.
const Command = "reward-model"

// Options say what is trained, on what and how.
type Options struct {
	Model    string          `yaml:"model" want:"@model" hub:"model"`
	Adapting recipe.Adapting `yaml:",inline"`
	Backend  string          `yaml:"backend" want:"@backend"`
	Devices  recipe.Devices  `yaml:"engine"`
	Seed     uint64          `yaml:"seed"`
	Data     Data            `yaml:"data"`
	Chat     local.Chat      `yaml:"chat" flags:"-"`
	Loss     Loss            `yaml:"loss"`
	Train    train.Options   `yaml:"train"`
	Tracking track.Options   `yaml:"tracking,omitempty"`
	Place    recipe.Place    `yaml:"-"`
}

// Data says where the pairs come from.
type Data struct {
	recipe.Source          `yaml:",inline"`
	data.PreferenceOptions `yaml:",inline"`
	MaxTokens              int `yaml:"max_tokens" want:">=0" zero:"no limit"` // of a prompt with its answer
}

// Loss has TRL's options of RewardConfig.
type Loss struct {
	// none, or scores: the difference of the answers' scores, or the column margin, is the pair's margin
	Margin string `yaml:"margin" want:"none|scores"`
	// margins are multiplied by it
	MarginScale float64 `yaml:"margin_scale" want:">0"`
	// weight of (r(chosen) + r(rejected))², which holds scores near 0
	Center float64 `yaml:"center_rewards_coefficient" want:">=0"`
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command:    Command,
	QuickStart: recipe.QuickStart("reward-model.yaml"),
	Choose:     recipe.ChooseLength,
	Defaults:   func(*config.Given) Options { return Defaults() },
	Settle:     func(g *config.Given, o *Options) { o.Adapting.Settle(g, ""); recipe.Settle(g, o.Data.Source, &o.Train) },
	Check:      check,
})

// Defaults are the field's settings; the caller gives model and data.
func Defaults() Options {
	t := train.Defaults()
	t.EvalMetric = "" // settled with the evaluation data
	t.BatchSize, t.LearningRate, t.Epochs = 32, 1e-5, 1
	return Options{Backend: "auto", Loss: Loss{Margin: "none", MarginScale: 1}, Train: t}
}

// watched are the metrics that may name the best checkpoint.
var watched = []string{"eval_" + losses.MetricLoss, "eval_" + train.MetricAccuracy, "eval_" + train.MetricMargin}

func check(g *config.Given, o *Options) {
	recipe.CheckDType(g, o.Backend, o.Train)
	o.Devices.CheckDevices(g, o.Backend)
	recipe.CheckEval(g, o.Data.Source, o.Train, watched)
	const why = "a reward model is trained whole, adapters of one are not supported: remove it"
	if o.Adapting.LoRA.Rank > 0 {
		g.Fault("lora.rank", "lora.rank %d: %s", o.Adapting.LoRA.Rank, why)
	}
	if o.Adapting.Adapter != "" {
		g.Fault("adapter", "adapter %s: %s", o.Adapting.Adapter, why)
	}
	if o.Loss.Margin == "none" && o.Loss.MarginScale != 1 {
		g.Fault("loss.margin_scale", "loss.margin_scale %v: without loss.margin scores there is no margin; remove it",
			o.Loss.MarginScale)
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
	fmt.Fprintf(&s, "model: %s, with a new head unless it is a reward model, backend %s, seed %d\n", o.Model, o.Backend,
		o.Seed)
	fmt.Fprintf(&s, "%sdata: %s\n", o.Devices.Explain(), o.Data.Source)
	s.WriteString(recipe.DescribeTraining(o.Train, recipe.DescribeBatch(o.Train, "pairs")))
	return s.String()
}

// Resolved is everything in force as YAML, which loads to the same value.
func (o *Options) Resolved() []byte { return Spec.Resolve(o) }
