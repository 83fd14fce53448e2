// Package confaide is the recipe of posttrain eval confaide: a model answers the questions of ConfAIde, several times
// each, and its answers are counted as the benchmark does.
package confaide

import (
	"slices"
	"strings"

	stages "github.com/posttrain/posttrain/eval/bench"
	bench "github.com/posttrain/posttrain/eval/confaide"
	data "github.com/posttrain/posttrain/eval/confaide"
	"github.com/posttrain/posttrain/internal/config"
)

// Command is the command that runs this recipe.
const Command = "eval confaide"

// Released is the value of Options.Prompts for the benchmark's own, which scripts/confaide/export_prompts.py writes
// into the folder of the data.
const Released = "released"

// Options say which model is measured, with what. Paths are relative to the working directory.
type Options struct {
	Data  string   `yaml:"data" want:"given" words:"the folder of the benchmark's files (tier_1.txt and so on)"`
	Tiers []string `yaml:"tiers" want:"1|2a|2b|3|4"`
	// of tiers 3 and 4
	Questions []string `yaml:"questions" words:"kinds of questions, such as free-response"`
	Samples   int      `yaml:"samples" want:">=1"` // answers to each question
	Prompts   string   `yaml:"prompts,omitempty" words:"a file of templates, a folder with prompts.jsonl, or released"`

	// what becomes of a <think> block at the beginning of an answer: strip reads what follows it, keep the whole answer
	Think string `yaml:"think" want:"strip|keep"`

	stages.AnswerOptions `yaml:",inline"`
}

// Defaults are the benchmark's settings; the caller gives data and model.
func Defaults() Options {
	return Options{Tiers: slices.Clone(data.Tiers), Questions: bench.Kinds(), Samples: 10, Think: stages.ThinkStrip,
		AnswerOptions: stages.DefaultAnswers(1, 1024)}
}

// Spec says how a configuration becomes Options, for the stages that are to run.
func Spec(run ...string) *config.Spec[Options] {
	return &config.Spec[Options]{
		Command:  Command,
		Choose:   stages.ChooseBench,
		Defaults: func(*config.Given) Options { return Defaults() },
		Check:    func(g *config.Given, o *Options) { o.check(g, run) },
		Idle:     func(o *Options) []string { return o.IdleBench() },
	}
}

var _ = config.Register(Spec())

// check looks across sections.
func (o *Options) check(g *config.Given, run []string) {
	if o.Samples > 1 && o.Agent.Temperature == 0 && o.Agent.Answers == "" {
		g.Fault("samples", "samples %d: at temperature 0 all answers to a question are the same; want samples 1, or "+
			"agent.temperature 1 as in the benchmark", o.Samples)
	}
	if unknown := func(kind string) bool { return !slices.Contains(bench.Kinds(), kind) }; len(o.Questions) == 0 ||
		slices.ContainsFunc(o.Questions, unknown) {
		g.Fault("questions", "questions %v: want some of %s", o.Questions, strings.Join(bench.Kinds(), ", "))
	}
	o.CheckAgent(g, run, "")
}

// Uses reports whether one of the stages uses a key.
func Uses(run []string, key string) bool {
	if uses, ok := stages.UsesBench(run, key); ok {
		return uses
	}
	return true
}
