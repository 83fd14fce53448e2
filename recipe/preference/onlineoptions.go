package preference

import (
	"fmt"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// eachRound is the reference of the loss that is the model before the round.
const eachRound = "round"

// Online says how mode online makes pairs.
type Online struct {
	Rounds           int `yaml:"rounds" want:">=1" default:"3" paper:"3" flag:"rounds" help:"online: parts of the prompts, each answered by the model so far"`
	Prompts          int `yaml:"prompts" want:">=0" zero:"all" help:"of the whole run; 0: all"`
	Samples          int `yaml:"samples" want:">=2" default:"8" paper:"8" flag:"samples" help:"online: answers to each prompt"`
	rollout.Sampling `yaml:",inline" flags:"-" defaults:"max_new_tokens=512 temperature=1" paper:"temperature=1 top_k=0 top_p=0 min_p=0"`
	CacheGB          float64 `yaml:"cache_gb,omitempty" want:">=0" zero:"a quarter of the memory" help:"most gigabytes of the cache of keys and values; 0: a quarter of the memory"`

	Reference string         `yaml:"reference" want:"start|round" default:"start" help:"of the loss: the model before training (start), or before each round"`
	Reward    scorer.Options `yaml:"reward" defaults:"kind=ci" paper:"kind=model"`

	// Of contextual-integrity items: how many embedded ones are made, the shares that ci-rl with the same seed and
	// shares validates and tests on, which no round has, and the form of their prompts.
	Scenarios          int     `yaml:"scenarios,omitempty" want:">=0" words:"a whole number, 3 or more" help:"how many embedded items are made (2000)"`
	ValidationFraction float64 `yaml:"validation_fraction" want:">=0 <1" default:"0.09" help:"share of the items that no round has: ci-rl validates on them"`
	TestFraction       float64 `yaml:"test_fraction" want:">=0 <1" default:"0.1" help:"share of the items that no round has: ci-rl tests on them"`
	ci.Form            `yaml:",inline" flags:"-" defaults:"prompt=compact"`
}

// embeddedScenarios is how many scenarios are made where the options do not say.
const embeddedScenarios = 2000

// Depend gives the options that depend on the model and on the source of prompts their defaults.
func (o *Online) Depend(g *config.Given, model, source string) {
	if source == embedded.Name && !g.Has("scenarios") {
		o.Scenarios = embeddedScenarios
	}
	if model != embedded.Name && !g.Has("prompt") {
		o.Prompt = ci.PromptCoT
	}
	if !g.Has("prefill") {
		o.Prefill = o.Thinks()
	}
}

// Check refuses answers that cannot differ.
func (o Online) Check() []fault.Fault {
	faults := fault.Faults(o.CheckVaried("all answers to a prompt would be the same: want "))
	if o.Prompts > 0 && o.Prompts < o.Rounds {
		faults.Add("prompts", o.Prompts, "online.rounds %d: want a prompt for each round", o.Rounds)
	}
	if v, t := o.ValidationFraction, o.TestFraction; v < 1 && t < 1 && v+t >= 1 {
		faults.Add("test_fraction", t, "with validation_fraction %v nothing is left to train on: want a sum below 1", v)
	}
	if o.Prefill && o.Prompt == ci.PromptCompact {
		faults.Add("prefill", true, "with prompt compact the model opens the think block itself: want false, or "+
			"another prompt")
	}
	return faults
}

// Explain says how pairs are made.
func (o *Online) Explain(source string) string {
	prompts := "the prompts"
	if o.Prompts > 0 {
		prompts = fmt.Sprintf("%d prompts", o.Prompts)
	}
	return fmt.Sprintf("online: %s of %s in %d parts; for each part the present model answers each prompt %d times "+
		"(temperature %v, at most %d tokens), the reward %s scores the answers, and the best and the worst are the "+
		"pair; then the model trains on the pairs\n", prompts, source, o.Rounds, o.Samples, o.Temperature, o.MaxNew,
		o.Reward.Kind)
}
