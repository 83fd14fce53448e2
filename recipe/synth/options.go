// Package synth is the recipe of posttrain data synth: it writes contextual-integrity items in three stages, seeds,
// vignettes and items, by templates or by a model on a server, or demonstrations of the templates' items.
package synth

import (
	"errors"
	"slices"
	"time"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe"
)

// Command is the command that runs this recipe.
const Command = "data synth"

// What is written, and by whom.
const (
	Demonstrations = "demonstrations" // a file of prompts with completions
	Items          = "items"          // a folder with items and what was rejected

	Templates = "templates" // offline
	Model     = "model"     // on a server
)

// Options say what is written, by whom, and where it goes. Paths are relative to the working directory.
type Options struct {
	Form    string `yaml:"form" want:"demonstrations|items" flag:"form" help:"items (what a model writes) or demonstrations"`
	Engine  string `yaml:"engine" want:"templates|model" flag:"engine" help:"who writes: model (with --api-model) or templates"`
	N       int    `yaml:"n,omitempty" want:">=0" flag:"n" help:"scenarios; of items seeds, 200 by default"` // demonstrations, or seeds of items
	Seed    uint64 `yaml:"seed" flag:"seed" help:"seed of scenarios, orders and flaws"`
	HeldOut bool   `yaml:"held_out" flag:"held-out" help:"names and values that training scenarios never have"` // scenarios whose names and values training scenarios never have
	Out     string `yaml:"out" want:"given" words:"a .jsonl, .json or .parquet file (also .gz), of items a folder" flag:"out" help:"of items a folder, new or to continue; else a data file"`

	ci.Flaws `yaml:",inline"` // of demonstrations

	// Of items. Seeds names a file of seeds; without it N seeds are drawn by the plan.
	Seeds   string `yaml:"seeds,omitempty" words:"a .json, .jsonl or .parquet file of seeds (also .gz)" flag:"seeds" help:"file of seeds in the release's form, in place of drawn ones"`
	ci.Plan `yaml:",inline"`
	PerSeed []int  `yaml:"per_seed" want:">=1 <=9" words:"the fewest and the most, from 1 to 9, such as 3,5" flag:"per-seed" help:"fewest and most vignettes of a seed"`
	Writer  Writer `yaml:"writer" flags:""`
	// items with this share of their word triples in common are duplicates
	Near float64 `yaml:"near" want:">=0 <=1" zero:"no gate"`
}

// Writer is the model that writes, on an OpenAI-compatible server.
type Writer struct {
	bench.Judge `yaml:",inline" flags:"-"`

	Temperature float64 `yaml:"temperature" want:">=0" flag:"temperature" help:"temperature of the model's draws"`
	Structured  bool    `yaml:"structured"` // JSON by a schema, where the server offers it
}

// Defaults write demonstrations by templates.
func Defaults() Options {
	w := Writer{Judge: bench.DefaultJudge(4000), Temperature: 1, Structured: true}
	w.Timeout = 5 * time.Minute
	return Options{Form: Demonstrations, Engine: Templates, N: 4000, Seed: 1, Plan: ci.DefaultPlan(),
		PerSeed: []int{3, 5}, Writer: w, Near: records.DefaultNear}
}

// defaultSeeds are the seeds of items where the options do not say: four items of each are the paper's 795, and some.
const defaultSeeds = 200

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command: Command,
	Defaults: func(g *config.Given) Options {
		o := Defaults()
		if g.Has("writer.model") {
			o.Engine, o.Form = Model, Items
		}
		if g.Text("engine") == Model {
			o.Form = Items
		}
		return o
	},
	Settle: func(g *config.Given, o *Options) {
		switch {
		case o.Seeds != "" && !g.Has("n"):
			o.N = 0
		case o.Form == Items && !g.Has("n"):
			o.N = defaultSeeds
		}
	},
	Check: check,
	Idle:  func(o *Options) []string { return o.idle() },
})

// The keys that one form, one engine or one source of seeds has.
var (
	ofDemonstrations = []string{"leak", "omit", "garble", "leak_habit", "omit_habit"}
	ofPlan           = []string{"n", "domains", "principles", "scenarios"}
	ofItems          = []string{"seeds", "domains", "principles", "scenarios", "per_seed", "near"}
	ofModel          = []string{"seeds", "writer"}
)

// idle are the keys and sections without effect.
func (o *Options) idle() (keys []string) {
	if o.Form == Demonstrations {
		return slices.Concat(ofItems, ofModel)
	}
	keys = ofDemonstrations
	if o.Engine == Model {
		keys = slices.Concat(keys, []string{"held_out"})
	} else {
		keys = slices.Concat(keys, ofModel)
	}
	if o.Seeds != "" {
		keys = slices.Concat(keys, ofPlan)
	}
	return keys
}

func check(g *config.Given, o *Options) {
	if o.Form == Demonstrations && o.Engine == Model {
		g.Fault("form", "form demonstrations: only the engine templates writes them; want form items with engine model")
		return
	}
	for _, key := range g.Keys() {
		if g.Text(key) == "" || !slices.ContainsFunc(o.idle(), func(idle string) bool { return in(key, idle) }) {
			continue
		}
		switch with := func(what string) {
			g.Fault(key, "%s %s: it has no effect with %s; remove it", key, g.Show(key), what)
		}; {
		case o.Form == Demonstrations:
			with("form demonstrations")
		case slices.Contains(ofDemonstrations, key):
			with("form items")
		case slices.Contains(ofPlan, key) && o.Seeds != "":
			with("seeds " + o.Seeds)
		default:
			with("engine " + o.Engine)
		}
	}
	if o.Seeds == "" && o.N < 1 && !g.Bad("n") {
		g.Fault("n", "n %d: want a whole number, 1 or more", o.N)
		return
	}
	if o.Form == Demonstrations {
		o.checkDemonstrations(g)
		return
	}
	o.checkItems(g)
}

// in reports whether a key is one, or in a section of this name.
func in(key, section string) bool {
	return key == section || len(key) > len(section) && key[:len(section)+1] == section+"."
}

func (o *Options) checkDemonstrations(g *config.Given) {
	for _, f := range recipe.CheckOut(o.Out) {
		g.Fault("out", "%s", f)
	}
}

func (o *Options) checkItems(g *config.Given) {
	if n := o.PerSeed; !g.Bad("per_seed") && (len(n) != 2 || n[0] > n[1]) {
		g.Fault("per_seed", "per_seed %v: want the fewest and the most vignettes of a seed, such as 3,5", n)
	}
	if o.Seeds == "" && !g.Bad("n") {
		_, err := o.draw()
		if f, ok := errors.AsType[fault.Fault](err); ok {
			g.Fault(f.Key, "%s", f)
		}
	}
	if o.Engine != Model {
		return
	}
	if o.Writer.Model == "" {
		g.Fault("writer.model", "writer.model is missing: want the model's name on %s", o.Writer.BaseURL)
	}
	if o.Writer.MaxCost > 0 && !o.Writer.HasPrice() {
		g.Fault("writer.max_cost", "writer.max_cost %v: without prices nothing costs anything; give "+
			"writer.prompt_price and writer.completion_price, each of a million tokens", o.Writer.MaxCost)
	}
}

// draw draws the seeds. An error is a fault of a field.
func (o *Options) draw() ([]ci.Seed, error) {
	if o.Engine == Templates {
		return o.Plan.Draw(o.N, o.Seed, ci.CanCompose)
	}
	return o.Plan.Draw(o.N, o.Seed, nil)
}
