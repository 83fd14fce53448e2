// Package pairs is the recipe of posttrain data pairs: a model answers prompts several times, a reward scores the
// answers, and the best and the worst to each prompt are a preference pair.
package pairs

import (
	"cmp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/generate"
	"github.com/posttrain/posttrain/recipe/scenarios"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Command is the command that runs this recipe.
const Command = "data pairs"

// Options say which prompts are answered, by which model, and who scores. Paths are relative to the working directory.
type Options struct {
	Model   string        `yaml:"model" want:"@model" hub:"model"`
	Adapter string        `yaml:"adapter,omitempty" hub:"adapter" words:"an adapter's folder, or org/name on the hub"`
	CacheGB float64       `yaml:"cache_gb,omitempty" want:">=0" zero:"a quarter of the memory"` // of the keys and values
	Backend string        `yaml:"backend" want:"@backend"`
	Server  recipe.Server `yaml:"server"`
	Seed    uint64        `yaml:"seed"` // of synthetic scenarios and draws

	// The prompts: those of a file, or synthetic scenarios.
	Input   string `yaml:"input,omitempty" hub:"data" words:"a .jsonl, .json or .parquet file of prompts (also .gz)"`
	Chat    bool   `yaml:"chat"`                   // plain prompts are a user's message
	N       int    `yaml:"n,omitempty" want:">=0"` // synthetic scenarios
	HeldOut bool   `yaml:"held_out"`               // synthetic ones with names and values that training never has

	Template local.Chat `yaml:"chat_template"` // what the chat template gets: chat is the switch

	Answers          int `yaml:"answers" want:">=1"` // to each prompt; a pair wants 2
	rollout.Sampling `yaml:",inline"`
	Reward           scorer.Options `yaml:"reward"`

	Out  string `yaml:"out" want:"given" words:"a file to write: .jsonl, .json or .parquet (also .gz)"`
	Keep string `yaml:"keep,omitempty" words:"a file to write: .jsonl, .json or .parquet (also .gz)"` // all answers
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command:  Command,
	Defaults: func(*config.Given) Options { return Defaults() },
	Settle:   settle,
	Check:    check,
	Idle:     func(o *Options) []string { return o.unused() },
})

// Defaults draw 8 answers to each of 300 synthetic scenarios, which the contextual-integrity reward scores.
func Defaults() Options {
	return Options{Model: embedded.Name, Backend: "auto", Seed: 1, N: 300, Answers: 8,
		Server:   recipe.DefaultServer(),
		Sampling: rollout.Sampling{MaxNew: scenarios.DefaultMaxNew, Temperature: 1}, Reward: scorer.Defaults()}
}

func settle(g *config.Given, o *Options) {
	if len(o.Reward.Command) == 1 {
		o.Reward.Command = strings.Fields(o.Reward.Command[0])
	}
	if o.Input == "" {
		o.Reward.Kind = cmp.Or(o.Reward.Kind, scorer.CI)
		return
	}
	if !g.Has("n") {
		o.N = 0
	}
	if !g.Has("max_new_tokens") {
		o.MaxNew = generate.DefaultMaxNew
	}
	if o.Server.BaseURL != "" {
		o.Chat = true
	}
}

// ofScenarios, ofServer and ofFolder are the keys of one source of prompts or answers.
var (
	ofScenarios = []string{"n", "held_out", "reward.ci.format", "reward.ci.match"}
	ofServer    = recipe.ServerKeys()
	ofFolder    = []string{"model", "adapter", "cache_gb", "backend", "top_k", "min_p", "chat_template.template",
		"chat_template.template_sha256", "chat_template.variables", "chat_template.date"}
)

// unused are the keys without effect.
func (o *Options) unused() (keys []string) {
	if o.Input == "" {
		return slices.Concat([]string{"server.base_url", "chat", "keep"}, ofServer)
	}
	if o.Server.BaseURL != "" {
		return slices.Concat(ofScenarios, ofFolder)
	}
	return slices.Concat(ofScenarios, []string{"server.base_url"}, ofServer)
}

func check(g *config.Given, o *Options) {
	for _, key := range o.unused() {
		switch {
		case !g.Has(key) || g.Text(key) == "" || g.Text(key) == "false":
		case o.Input == "":
			g.Fault(key, "%s %s: it is about the prompts of a file; add input", key, g.Show(key))
		case slices.Contains(ofScenarios, key):
			g.Fault(key, "%s %s: it is about synthetic scenarios, and input %s has its own prompts; remove one of the "+
				"two", key, g.Show(key), o.Input)
		case slices.Contains(ofServer, key):
			g.Fault(key, "%s %s: it is about a server; add server.base_url", key, g.Show(key))
		default:
			g.Fault(key, "%s %s: it is about a model in this process, server.base_url about one that a server has; "+
				"remove one of the two", key, g.Show(key))
		}
	}
	switch ofItems := o.Reward.Kind == scorer.CI; {
	case o.Input == "" && !ofItems && !g.Bad("reward.kind"):
		g.Fault("reward.kind", "reward.kind %s: synthetic scenarios have the reward ci; add input for others",
			o.Reward.Kind)
	case o.Input == "" && o.N < 1:
		g.Fault("n", "n %d: want a whole number, 1 or more", o.N)
	case o.Input != "" && ofItems:
		g.Fault("reward.kind", "reward.kind ci: prompts of a file have no items that this reward scores by: want "+
			"command, judge or model")
	}
	if o.Answers == 1 {
		g.Fault("answers", "answers 1: a pair has a best and a worst one: want 2 or more")
	}
	if o.Input != "" && o.Temperature == 0 {
		g.Fault("temperature", "temperature 0: all answers to a prompt are the same; want a number above 0")
	}
	o.Server.Check(g)
	for _, f := range recipe.CheckOut(o.Out) {
		g.Fault("out", "%s", f)
	}
	for _, f := range recipe.CheckOut(o.Keep) {
		f.Key = "keep"
		g.Fault("keep", "%s", f)
	}
	if o.Keep != "" && o.Keep == o.Out {
		g.Fault("keep", "keep %s: out is the same file; want another name", o.Keep)
	}
}
