// Package synth is the recipe of posttrain data synth: a model on a server writes contextual-integrity items in three
// stages, seeds, vignettes and items; without one, templates write demonstrations of synthetic items.
package synth

import (
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/metered"
)

// Command is the command that runs this recipe.
const Command = "data synth"

// Options say what is written, by whom, and where it goes. Paths are relative to the working directory.
type Options struct {
	N    int    `yaml:"n" want:">=1" default:"4000" flag:"n" help:"demonstrations; of items seeds, 200 by default"`
	Seed uint64 `yaml:"seed" default:"1" flag:"seed" help:"seed of scenarios, orders and flaws"`
	Out  string `yaml:"out" want:"given" words:"a .jsonl or .json file (also .gz), of items a folder" flag:"out" help:"data file of demonstrations; of items a folder, new or to continue"`

	// Of demonstrations.
	HeldOut  bool `yaml:"held_out" flag:"held-out" help:"names and values that training scenarios never have"`
	ci.Flaws `yaml:",inline"`

	Episodes `yaml:",inline"`

	// Of items.
	ci.Plan `yaml:",inline"`
	PerSeed []int   `yaml:"per_seed" want:">=1 <=9" default:"3,5" words:"the fewest and the most, from 1 to 9, such as 3,5" flag:"per-seed" help:"fewest and most vignettes of a seed"`
	Writer  Writer  `yaml:"writer" flags:""`
	Near    float64 `yaml:"near" want:">=0 <=1" zero:"no gate" default:"0.7" help:"items with this share of their word triples in common are duplicates; 0: no gate"`
}

// Writer is the model that writes, on an OpenAI-compatible server.
type Writer struct {
	metered.Options `yaml:",inline" flags:"-" defaults:"max_new_tokens=4000 timeout=5m"`

	Temperature float64 `yaml:"temperature" want:">=0" default:"1" flag:"temperature" help:"temperature of the model's draws"`
	Structured  bool    `yaml:"structured" default:"true" help:"ask for JSON by a schema, as long as the server does not refuse it"`
}

// defaultSeeds are the seeds of items where the options do not say: four items of each are the paper's 795, and some.
const defaultSeeds = 200

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{Command: Command})

// writes says that a model writes items.
func (o *Options) writes() bool { return o.Writer.Model != "" }

// Idle are the keys of the other forms.
func (o *Options) Idle(*config.Given) config.Idle {
	all := config.Idle{}
	rates := []string{"leak", "omit", "leak_habit", "omit_habit"}
	if o.Agent == "" {
		all.Add("it is about episodes: want agent compact, text or tools, or remove it", "policy", "write")
	} else {
		all.Add("it breaks the form of answers, and episodes keep theirs: remove it", "garble")
	}
	if o.Agent != "" && o.Write == "items" {
		all.Add("items have no writer who errs: want write demonstrations, or remove it", rates...)
	}
	if !o.needsModel() {
		all.Add("its chat template writes the calls of agent tools' demonstrations: want these, or remove it", "model")
	}
	if o.writes() {
		all.Add("it is about demonstrations, and a model writes items; remove it",
			append(rates, "held_out", "garble", "write", "model")...)
	} else {
		all.Add("it is about items that a model writes: add writer.model, or remove it", "domains", "principles",
			"scenarios", "per_seed", "near", "writer")
	}
	return all
}

// Resolve chooses how many seeds there are.
func (o *Options) Resolve(g *config.Given) {
	if o.writes() && !g.Has("n") {
		o.N = defaultSeeds
	}
}

// Validate refuses what one form alone needs.
func (o *Options) Validate(g *config.Given) {
	o.validateEpisodes(g)
	if !o.writes() {
		g.Take(recipe.CheckOut("out", o.Out)...)
		return
	}
	if n := o.PerSeed; !g.Bad("per_seed") && (len(n) != 2 || n[0] > n[1]) {
		g.Fault("per_seed", "per_seed %v: want the fewest and the most vignettes of a seed, such as 3,5", n)
	}
	o.Writer.CheckCost(g.In("writer."))
}
