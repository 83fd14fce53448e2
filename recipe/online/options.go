// Package online makes preference pairs while a model trains: its own answers to prompts, which a reward scores.
//
//  1. [Options.Read] takes the prompts of a run: embedded scenarios, contextual-integrity items, or those of a file.
//  2. The seed cuts them into as many parts as there are rounds ([Maker.Part]).
//  3. [Maker.Make] samples answers to a part with the present weights, scores them, and makes a pair of the best and
//     the worst answer to each prompt. Answers and scores are in the run folder before they count.
//
// Package preference trains on the pairs.
package online

import (
	"fmt"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// References of the loss.
const (
	Start = "start" // the model before training
	Round = "round" // the model before the round
)

// Options say how pairs are made.
type Options struct {
	Rounds           int `yaml:"rounds" want:">=1"`             // parts of the prompts
	Prompts          int `yaml:"prompts" want:">=0" zero:"all"` // of the whole run
	Samples          int `yaml:"samples" want:">=2"`            // answers to each prompt
	rollout.Sampling `yaml:",inline" flags:"-"`
	CacheGB          float64 `yaml:"cache_gb,omitempty" want:">=0" zero:"a quarter of the memory"` // of keys and values

	Reference string         `yaml:"reference" want:"start|round"`
	Reward    scorer.Options `yaml:"reward"`

	// Of contextual-integrity items: how many embedded ones are made, the shares that ci-rl with the same seed and
	// shares validates and tests on, which no round has, and the form of their prompts.
	Scenarios          int     `yaml:"scenarios,omitempty" want:">=0" words:"a whole number, 3 or more"`
	ValidationFraction float64 `yaml:"validation_fraction" want:">=0 <1"`
	TestFraction       float64 `yaml:"test_fraction" want:">=0 <1"`
	ci.Form            `yaml:",inline" flags:"-"`
}

// embeddedScenarios is how many scenarios are made where the options do not say.
const embeddedScenarios = 2000

// Defaults are those of the method: three rounds, eight answers at temperature 1.
func Defaults() Options {
	o := Options{Rounds: 3, Samples: 8, Sampling: rollout.Sampling{MaxNew: 512, Temperature: 1}, Reference: Start,
		Reward: scorer.Defaults(), ValidationFraction: 0.09, TestFraction: 0.10, Form: ci.Form{Prompt: ci.PromptCompact}}
	o.Reward.Kind = scorer.CI
	return o
}

// Settle gives the options that depend on others their defaults.
func (o *Options) Settle(g *config.Given, model, source string) {
	if source == embedded.Name && !g.Has("online.scenarios") {
		o.Scenarios = embeddedScenarios
	}
	o.Reward.Settle()
	if model != embedded.Name && !g.Has("online.prompt") {
		o.Prompt = ci.PromptCoT
	}
	if !g.Has("online.prefill") {
		o.Prefill = o.Thinks()
	}
}

// Check refuses answers that cannot differ. It hides the check of the draws, which the config calls for them.
func (o Options) Check() []fault.Fault {
	const why = "all answers to a prompt would be the same: want "
	var faults fault.Faults
	if o.Temperature == 0 {
		faults.Add("temperature", 0, why+"a number above 0")
	}
	if o.TopK == 1 {
		faults.Add("top_k", 1, why+"2 or more, or 0 (off)")
	}
	if o.MinP == 1 {
		faults.Add("min_p", 1, why+"a number below 1")
	}
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
func (o *Options) Explain(source string) string {
	prompts := "the prompts"
	if o.Prompts > 0 {
		prompts = fmt.Sprintf("%d prompts", o.Prompts)
	}
	return fmt.Sprintf("online: %s of %s in %d parts; for each part the present model answers each prompt %d times "+
		"(temperature %v, at most %d tokens), the reward %s scores the answers, and the best and the worst are the "+
		"pair; then the model trains on the pairs\n", prompts, source, o.Rounds, o.Samples, o.Temperature, o.MaxNew,
		o.Reward.Kind)
}
