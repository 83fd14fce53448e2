// Package best is the recipe of posttrain data best and data pairs: it samples n answers to each scenario and keeps the
// good ones as demonstrations (rejection sampling), or pairs the best with the worst.
package best

import (
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/scenarios"
)

// Command is the command that runs this recipe. Package recipe/pairs runs Pairs.
const Command = "data best"

// Options say which answers are kept.
type Options struct {
	scenarios.Options `yaml:",inline"`
	Answers           int `yaml:"answers" want:">=1"` // to each scenario

	// templates write the one ideal answer to each scenario, and no model is asked
	Templates bool `yaml:"templates,omitempty"`

	// the least reward of an answer that is kept, from -1 (everything) to 1 (all that is required, nothing restricted)
	MinReward float64 `yaml:"min_reward" want:">=-1 <=1" words:"a number from -1 to 1"`
	Keep      int     `yaml:"keep" want:">=0" words:"1 or more, or 0 for all"` // answers of a scenario, the best first

	Out string `yaml:"out" want:"given" words:"a file to write: .jsonl, .json or .parquet (also .gz)"`
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command: Command,
	Defaults: func(g *config.Given) Options {
		o := Defaults()
		o.FollowGiven(g, "train")
		return o
	},
	Choose: func(g *config.Given) { recipe.ChoosePrompt(g, "") },
	Settle: settle,
	Check:  check,
	Idle:   idle,
})

// idle adds the keys about a model, which templates do not need.
func idle(o *Options) []string {
	keys := o.Options.Idle()
	if o.Templates {
		keys = append(keys, ofModel...)
	}
	return keys
}

// ofModel are the keys about a model and its draws.
var ofModel = []string{"model", "adapter", "cache_gb", "backend", "max_prompt_tokens", "answers", "keep",
	"max_new_tokens", "temperature", "top_k", "top_p", "min_p", "stop", "chat.template", "chat.template_sha256",
	"chat.variables", "chat.date"}

// pairsSpec checks the options of Pairs, whose scenarios are synthetic ones in the compact form.
var pairsSpec = &config.Spec[Options]{
	Command: "data pairs",
	Without: []string{"run", "data", "items", "split", "split_seed", "validation_fraction", "test_fraction", "prompt",
		"template", "prefill", "max_prompt_tokens", "reward.format", "reward.match", "reward.required_weight",
		"reward.restricted_weight", "min_reward", "keep", "templates"},
	Defaults: func(*config.Given) Options {
		o := Defaults()
		o.Prompt = ci.PromptCompact
		return o
	},
	Check: func(g *config.Given, o *Options) {
		if o.Answers == 1 {
			g.Fault("answers", "answers 1: a pair has a best and a worst one: want 2 or more")
		}
		check(g, o)
	},
}

// Defaults keep the perfect ones of 8 answers.
func Defaults() Options {
	o := Options{Options: scenarios.Defaults(), Answers: 8, MinReward: 1}
	o.Seed, o.Split, o.N, o.Temperature, o.Prompt = 1, "train", 300, 1, ci.PromptCompact
	return o
}

func settle(g *config.Given, o *Options) {
	o.Options.Settle(g)
	if o.Run != "" {
		o.N = 0
		return
	}
	if o.Data != "" && !g.Has("n") {
		o.N = 0
	}
	if !g.Has("prompt") && (o.Model != embedded.Name || o.Templates && o.Data != "") {
		o.Prompt = ci.PromptCoT
	}
	if !g.Has("prefill") {
		o.Prefill = o.Thinks()
	}
}

func check(g *config.Given, o *Options) {
	o.Options.Check(g)
	for _, key := range ofModel {
		if o.Templates && g.Has(key) {
			g.Fault(key, "%s %s: templates write the answers, and no model is asked; remove one of the two", key,
				g.Show(key))
		}
	}
	if o.Data != "" && g.Has("n") && !g.Bad("n") {
		g.Fault("n", "n %d: it is about synthetic scenarios, and data %s has its own; remove one of the two",
			o.N, o.Data)
	}
	for _, f := range recipe.CheckOut(o.Out) {
		g.Fault("out", "%s", f)
	}
}
