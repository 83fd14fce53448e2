// Package pairs is the recipe of posttrain data pairs and data score. A model answers prompts several times and a
// reward scores the answers: the best and the worst to each prompt are a preference pair, or the good ones
// demonstrations (rejection sampling). [Score] lets a reward score pairs that are there.
//
//  1. prompts: of a file, of the items of a ci-rl run, or of synthetic ones (prompts.go);
//  2. answers, by a folder's model or a server's, and scores, each kept in a file beside the result until all are there
//     (run.go, package scorer): an interrupted run continues with the same options;
//  3. pairs or demonstrations of the answers (run.go).
package pairs

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/generate"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/remote"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Command is the command that runs this recipe.
const Command = "data pairs"

// Options say which prompts are answered, by which model, who scores, and what is written. Paths are relative to the
// working directory.
type Options struct {
	recipe.LocalModel `yaml:",inline"`
	Server            remote.Served `yaml:"server"`
	Seed              uint64        `yaml:"seed" default:"1" flag:"seed" help:"seed of synthetic scenarios and draws"`

	// The prompts: of a file, or contextual-integrity items: what a ci-rl run trains on, or synthetic ones.
	Input   string   `yaml:"input,omitempty" hub:"data" words:"a .jsonl, .json, .parquet, .csv or .tsv file of prompts (also .gz)" flag:"input" help:"prompts, .jsonl, .json, .parquet, .csv or .tsv, or org/name[@revision][:config][:split] on the hub: column prompt (text or messages) or messages"`
	Columns []string `yaml:"columns,omitempty" words:"names such as prompt=question" flag:"columns" help:"columns by other names in the input, such as prompt=question"`
	Chat    bool     `yaml:"chat" flag:"chat" help:"write plain prompts as messages of the user; a server always gets them so"`
	Run     string   `yaml:"run,omitempty" words:"the config of a ci-rl run" help:"config of a ci-rl run, whose prompts, model and sampling are taken (as --config)"`
	N       int      `yaml:"n,omitempty" want:">=0" default:"300" flag:"n" help:"number of synthetic scenarios"`
	HeldOut bool     `yaml:"held_out" flag:"held-out" help:"scenarios whose names and values training never has"`

	Template local.RowChat `yaml:"chat_template"` // what the chat template gets: chat is the switch

	Answers          int `yaml:"answers" want:">=1" default:"8" flag:"answers" help:"answers sampled for each prompt"`
	rollout.Sampling `yaml:",inline" defaults:"max_new_tokens=128 temperature=1"`
	Reward           scorer.Options `yaml:"reward" defaults:"kind=ci"`

	Write     string  `yaml:"write" want:"pairs|demonstrations" default:"pairs" flag:"write" help:"pairs, or the good answers as demonstrations"`
	MinScore  float64 `yaml:"min_score" default:"1" flag:"min-score" help:"least score of a demonstration; the reward ci gives 0 to 1"`
	Most      int     `yaml:"most" want:">=0" zero:"all" flag:"most" help:"most demonstrations of a prompt, the best first"`
	Templates bool    `yaml:"templates,omitempty" flag:"templates" help:"write ideal answers to items by templates, without a model"`

	Out  string `yaml:"out" want:"given" words:"a file to write: .jsonl or .json (also .gz)" flag:"out" help:"file to write: .jsonl or .json, each also with .gz"`
	Keep string `yaml:"keep,omitempty" words:"a file to write: .jsonl or .json (also .gz)" flag:"keep" help:"file to write all answers to, with their scores: all_generated_responses, all_rm_scores"`
}

// What is written.
const (
	Pairs          = "pairs"
	Demonstrations = "demonstrations"
)

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{Command: Command, Without: []string{"server.think_opened"}})

// Defaults follows the ci-rl run that the user names, if any: its model, sampling and reward.
func (o *Options) Defaults(g *config.Given) {
	path := g.Text("run")
	if path == "" {
		return
	}
	c, err := rl.CISpec.Load(config.Input{Path: path, Allow: config.Anything})
	if err != nil {
		g.Fault("run", "run %s: %s", path, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	if c.Agent.On() {
		g.Fault("run", "run %s: it trains an agent, whose answers are episodes: want a run without agent.turns (data synth "+
			"--agent writes demonstrations of episodes)", path)
	}
	o.Model, o.Backend, o.Template.Chat, o.Sampling, o.N = c.Model, c.Backend, c.Chat.Chat, c.Sampling.Sampling, 0
	o.Reward.CI = scorer.CIOptions{Format: c.Reward.Format, Match: c.Reward.Match}
}

// Resolve gives options that depend on others their defaults.
func (o *Options) Resolve(g *config.Given) {
	if o.Input != "" {
		if !g.Has("reward.kind") {
			o.Reward.Kind = "" // which must be given
		}
		if !g.Has("n") {
			o.N = 0
		}
		if !g.Has("max_new_tokens") {
			o.MaxNew = generate.DefaultMaxNew
		}
		o.Chat = o.Chat || o.Server.BaseURL != ""
	}
	if o.Templates && !g.Has("write") {
		o.Write = Demonstrations
	}
	if o.Write == Demonstrations && o.Input != "" && !g.Has("min_score") {
		g.Fault("min_score", "min_score is missing: want the least score of an answer that is a demonstration")
	}
}

// The keys of one source of prompts, or of answers.
var (
	ofServer = []string{"server.api_model", "server.api_version", "server.api_key_env", "server.parallel",
		"server.timeout", "server.continue"}
	ofTemplate = []string{"chat_template.template", "chat_template.template_sha256", "chat_template.variables",
		"chat_template.date", "chat_template.plain"}
	ofFolder = slices.Concat([]string{"model", "adapter", "cache_gb", "backend", "top_k", "min_p",
		"keep_special_tokens"}, ofTemplate)
	ofModel = slices.Concat(ofFolder, ofServer, []string{"server.base_url", "answers", "most", "max_new_tokens",
		"temperature", "top_p", "stop"})
	ofSynthetic = []string{"n", "held_out"}
	ofReward    = []string{"reward.ci.format", "reward.ci.match"}
)

// Validate refuses keys without effect, and options that contradict each other.
func (o *Options) Validate(g *config.Given) {
	idle := func(is bool, why string, keys ...[]string) {
		for _, key := range slices.Concat(keys...) {
			if is && g.Has(key) && g.Text(key) != "" && g.Text(key) != "false" {
				g.Fault(key, "%s %s: %s", key, g.Show(key), why)
			}
		}
	}
	idle(o.Templates, "templates write the answers, and no model is asked; remove one of the two", ofModel)
	idle(o.Server.BaseURL == "", "it is about a server; add server.base_url", ofServer)
	idle(o.Input == "", "it is about the prompts of a file; add input", []string{"chat", "columns"})
	g.Take(data.CheckColumns(o.Columns)...)
	idle(o.Input != "", fmt.Sprintf("it is about contextual-integrity items, and input %s has its own prompts; remove one of "+
		"the two", o.Input), ofSynthetic, ofReward, []string{"run"})
	idle(o.Run != "", fmt.Sprintf("the run %s has that; remove one of the two", o.Run), ofSynthetic, ofReward, ofTemplate)
	idle(o.Server.BaseURL != "", "it is about a model in this process, server.base_url about one that a server has; remove "+
		"one of the two", ofFolder)
	if o.Template.Plain == "text" && (o.Chat || o.Input == "") {
		g.Refuse("chat_template.plain", o.Template.Plain, "it is about the prompts of a file, without chat; remove it")
	}
	switch ofItems := o.Reward.Has(scorer.CI); {
	case o.Input == "" && !ofItems && !g.Bad("reward.kind"):
		g.Fault("reward.kind", "reward.kind %s: contextual-integrity items have the reward ci; add input for others",
			o.Reward.Kind)
	case o.Input != "" && ofItems:
		g.Fault("reward.kind", "reward.kind ci: prompts of a file have no items that this reward scores by: want "+
			"command, judge or model")
	case o.Input == "" && o.Run == "" && o.N < 1 && !g.Bad("n"):
		g.Fault("n", "n %d: want a whole number, 1 or more", o.N)
	}
	if o.Templates && (o.Write == Pairs || o.Input != "") {
		g.Fault("templates", "templates true: they write demonstrations of items; remove write and input")
	}
	if o.Write == Pairs && o.Answers == 1 {
		g.Fault("answers", "answers 1: a pair has a best and a worst one: want 2 or more")
	}
	if o.Input != "" && o.Temperature == 0 && o.Answers > 1 {
		g.Fault("temperature", "temperature 0: all answers to a prompt are the same; want a number above 0")
	}
	if x := o.MinScore; o.Reward.Kind == scorer.CI && !(x >= 0 && x <= 1) && !g.Bad("min_score") {
		g.Fault("min_score", "min_score %v: the reward ci gives scores from 0 to 1", x)
	}
	o.validateServer(g.In("server."))
	g.Take(recipe.CheckOut("out", o.Out)...)
	g.Take(recipe.CheckOut("keep", o.Keep)...)
	if o.Keep != "" && o.Keep == o.Out {
		g.Fault("keep", "keep %s: out is the same file; want another name", o.Keep)
	}
}

// validateServer wants the model's name on the server, and the key that the user names. A file that names the default may
// be the config of a run, which had no key, either.
func (o *Options) validateServer(g *config.Given) {
	s := o.Server
	if s.BaseURL == "" {
		return
	}
	if s.APIModel == "" {
		g.Fault("api_model", "%s is missing: want the model's name on the server", g.Key("api_model"))
	}
	named := g.FromCommandLine("api_key_env") || s.KeyEnv != remote.DefaultKeyEnv
	if g.Has("api_key_env") && named && os.Getenv(s.KeyEnv) == "" {
		g.Refuse("api_key_env", s.KeyEnv, "this environment variable is not set")
	}
}
