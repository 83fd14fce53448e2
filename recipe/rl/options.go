// Package rl is the recipe of reinforcement learning from rewards: posttrain grpo with any prompts and rewards, and
// posttrain ci-rl, which is the same with contextual-integrity items, their keyword reward, and episodes with tools.
//
//  1. prompts are read, split into those to train on, those for validation and those for the test, and encoded: plain ones
//     (prompts.go), items (items.go) or the beginnings of episodes (agent.go), in parts (parts.go);
//  2. the test prompts are answered and scored by the model before training (tested.go);
//  3. a step answers prompts, scores the answers and updates the weights (loop.go, packages ask and grpo);
//  4. the test prompts are answered by the best model, and both tests are compared (run.go, report.go).
//
// A sweep repeats that for several values of a key (recipe/sweep.go).
package rl

import (
	"context"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/fleet"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// The commands that run this recipe.
const (
	Command   = "grpo"
	CICommand = "ci-rl"
)

// Options say what is trained, on what and how. A training step is a rollout batch with its updates.
type Options struct {
	recipe.Base `yaml:",inline" defaults:"train.epochs=1 train.learning_rate=1e-6 train.schedule=constant train.weight_decay=0 train.checkpoint_every=50 train.share_prefix="`
	Data        Data                   `yaml:"data"`
	Sampling    Sampling               `yaml:"sampling" defaults:"max_new_tokens=256"`
	Rollout     fleet.Options          `yaml:"rollout,omitempty"`
	Reward      scorer.Options         `yaml:"reward"`
	GRPO        grpo.Options           `yaml:"grpo" defaults:"prompts_per_step=8 group_size=8"`
	Validation  grpo.ValidationOptions `yaml:"validation" defaults:"every=50"`
}

// Data says where the prompts come from. Paths are relative to the working directory.
type Data struct {
	recipe.Files    `yaml:",inline"`
	Parts           `yaml:",inline"`
	MaxPromptTokens int `yaml:"max_prompt_tokens" want:">=0" default:"768" paper:"768" help:"longer prompts are dropped and counted; 0: no limit"`
}

// Check looks across the keys of the section.
func (d Data) Check() []fault.Fault {
	var faults fault.Faults
	d.CheckShares(&faults)
	return faults
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command: Command,
	Without: append([]string{"reward.ci.format", "reward.ci.match"}, Unused...),
})

// settings are what the loop reads of the options.
func (o *Options) settings() Settings {
	return Settings{Command: Command, Title: "GRPO", Base: &o.Base, Sampling: &o.Sampling, Rollout: &o.Rollout,
		GRPO: &o.GRPO, Validation: &o.Validation, Files: o.Data.Files, Parts: o.Data.Parts,
		MaxPromptTokens: o.Data.MaxPromptTokens}
}

func (o *Options) verify() error { return Spec.Verify(o) }

// try scores an answer to the first prompt. What is wrong with the data is for the reader to say.
func (o *Options) try(ctx context.Context) error {
	if o.Data.TrainFiles.Are(embedded.Name) {
		return o.Reward.Try(ctx, ask.Question{Prompt: data.Text{Plain: "A prompt to try."}})
	}
	for row, err := range data.StreamPrompts(nil, o.Data.TrainFiles[0], o.Data.Columns...).All() {
		if err != nil {
			break
		}
		return o.Reward.Try(ctx, ask.Of(row))
	}
	return nil
}

func (o *Options) task(l *loop) (task, error) { return &prompts{loop: l, o: o}, nil }

// Idle are the shares of parts that have files.
func (o *Options) Idle(g *config.Given) config.Idle { return o.Data.Unshared(g) }

// Resolve gives the options that depend on others their defaults.
func (o *Options) Resolve(g *config.Given) { o.settings().Resolve(g) }

// Validate looks across sections.
func (o *Options) Validate(g *config.Given) {
	o.settings().Validate(g)
	if o.Reward.Has(scorer.CI) && !g.Bad("reward.kind") {
		g.Fault("reward.kind", "reward.kind %s: the reward ci is that of `posttrain ci-rl`: want command, judge, "+
			"model, exact or pattern", o.Reward.Kind)
	}
	if o.GRPO.Combine == grpo.EachReward && len(o.Reward.Kinds()) < 2 {
		g.Fault("grpo.combine", "grpo.combine each: reward.kind %s is one reward: want several, or no grpo.combine",
			o.Reward.Kind)
	}
}

// weights are the weights of several rewards, nil of one.
func (o *Options) weights() []float64 {
	if len(o.Reward.Kinds()) < 2 && len(o.Reward.Weights) == 0 {
		return nil
	}
	return o.Reward.Weigh()
}

// Explain says in plain text what the configuration trains: the reward and the objective as formulas with their
// numbers, and the training around them. Its lines end in \n.
func (o *Options) Explain() string {
	var terms []string
	for k, kind := range o.Reward.Kinds() {
		terms = append(terms, fmt.Sprintf("%v·%s", o.Reward.Weigh()[k], kind))
	}
	text := "objective: GRPO on rewards of the command line\n  R = " + strings.Join(terms, " + ") + "\n"
	if o.GRPO.Combine == grpo.EachReward {
		text += "  A is the weighted sum of each reward's own, divided by its std over the step\n"
	}
	return text + o.settings().Objective() + o.Base.Describe() +
		fmt.Sprintf("data: %s, %s\n", o.Data.Names(), o.Data.Describe()) + o.settings().DescribeTraining()
}

// Resolved is everything in force as YAML, which loads to the same value.
func (o *Options) Resolved() []byte { return Spec.Resolve(o) }
