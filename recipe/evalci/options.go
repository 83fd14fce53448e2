// Package evalci is the recipe of posttrain eval ci: it measures which of the information in contextual-integrity
// scenarios a model shares.
package evalci

import (
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/recipe/scenarios"
	"github.com/posttrain/posttrain/rollout"
)

// Command is the command that runs this recipe.
const Command = "eval ci"

// Options say what is measured on what.
type Options struct {
	scenarios.Options `yaml:",inline"`
	Samples           int    `yaml:"samples" want:">=1"` // answers to each scenario
	Show              int    `yaml:"show" want:">=0"`    // scenarios to print with their answers
	Published         bool   `yaml:"published"`          // report the published figures, too
	Server            Server `yaml:"server"`
	Out               string `yaml:"-"` // a folder to make for results.jsonl, summary.json and config.yaml; "": none
}

// Server is a model that an OpenAI-compatible server has, in the place of a model folder.
type Server struct {
	recipe.Server `yaml:",inline"`

	// the server continues the beginning of an answer, so that it can be <think>
	Continue string `yaml:"continue,omitempty" want:"|vllm" words:"vllm, or nothing: the server cannot"`

	// the server's chat template opens the think block, so that answers begin inside it
	ThinkOpened bool `yaml:"think_opened"`
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command: Command,
	Without: []string{"held_out", "max_prompt_tokens"},
	Defaults: func(g *config.Given) Options {
		o := Defaults()
		o.FollowGiven(g, "test")
		return o
	},
	Settle: settle,
	Check:  check,
	Idle:   func(o *Options) []string { return append(o.Options.Idle(), o.unusedKeys()...) },
})

// Defaults measure the embedded model on held-out synthetic scenarios.
func Defaults() Options {
	o := Options{Options: scenarios.Defaults(), Samples: 1,
		Server: Server{Server: recipe.DefaultServer()}}
	o.Seed, o.HeldOut, o.N, o.Prompt = 1000, true, 200, ci.PromptCompact
	return o
}

func settle(g *config.Given, o *Options) {
	o.Options.Settle(g)
	if o.Run != "" {
		o.N, o.Prefill = 0, o.Prefill && o.canPrefill()
		return
	}
	if o.Data != "" && !g.Has("n") {
		o.N = 0
	}
	if o.Data != "" && !g.Has("prompt") {
		o.Prompt = ci.PromptPlain
	}
	if !g.Has("prefill") {
		o.Prefill = o.Thinks() && o.canPrefill()
	}
}

// canPrefill says whether answers can have a beginning.
func (o *Options) canPrefill() bool {
	return (o.Server.BaseURL == "" || o.Server.Continue != "") && !o.Server.ThinkOpened
}

// unusedKeys lists the keys of the other kind of model.
func (o *Options) unusedKeys() []string {
	if o.Server.BaseURL != "" {
		return []string{"model", "adapter", "cache_gb", "backend", "chat.template", "chat.template_sha256",
			"chat.variables", "chat.date"}
	}
	return append(recipe.ServerKeys(), "server.base_url", "server.continue", "server.think_opened")
}

// synthetic says that the scenarios are made, not read from a file. A run that cannot be read is a fault by itself.
func (o *Options) synthetic() bool {
	if o.Run == "" {
		return o.Data == ""
	}
	c, err := cirl.Spec.Load(config.Input{Path: o.Run})
	return err == nil && c.Data.SyntheticTest()
}

func check(g *config.Given, o *Options) {
	o.Options.Check(g)
	if o.Samples > 1 && o.Temperature == 0 {
		g.Fault("samples", "samples %d: at temperature 0 all answers to a scenario are the same; "+
			"give a temperature, such as 0.7", o.Samples)
	}
	if o.Data != "" && g.Has("n") && o.N < 1 {
		g.Fault("n", "n %d: want a whole number, 1 or more", o.N)
	}
	if o.Published && o.synthetic() {
		g.Fault("published", "published true: the published figures are of the released items, and these scenarios "+
			"are synthetic; add data, such as dataset.json, or remove it")
	}
	for _, key := range o.unusedKeys() {
		switch {
		case !g.Has(key) || key == "server.base_url":
		case o.Server.BaseURL == "":
			g.Fault(key, "%s: it is about a server; add server.base_url", key)
		default:
			g.Fault(key, "%s %s: it is about a model in this process, server.base_url about one that a server has; "+
				"remove one of the two", key, g.Show(key))
		}
	}
	if o.Prefill && !o.canPrefill() {
		g.Fault("prefill", "prefill true: this server does not continue the beginning of an answer; want false, or "+
			"server.continue vllm for a server that does, without server.think_opened")
	}
	for _, f := range o.Server.dialect().Check(o.Server.BaseURL) {
		g.Fault("server."+f.Key, "server.%v", f)
	}
}

func (s Server) dialect() rollout.Dialect {
	return rollout.Dialect{APIVersion: s.APIVersion, Continue: s.Continue}
}
