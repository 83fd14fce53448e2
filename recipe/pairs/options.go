// Package pairs is the recipe of posttrain data pairs and data score. A model answers prompts several times and a reward
// scores the answers: the best and the worst to each prompt are a preference pair, or the good ones demonstrations
// (rejection sampling). [Score] lets a reward score pairs that are there.
//
//  1. prompts: those of a file, of contextual-integrity items, or of synthetic ones (prompts.go);
//  2. answers, by a folder's model or a server's, and scores, each kept in a file beside the result until all are there
//     (run.go, package scorer): an interrupted run continues with the same options;
//  3. pairs or demonstrations of the answers (run.go).
package pairs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/recipe/generate"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Command is the command that runs this recipe.
const Command = "data pairs"

// Options say which prompts are answered, by which model, who scores, and what is written. Paths are relative to the
// working directory.
type Options struct {
	recipe.LocalModel `yaml:",inline"`
	Server            recipe.Server `yaml:"server"`
	Seed              uint64        `yaml:"seed" flag:"seed" help:"seed of synthetic scenarios and draws"`

	// The prompts: those of a file, or contextual-integrity items: of a file, of a ci-rl run, or synthetic ones.
	Input string `yaml:"input,omitempty" hub:"data" words:"a .jsonl, .json or .parquet file of prompts (also .gz)"`
	Chat  bool   `yaml:"chat" flag:"chat" help:"apply the chat template to plain prompts (a server always does)"`
	Items `yaml:",inline"`

	Template local.Chat `yaml:"chat_template"` // what the chat template gets: chat is the switch

	Answers          int `yaml:"answers" want:">=1" flag:"answers" help:"answers sampled for each prompt"`
	rollout.Sampling `yaml:",inline"`
	Reward           scorer.Options `yaml:"reward"`

	// pairs of the best and the worst answer, or demonstrations of the good ones
	Write string `yaml:"write" want:"pairs|demonstrations" flag:"write" help:"pairs, or the good answers as demonstrations"`
	// of demonstrations: the least score of an answer, which the reward ci gives from 0 to 1 (all that is required,
	// nothing restricted), and the most answers to a prompt, the best first
	MinScore float64 `yaml:"min_score" flag:"min-score" help:"least score of a demonstration; the reward ci gives 0 to 1"`
	Most     int     `yaml:"most" want:">=0" zero:"all" flag:"most" help:"most demonstrations of a prompt, the best first"`
	// templates write the one ideal answer to each item as a demonstration, and no model is asked
	Templates bool `yaml:"templates,omitempty" flag:"templates" help:"write ideal answers by templates, without a model"`

	Out  string `yaml:"out" want:"given" words:"a file to write: .jsonl, .json or .parquet (also .gz)"`
	Keep string `yaml:"keep,omitempty" words:"a file to write: .jsonl, .json or .parquet (also .gz)"` // all answers
}

// Items say which contextual-integrity items are put to a model, and in which prompts.
type Items struct {
	Run     string `yaml:"run,omitempty" words:"the config of a ci-rl run"`
	Data    string `yaml:"data,omitempty" hub:"data" words:"a .jsonl, .json or .parquet file of items (also .gz)"`
	N       int    `yaml:"n,omitempty" want:">=0" flag:"n" help:"number of synthetic scenarios"`
	HeldOut bool   `yaml:"held_out" flag:"held-out" help:"scenarios whose names and values training never has"`

	// which items of Data: those that the released preprocessing keeps, or all
	Kept string `yaml:"items" want:"all|released" flag:"items" help:"released: without those that CI-RL's release drops"`
	// The part of Data. ci-rl with SplitSeed for its seed and the same fractions splits it in the same way.
	Split              string  `yaml:"split" want:"test|validation|train|all" flag:"split" help:"part of --data, or all"`
	SplitSeed          uint64  `yaml:"split_seed" flag:"split-seed" help:"seed of ci-rl, whose split is made"`
	ValidationFraction float64 `yaml:"validation_fraction" want:">=0 <=1" flag:"validation-fraction" help:"share of validation"`
	TestFraction       float64 `yaml:"test_fraction" want:">=0 <=1" flag:"test-fraction" help:"share of the test"`

	ci.Form `yaml:",inline"`
	// longer prompts are left out; 0: what the model takes
	MaxPromptTokens int `yaml:"max_prompt_tokens" want:">=0" zero:"what the model takes"`
}

// What is written.
const (
	Pairs          = "pairs"
	Demonstrations = "demonstrations"
)

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command:  Command,
	Defaults: defaults,
	Settle:   settle,
	Check:    check,
	Idle:     func(o *Options) []string { return slices.Concat(o.idle(), o.unsaid()) },
})

// Defaults draw 8 answers to each of 300 synthetic scenarios, which the contextual-integrity reward scores.
func Defaults() Options {
	o := Options{LocalModel: config.Default[recipe.LocalModel](), Seed: 1, Answers: 8, Server: recipe.DefaultServer(),
		Items: Items{N: 300, Kept: ci.AllItems, Split: "train", ValidationFraction: 0.09, TestFraction: 0.10,
			Form: ci.Form{Prompt: ci.PromptCompact}},
		Sampling: rollout.Sampling{MaxNew: 128, Temperature: 1}, Reward: scorer.Defaults(),
		Write: Pairs, MinScore: 1}
	o.Reward.Kind = scorer.CI
	return o
}

// defaults follow the ci-rl run that the user names, if any: its model, prompts, sampling and reward.
func defaults(g *config.Given) Options {
	o := Defaults()
	path := g.Text("run")
	if path == "" {
		return o
	}
	c, err := cirl.Spec.Load(config.Input{Path: path})
	if err != nil {
		g.Fault("run", "run %s: %s", path, strings.ReplaceAll(err.Error(), "\n", "; "))
		return o
	}
	o.Model, o.Backend, o.Template, o.Sampling, o.Form = c.Model, c.Backend, c.Chat, c.Sampling.Sampling, c.Data.Form
	o.MaxPromptTokens, o.SplitSeed, o.N = c.Data.MaxPromptTokens, c.Seed, 0
	o.Reward.CI = scorer.CIOptions{Format: c.Reward.Format, Match: c.Reward.Match}
	return o
}

func settle(g *config.Given, o *Options) {
	if o.Input != "" && !g.Has("reward.kind") {
		o.Reward.Kind = "" // which must be given
	}
	if (o.Input != "" || o.Data != "") && !g.Has("n") {
		o.N = 0
	}
	if !g.Has("max_new_tokens") && o.Input != "" {
		o.MaxNew = generate.DefaultMaxNew
	} else if !g.Has("max_new_tokens") && o.Data != "" {
		o.MaxNew = 2048
	}
	if o.Input != "" && o.Server.BaseURL != "" {
		o.Chat = true
	}
	if o.Templates && !g.Has("write") {
		o.Write = Demonstrations
	}
	if o.Run == "" && !g.Has("prompt") && (o.Model != embedded.Name || o.Templates && o.Data != "") {
		o.Prompt = ci.PromptCoT
	}
	if o.Run == "" && !g.Has("prefill") {
		o.Prefill = o.Thinks()
	}
}

// The keys of one source of prompts, or of answers.
var (
	ofServer   = recipe.ServerKeys()
	ofTemplate = []string{"chat_template.template", "chat_template.template_sha256", "chat_template.variables",
		"chat_template.date"}
	ofFolder = slices.Concat([]string{"model", "adapter", "cache_gb", "backend", "top_k", "min_p"}, ofTemplate)
	ofModel  = slices.Concat(ofFolder, ofServer, []string{"server.base_url", "max_prompt_tokens", "answers", "most",
		"max_new_tokens", "temperature", "top_p", "stop"})
	ofPrompts = []string{"prompt", "template", "prefill", "max_prompt_tokens"}
	ofSplit   = []string{"split_seed", "validation_fraction", "test_fraction"}
	ofItems   = slices.Concat(ofPrompts, ofSplit, []string{"run", "data", "n", "held_out", "items", "split",
		"reward.ci.format", "reward.ci.match"})
	ofRun = slices.Concat(ofPrompts, ofSplit, ofTemplate, []string{"data", "items", "n", "held_out", "split",
		"reward.ci.format", "reward.ci.match"})
)

// idle are the keys without effect.
func (o *Options) idle() (keys []string) {
	if o.Templates {
		keys = ofModel
	}
	switch {
	case o.Input != "":
		keys = slices.Concat(keys, ofItems)
	case o.Run != "":
		keys = slices.Concat(keys, ofRun)
	case o.Data == "":
		keys = slices.Concat(keys, ofSplit, []string{"items", "split"})
	case o.Split == "all":
		keys = slices.Concat(keys, ofSplit, []string{"n", "held_out"})
	default:
		keys = slices.Concat(keys, []string{"n", "held_out"})
	}
	if o.Input == "" {
		keys = append(keys, "chat")
	}
	if o.Server.BaseURL == "" {
		return slices.Concat(keys, ofServer)
	}
	return slices.Concat(keys, ofFolder)
}

// unsaid are keys without effect that are no error: those of demonstrations where pairs are written.
func (o *Options) unsaid() []string {
	if o.Write == Pairs {
		return []string{"min_score", "most"}
	}
	return nil
}

// why says why a key has no effect.
func (o *Options) why(key string) string {
	switch {
	case o.Templates && slices.Contains(ofModel, key):
		return "templates write the answers, and no model is asked; remove one of the two"
	case slices.Contains(ofServer, key):
		return "it is about a server; add server.base_url"
	case key == "chat":
		return "it is about the prompts of a file; add input"
	case o.Input != "" && slices.Contains(ofItems, key):
		return fmt.Sprintf("it is about contextual-integrity items, and input %s has its own prompts; remove one of the two",
			o.Input)
	case o.Run != "" && slices.Contains(ofRun, key):
		return fmt.Sprintf("the run %s has that; remove one of the two", o.Run)
	case key == "n" || key == "held_out":
		return fmt.Sprintf("it is about synthetic scenarios, and data %s has its own; remove one of the two", o.Data)
	case slices.Contains(ofFolder, key):
		return "it is about a model in this process, server.base_url about one that a server has; remove one of the two"
	case o.Split == "all":
		return "split all takes every item; remove one of the two"
	}
	return "only a file of items is split: add data"
}

func check(g *config.Given, o *Options) {
	for _, key := range o.idle() {
		if g.Has(key) && g.Text(key) != "" && g.Text(key) != "false" {
			g.Fault(key, "%s %s: %s", key, g.Show(key), o.why(key))
		}
	}
	switch ofItems := o.Reward.Kind == scorer.CI; {
	case o.Input == "" && !ofItems && !g.Bad("reward.kind"):
		g.Fault("reward.kind", "reward.kind %s: contextual-integrity items have the reward ci; add input for others",
			o.Reward.Kind)
	case o.Input != "" && ofItems:
		g.Fault("reward.kind", "reward.kind ci: prompts of a file have no items that this reward scores by: want "+
			"command, judge or model")
	case o.Input == "" && o.Run == "" && o.Data == "" && o.N < 1 && !g.Bad("n"):
		g.Fault("n", "n %d: want a whole number, 1 or more", o.N)
	}
	if v, t := o.ValidationFraction, o.TestFraction; v+t > 1 && !g.Bad("test_fraction") {
		g.Fault("test_fraction", "validation_fraction %v and test_fraction %v: want a sum of 1 at most", v, t)
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
	if o.Write == Demonstrations && o.Input != "" && !g.Has("min_score") {
		g.Fault("min_score", "min_score is missing: want the least score of an answer that is a demonstration")
	}
	checkOut(g, "out", o.Out)
	checkOut(g, "keep", o.Keep)
	if o.Keep != "" && o.Keep == o.Out {
		g.Fault("keep", "keep %s: out is the same file; want another name", o.Keep)
	}
}

// checkOut refuses a file that cannot be written.
func checkOut(g *config.Given, key, path string) {
	for _, f := range recipe.CheckOut(path) {
		f.Key = key
		g.Fault(key, "%s", f)
	}
}
