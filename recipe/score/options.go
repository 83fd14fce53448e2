// Package score is the recipe of posttrain data score: it gives the answers of preference pairs scores, for the prior.
package score

import (
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Command is the command that runs this recipe.
const Command = "data score"

// Options say which pairs are scored, and by whom. Paths are relative to the working directory.
type Options struct {
	Data   string         `yaml:"data" want:"given" hub:"data" words:"pairs: a .jsonl, .json or .parquet file (also .gz)"`
	Out    string         `yaml:"out" want:"given" words:"a file to write: .jsonl, .json or .parquet (also .gz)"`
	Reward scorer.Options `yaml:"reward"`
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command:  Command,
	Without:  []string{"reward.ci.format", "reward.ci.match"},
	Defaults: func(*config.Given) Options { return Options{Reward: scorer.Defaults()} },
	Settle:   func(_ *config.Given, o *Options) { o.Reward.Settle() },
	Check: func(g *config.Given, o *Options) {
		if o.Reward.Kind == scorer.CI {
			g.Fault("reward.kind", "reward.kind ci: pairs say nothing of the items that this reward scores by: want "+
				"command or judge")
		}
		for _, f := range recipe.CheckOut(o.Out) {
			g.Fault("out", "%s", f)
		}
	},
})
