// Package sft is the recipe of posttrain sft: supervised fine-tuning on demonstrations.
package sft

import (
	"fmt"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/track"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/train"
)

// Command is the command that runs this recipe.
const Command = "sft"

// Options say what is trained, on what and how.
type Options struct {
	Model    string          `yaml:"model" want:"@model" hub:"model"`
	Adapting recipe.Adapting `yaml:",inline"`
	Backend  string          `yaml:"backend" want:"@backend"`
	Devices  recipe.Devices  `yaml:"engine"`
	Seed     uint64          `yaml:"seed"`
	Data     Data            `yaml:"data"`
	Chat     local.Chat      `yaml:"chat" flags:"-"`
	Train    train.Options   `yaml:"train"`
	Tracking track.Options   `yaml:"tracking,omitempty"`
	Place    recipe.Place    `yaml:"-"`
}

// Data says where the demonstrations come from, and which of their tokens the loss is on.
type Data struct {
	recipe.Source `yaml:",inline"`
	LossOn        string `yaml:"loss_on" want:"completion|last|all"`
	batch.Options `yaml:",inline"`
}

// Spec says how a configuration becomes Options. A demonstration has one answer: it shares its prompt with no other.
var Spec = config.Register(&config.Spec[Options]{
	Command:    Command,
	QuickStart: recipe.QuickStart("sft.yaml"),
	Without:    []string{"train.share_prefix"},
	Choose:     recipe.ChooseLength,
	Defaults:   func(*config.Given) Options { return Defaults() },
	Settle:     func(g *config.Given, o *Options) { o.Adapting.Settle(g, ""); recipe.Settle(g, o.Data.Source, &o.Train) },
	Check:      check,
})

// Defaults are the field's settings; the caller gives model and data.
func Defaults() Options {
	t := train.Defaults()
	t.EvalMetric = "" // settled with the evaluation data
	t.BatchSize, t.LearningRate, t.SharePrefix = 32, 2e-5, ""
	return Options{Backend: "auto", Data: Data{LossOn: "completion", Options: batch.Defaults()}, Train: t}
}

func check(g *config.Given, o *Options) {
	recipe.CheckDType(g, o.Backend, o.Train)
	o.Devices.CheckDevices(g, o.Backend)
	recipe.CheckEval(g, o.Data.Source, o.Train, []string{"eval_" + losses.MetricLoss})
}

// Check refuses what is about prompts if the loss is on all tokens: then there are no prompts.
func (d Data) Check() []fault.Fault {
	var faults fault.Faults
	const why = "with data.loss_on all the whole text is the completion"
	if d.LossOn == "all" && d.MaxPromptTokens > 0 {
		faults.Add("max_prompt_tokens", d.MaxPromptTokens, why+"; use data.max_tokens")
	}
	if d.LossOn == "all" && (d.Truncate == "prompt" || d.Truncate == "both") {
		faults = append(faults, fault.Fault{Key: "truncate", Value: d.Truncate,
			Problem: why + "; want none or completion"})
	}
	return faults
}

// Explain says in words what the options train. Its lines end in \n.
func (o *Options) Explain() string {
	tokens := map[string]string{"completion": "the completions'", "last": "the last messages'",
		"all": "all"}[o.Data.LossOn]
	return fmt.Sprintf("objective: mean negative log-likelihood, -logπ(token), of %s tokens of a batch\n"+
		"model: %s, backend %s, seed %d\n%s%sdata: %s\n", tokens, o.Model, o.Backend, o.Seed, o.Adapting.Explain(),
		o.Devices.Explain(), o.Data.Source) +
		recipe.DescribeTraining(o.Train, recipe.DescribeBatch(o.Train, "demonstrations"))
}

// Resolved is everything in force as YAML, which loads to the same value.
func (o *Options) Resolved() []byte { return Spec.Resolve(o) }
