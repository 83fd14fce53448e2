// Package sft is the recipe of posttrain sft: supervised fine-tuning on demonstrations.
package sft

import (
	"fmt"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
)

// Command is the command that runs this recipe.
const Command = "sft"

// Options say what is trained, on what and how.
type Options struct {
	recipe.Base `yaml:",inline" defaults:"train.batch_size=32 train.learning_rate=2e-5 train.share_prefix="`
	Data        Data `yaml:"data"`
}

// Data says where the demonstrations come from, and which of their tokens the loss is on.
type Data struct {
	recipe.Source `yaml:",inline"`
	LossOn        string `yaml:"loss_on" want:"completion|turns|last|all" default:"completion" help:"of messages: what the chat template marks with generation tags, or without them all turns of the assistant (completion); all turns, marked or not; the last; or all tokens"`
	batch.Options `yaml:",inline"`
}

// Spec says how a configuration becomes Options. A demonstration has one answer: it shares its prompt with no other.
var Spec = config.Register(&config.Spec[Options]{
	Command:    Command,
	QuickStart: recipe.QuickStart("sft.yaml"),
	Without:    []string{"train.share_prefix"},
})

// Resolve chooses the metric, and the rate that is usual.
func (o *Options) Resolve(g *config.Given) {
	o.EvaluateOn(g, o.Data.Source)
	o.UseRate(Command)
}

// Validate looks across sections.
func (o *Options) Validate(g *config.Given) {
	o.CheckEval(g, o.Data.Source, []string{"eval_" + losses.MetricLoss})
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
	tokens := map[string]string{"completion": "the completions'", "turns": "all turns'", "last": "the last messages'",
		"all": "all"}[o.Data.LossOn]
	return fmt.Sprintf("objective: mean negative log-likelihood, -logπ(token), of %s tokens of a batch\n"+
		"%sdata: %s\n", tokens, o.Base.Describe(), o.Data.Source) +
		recipe.DescribeTraining(o.Train, recipe.DescribeBatch(o.Train, "demonstrations"))
}

// Resolved is everything in force as YAML, which loads to the same value.
func (o *Options) Resolved() []byte { return Spec.Resolve(o) }
