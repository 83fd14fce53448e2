// Package rl is the recipe of posttrain grpo, reinforcement learning with any reward, and the loop that posttrain ci-rl
// shares with it.
//
//  1. prompts are read, split into those to train on, those for validation and those for the test, and encoded
//     (parts.go, prompts.go);
//  2. the test prompts are answered and scored by the model before training (tested.go);
//  3. a step answers prompts, scores the answers and updates the weights (loop.go, packages grpo and scorer);
//  4. the test prompts are answered by the best model, and both tests are compared (run.go, report.go).
//
// A sweep repeats that for several values of a key (recipe/sweep.go).
package rl

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/fleet"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Command is the command that runs this recipe.
const Command = "grpo"

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
	Idle:    func(o *Options) []string { return o.Data.Idle() },
})

// settings are what the loop reads of the options.
func (o *Options) settings() Settings {
	return Settings{&o.Base, &o.Sampling, &o.Rollout, &o.GRPO, &o.Validation}
}

// Resolve gives the options that depend on others their defaults.
func (o *Options) Resolve(g *config.Given) { o.settings().Resolve(g) }

// Validate looks across sections.
func (o *Options) Validate(g *config.Given) {
	o.Data.CheckFiles(g)
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

// weights are those of several rewards, nil of one.
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
		fmt.Sprintf("data: %s, %s\n", o.Data.Train, o.Data.Describe()) + o.settings().Course()
}

// Resolved is everything in force as YAML, which loads to the same value.
func (o *Options) Resolved() []byte { return Spec.Resolve(o) }

// answer is a completion with its reward, as a line of the run folder has it.
type answer struct {
	Source     string    `json:"source"`
	Prompt     data.Text `json:"prompt"`
	Completion string    `json:"completion"`
	Tokens     int       `json:"tokens"`
	Cut        bool      `json:"cut,omitempty"` // at the most tokens
	Reward     float64   `json:"reward"`
	Rewards    []float64 `json:"rewards,omitempty"` // of several kinds: each
	Missing    string    `json:"why,omitempty"`     // why there is no reward
}
