// Package scenarios is what the recipes evalci and best share: which contextual-integrity scenarios are put to a model,
// in which prompts, and how its answers are drawn and scored.
package scenarios

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

// Options say which scenarios, and how. Paths are relative to the working directory.
type Options struct {
	recipe.LocalModel `yaml:",inline"`
	Seed              uint64 `yaml:"seed"` // of synthetic scenarios and draws

	Chat local.Chat `yaml:"chat"`

	// The scenarios: those of a ci-rl run, the items of a file, or synthetic ones.
	Run     string `yaml:"run,omitempty" words:"the config of a ci-rl run"`
	Data    string `yaml:"data,omitempty" hub:"data" words:"a .jsonl, .json or .parquet file of items (also .gz)"`
	N       int    `yaml:"n,omitempty" want:">=0"` // synthetic scenarios; of a file the first n, 0: all
	HeldOut bool   `yaml:"held_out"`               // synthetic ones with names and values that training never has

	// which items of Data: those that the released preprocessing keeps, or all, as with ""
	Items string `yaml:"items,omitempty" want:"|all|released" words:"all or released"`
	// The part of Data. ci-rl with SplitSeed for its seed and the same fractions splits it in the same way.
	Split              string  `yaml:"split" want:"test|validation|train|all"`
	SplitSeed          uint64  `yaml:"split_seed"`
	ValidationFraction float64 `yaml:"validation_fraction" want:">=0 <=1"`
	TestFraction       float64 `yaml:"test_fraction" want:">=0 <=1"`

	ci.Form `yaml:",inline"`
	// longer prompts are left out; 0: what the model takes
	MaxPromptTokens  int `yaml:"max_prompt_tokens" want:">=0"`
	rollout.Sampling `yaml:",inline"`
	Reward           reward.Options `yaml:"reward"`
}

// How many tokens an answer has at most where the options do not say: enough for the embedded scenarios, and for items
// of a file the released length. A model with fewer positions writes fewer.
const (
	DefaultMaxNew = 128
	FileMaxNew    = 2048
)

// Defaults take the embedded model and synthetic scenarios.
func Defaults() Options {
	return Options{
		LocalModel: config.Default[recipe.LocalModel](), Split: "test", ValidationFraction: 0.09, TestFraction: 0.10,
		Sampling: rollout.Sampling{MaxNew: DefaultMaxNew}, Reward: reward.DefaultOptions(),
	}
}

// Follow takes model, prompts, sampling and reward from the config of a ci-rl run. The part "test" is drawn at the
// temperature of the run's tests, others as in training.
func (o *Options) Follow(path, part string) error {
	c, err := cirl.Spec.Load(config.Input{Path: path})
	if err != nil {
		return err
	}
	o.Run, o.Model, o.Backend, o.Split, o.SplitSeed = path, c.Model, c.Backend, part, c.Seed
	o.Chat = c.Chat
	o.Form, o.Reward, o.Sampling = c.Data.Form, c.Reward, c.Sampling.Sampling
	if part == "test" {
		o.Sampling = c.TestSampling()
		return nil
	}
	o.MaxPromptTokens = c.Data.MaxPromptTokens
	return nil
}

// FollowGiven follows the run that the user names, if any.
func (o *Options) FollowGiven(g *config.Given, part string) {
	if path := g.Text("run"); path != "" {
		if err := o.Follow(path, part); err != nil {
			g.Fault("run", "run %s: %s", path, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
}

// Settle gives the length of answers to the items of a file its default.
func (o *Options) Settle(g *config.Given) {
	if o.Run == "" && o.Data != "" && !g.Has("max_new_tokens") {
		o.MaxNew = FileMaxNew
	}
}

// ofRun are the keys whose values a run has.
var ofRun = []string{"data", "items", "n", "held_out", "prompt", "template", "prefill", "max_prompt_tokens", "split",
	"split_seed", "validation_fraction", "test_fraction", "chat.template", "chat.template_sha256", "chat.variables",
	"chat.date"}

// Idle are the keys without effect: those that the run has, or those about a split where nothing is split.
func (o *Options) Idle() []string {
	switch {
	case o.Run != "":
		return append([]string{"reward.format", "reward.match", "reward.required_weight",
			"reward.restricted_weight"}, ofRun...)
	case o.Data == "":
		return []string{"items", "split", "split_seed", "validation_fraction", "test_fraction"}
	case o.Split == "all":
		return []string{"held_out", "split_seed", "validation_fraction", "test_fraction"}
	}
	return []string{"held_out"}
}

// Check refuses given keys that have no effect, and values that do not go together.
func (o *Options) Check(g *config.Given) {
	for _, key := range o.Idle() {
		if !g.Has(key) {
			continue
		}
		what := "only a file of items is split: add data"
		switch {
		case o.Run != "":
			what = fmt.Sprintf("the run %s has that; remove one of the two", o.Run)
		case key == "held_out":
			what = fmt.Sprintf("it is about synthetic scenarios, and data %s has its own; remove one of the two",
				o.Data)
		case o.Data != "":
			what = "split all takes the whole file; remove one of the two"
		}
		g.Fault(key, "%s %s: %s", key, g.Show(key), what)
	}
	if o.Run == "" && o.Data == "" && o.N < 1 {
		g.Fault("n", "n %d: want a whole number, 1 or more", o.N)
	}
	if v, t := o.ValidationFraction, o.TestFraction; v >= 0 && v <= 1 && t >= 0 && t <= 1 && v+t > 1 {
		g.Fault("test_fraction", "test_fraction %v: with validation_fraction %v the sum is above 1: want 1 at most",
			t, v)
	}
}

// CheckLength refuses answers longer than the model's positions, unless the length is the default or a run's.
func (o *Options) CheckLength(positions int) error {
	if o.Run != "" {
		return nil
	}
	byDefault := DefaultMaxNew
	if o.Data != "" {
		byDefault = FileMaxNew
	}
	return recipe.CheckLength(o.MaxNew, byDefault, positions)
}

var parts = map[string]ci.Part{"train": ci.Train, "validation": ci.Validation, "test": ci.Test, "all": ci.All}
