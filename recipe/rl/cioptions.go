package rl

import (
	"context"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout/fleet"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// CI are the options of ci-rl: what is trained, on what and how. A training step is a rollout batch with its updates.
type CI struct {
	// The tags paper are the released run; ciexplain.go adds what the paper says.
	recipe.Base `yaml:",inline" defaults:"train.epochs=150 train.learning_rate=1e-6 train.schedule=constant train.weight_decay=0.01 train.checkpoint_every=240 train.share_prefix=" paper:"adapter= lora.rank=0 lora.alpha=0 lora.rslora=false lora.targets= quantize= train.epochs=150 train.max_steps=0 train.learning_rate=1e-6 train.schedule=constant train.warmup_steps=0 train.weight_decay=0.01 train.adam_beta1=0.9 train.adam_beta2=0.999 train.adam_epsilon=1e-8 train.max_grad_norm=4 train.dtype=bfloat16 train.moments= train.shuffle=true"`
	Data        CIData                 `yaml:"data"`
	Agent       Agent                  `yaml:"agent,omitempty"`
	Sampling    Sampling               `yaml:"sampling"`
	Rollout     fleet.Options          `yaml:"rollout,omitempty"`
	Reward      reward.Options         `yaml:"reward"`
	Judge       scorer.JudgeOptions    `yaml:"judge,omitempty" defaults:"range=0,1" flags:"-"`
	GRPO        grpo.Options           `yaml:"grpo" paper:"importance_cap=0 norm_length=0"`
	Validation  grpo.ValidationOptions `yaml:"validation"`
}

// CIData says where the items come from, and how they become prompts. Paths are relative to the working directory.
type CIData struct {
	recipe.Files    `yaml:",inline"`
	Scenarios       int    `yaml:"scenarios,omitempty" want:">=0" words:"a whole number, 3 or more" help:"how many embedded scenarios are made, those for validation and test included (2000)"`
	Items           string `yaml:"items,omitempty" want:"|all|released" words:"all or released" paper:"released" help:"items of the files: those that the released preprocessing keeps, or all"`
	Parts           `yaml:",inline"`
	ci.Form         `yaml:",inline" paper:"prompt=released prefill=true"`
	MaxPromptTokens int `yaml:"max_prompt_tokens" want:">=0" default:"768" paper:"768" help:"longer prompts are dropped and counted; 0: no limit"`
}

// settings are what the loop reads of the options.
func (o *CI) settings() Settings {
	return Settings{Command: CICommand, Title: "CI-RL", Shown: []string{"complete"}, Base: &o.Base, Sampling: &o.Sampling,
		Rollout: &o.Rollout, GRPO: &o.GRPO, Validation: &o.Validation, Files: o.Data.Files, Parts: o.Data.Parts,
		MaxPromptTokens: o.Data.MaxPromptTokens}
}

func (o *CI) verify() error             { return CISpec.Verify(o) }
func (o *CI) try(context.Context) error { return nil }

// CISpec says how a configuration becomes CI.
var CISpec = config.Register(&config.Spec[CI]{
	Command:    CICommand,
	QuickStart: recipe.QuickStart("ci-rl-quickstart.yaml"),
	Without:    append([]string{"chat.plain", "data.columns"}, Unused...), // prompts of items are conversations
})

// embeddedScenarios is how many scenarios are made where the configuration does not say; fewestScenarios give one to
// each part of the split.
const (
	embeddedScenarios = 2000
	fewestScenarios   = 3
)

// Idle are the shares of parts that have files, and a judge without a name.
func (o *CI) Idle(g *config.Given) config.Idle {
	idle := o.Data.Unshared(g)
	if o.Judge.Model == "" {
		idle.Add("judge.model names no judge of leaks: name one, or remove this", "judge")
	}
	return idle
}

// Resolve gives the options that depend on others their defaults.
func (o *CI) Resolve(g *config.Given) {
	if o.Data.TrainFiles.Are(embedded.Name) && !g.Has("data.scenarios") {
		o.Data.Scenarios = embeddedScenarios
	}
	if !g.Has("data.prompt") {
		o.Data.Prompt = ci.PromptCoT
		if o.Agent.On() {
			o.Data.Prompt = ci.PromptPlain
		}
		if o.Model == embedded.Name {
			o.Data.Prompt = ci.PromptCompact
		}
	}
	if !g.Has("data.prefill") {
		o.Data.Prefill = o.Data.Thinks()
	}
	o.Reward.Format = o.Data.Suits(o.Reward.Format, g.Has("reward.format"))
	o.settings().Resolve(g)
}

// Validate looks across sections.
func (o *CI) Validate(g *config.Given) {
	o.settings().Validate(g)
	o.validateAgent(g)
	if o.Data.Prompt == ci.PromptAnswer && o.Reward.Format != "answer" && !g.Bad("reward.format") {
		g.Fault("reward.format", "reward.format %s: data.prompt answer asks for no thoughts, which this format wants: "+
			"want answer", o.Reward.Format)
	}
}

// SyntheticTest says that the test items are embedded scenarios, not a file's.
func (d CIData) SyntheticTest() bool { return d.TrainFiles.Are(embedded.Name) && d.Test == "" }

// Check looks across the keys of the section.
func (d CIData) Check() []fault.Fault {
	var faults fault.Faults
	if !d.TrainFiles.Are(embedded.Name) && d.Scenarios != 0 {
		faults.Add("scenarios", d.Scenarios, "only embedded scenarios are made to a number, and data.train is %s; "+
			"remove it", d.TrainFiles)
	}
	if d.TrainFiles.Are(embedded.Name) && d.Scenarios < fewestScenarios {
		faults.Add("scenarios", d.Scenarios, "want %d or more", fewestScenarios)
	}
	if d.TrainFiles.Are(embedded.Name) && d.Items == ci.ReleasedItems {
		faults.Add("items", d.Items, "it is about files, and data.train is %s; remove it", d.TrainFiles)
	}
	d.CheckShares(&faults)
	if d.Prefill && d.Prompt == ci.PromptAnswer {
		faults.Add("prefill", true, "data.prompt answer asks for no thoughts: want false, or another data.prompt")
	}
	if d.Prefill && d.Prompt == ci.PromptCompact {
		faults.Add("prefill", true, "with data.prompt compact the model opens the think block itself, as the "+
			"embedded one was taught to; "+
			"want false, or another data.prompt")
	}
	return faults
}

// Resolved is everything in force as YAML, which loads to the same value.
func (o *CI) Resolved() []byte { return CISpec.Resolve(o) }
