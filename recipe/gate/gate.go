// Package gate is the recipe of posttrain eval gate: a model answers the scenarios of a policy, and the gate says
// whether it keeps the policy's norms.
package gate

import (
	"path/filepath"

	stages "github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
)

// Command is the command that runs this recipe.
const Command = "eval gate"

// Options say which model is tested, with what. Paths are relative to the working directory.
type Options struct {
	Policy    string `yaml:"policy" want:"given" words:"a file of norms and limits, such as configs/gate-norms.yaml"`
	Scenarios int    `yaml:"scenarios" want:">=1"` // of each norm as a message, and as many with a tool
	Samples   int    `yaml:"samples" want:">=1"`   // answers to each scenario
	Undecided string `yaml:"undecided" want:"pass|fail"`
	JUnit     string `yaml:"junit,omitempty" words:"a file to write, such as gate.xml"`

	stages.AnswerOptions `yaml:",inline"`
}

// Defaults have no policy and no model yet.
func Defaults() Options {
	return Options{Scenarios: 100, Samples: 1, Undecided: "pass", AnswerOptions: stages.DefaultAnswers(0, 1024)}
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
		g.Fault("samples", "samples %d: at temperature 0 all answers to a scenario are the same; want samples 1 and "+
			"more scenarios, or a temperature above 0", o.Samples)
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

// policyName is how the policy is called in results.
func (o *Options) policyName() string { return filepath.Base(o.Policy) }
