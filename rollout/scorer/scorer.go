// Package scorer gives answers scores, for the prior of MaPPO and for GRPO: by a program of the user, by a model that
// judges, by a reward model, by a function, or by several of them with weights.
//
// [Open] makes a judge ([ask.Judge]) of [Options]. What becomes of scores is for data.RewardOptions to say.
// A program (command.go) gets answers as lines of JSON and writes a score for each.
// A judge (judge.go) asks a model on a server by a rubric, through the client that keeps replies and holds to limits.
// A reward model (model.go) computes in this process: its head gives each prompt with its answer a number.
// Functions (function.go) compare an answer with the right one, or with a pattern. The contextual-integrity reward
// (ci.go) looks for the keywords of an item. Several judges are added up (several.go).
package scorer

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/rollout/metered"
)

// Kinds of sources.
const (
	Command = "command"
	Judge   = "judge"
	Model   = "model"
	CI      = "ci"
	Exact   = "exact"   // 1 where the answer is the row's
	Pattern = "pattern" // 1 where the answer matches
)

var kinds = []string{Command, Judge, Model, CI, Exact, Pattern}

const usualColumn = "answer" // of the kind exact

// Options choose a source, or several whose scores are added up with weights.
type Options struct {
	Kind    string        `yaml:"kind" want:"given" words:"command, judge, model, ci, exact or pattern, or several with commas" flag:"reward" help:"who scores answers:"`
	Weights []float64     `yaml:"weights,omitempty" flag:"weights" help:"of several kinds, in their order (1)"`
	Command []string      `yaml:"command,omitempty" needs:"commands" words:"a program and its arguments" flag:"command,exact" help:"the program that scores, with its arguments behind blanks"`
	Timeout time.Duration `yaml:"timeout" want:">0" default:"5m" help:"of a call of the program, or of a request"`
	Judge   JudgeOptions  `yaml:"judge"`
	Model   ModelOptions  `yaml:"model"`
	CI      CIOptions     `yaml:"ci"`

	FunctionOptions `yaml:",inline"`
}

// Kinds are the kinds of the sources.
func (o Options) Kinds() []string {
	all := strings.Split(o.Kind, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// Has says that a source is of a kind.
func (o Options) Has(kind string) bool { return slices.Contains(o.Kinds(), kind) }

// Weigh are the weights of the kinds, in their order.
func (o Options) Weigh() []float64 {
	if len(o.Weights) == 0 {
		return slices.Repeat([]float64{1}, len(o.Kinds()))
	}
	return o.Weights
}

// JudgeOptions say which model judges, how, and at what cost. A rubric is a template over .Prompt, .Answer, .Lowest and
// .Highest.
type JudgeOptions struct {
	metered.Options `yaml:",inline" flags:"base_url=judge-base-url model=judge-model max_cost=max-cost" defaults:"base_url= timeout=5m"`

	Rubric string    `yaml:"rubric,omitempty" words:"a file with a template, or nothing: the built-in one" flag:"rubric" help:"file with the judge's template; empty: a built-in one"`
	Range  []float64 `yaml:"range" words:"two numbers, the lowest and the highest score" default:"1,10" help:"the lowest and the highest score"`
}

// Defaults are the defaults of all kinds; the caller gives a kind, and a program, a server's model or a reward model.
func Defaults() Options { return config.Default[Options]() }

// Resolve parts a command that is given as one text at its blanks. A judge has the time of all kinds, unless it is given
// one of its own.
func (o *Options) Resolve(g *config.Given) {
	if !g.Has("judge.timeout") {
		o.Judge.Timeout = o.Timeout
	}
	if len(o.Command) == 1 {
		o.Command = strings.Fields(o.Command[0])
	}
}

// Check names every fault of the options.
func (o Options) Check() []fault.Fault {
	faults := fault.Faults(fault.Check(o))
	if o.Kind != "" {
		faults = append(faults, o.checkKinds()...)
	}
	switch {
	case o.Has(Command) && len(o.Command) == 0:
		faults.Add("command", o.Command, "want a program and its arguments")
	case o.Has(Model) && o.Model.Folder == "":
		faults.Add("model.folder", o.Model.Folder, "want the folder of a reward model")
	case o.Has(Judge) && o.Judge.Model == "":
		faults.Add("judge.model", o.Judge.Model, "want the model's name on the server")
	case o.Has(Judge) && o.Judge.BaseURL == "":
		faults.Add("judge.base_url", o.Judge.BaseURL, "want the URL of an OpenAI-compatible server")
	case o.Has(Pattern) && o.Pattern == "":
		faults.Add("pattern", o.Pattern, "want a regular expression")
	}
	if _, err := regexp.Compile(o.Pattern); err != nil {
		faults.Add("pattern", o.Pattern, "%s: want a regular expression", strings.TrimPrefix(err.Error(),
			"error parsing regexp: "))
	}
	if r := o.Judge.Range; len(r) != 2 || !(r[0] < r[1]) {
		faults.Add("judge.range", r, "want the lowest and the highest score, such as [1, 10]")
	}
	if j := o.Judge; j.MaxCost > 0 && !j.HasPrice() {
		faults.Add("judge.max_cost", j.MaxCost, "want judge.prompt_price and judge.completion_price as well")
	}
	return faults
}

// checkKinds refuses unknown kinds, one twice, other numbers of weights, and what only other kinds use.
func (o Options) checkKinds() (faults fault.Faults) {
	named := o.Kinds()
	for i, kind := range named {
		if !slices.Contains(kinds, kind) {
			faults.Add("kind", o.Kind, "want %s, or several with commas", fault.Or(kinds))
			return faults
		}
		if slices.Contains(named[:i], kind) {
			faults.Add("kind", o.Kind, "%s is there twice: want each once; one command can run several programs", kind)
		}
	}
	if len(o.Weights) > 0 && len(o.Weights) != len(named) {
		faults.Add("weights", o.Weights, "kind %s: want %d, one for each", o.Kind, len(named))
	}
	unused := func(key string, value any, given bool, of, what string) {
		if given && !o.Has(of) {
			faults.Add(key, value, "%s scores without %s: remove it, or set kind to %s", o.Kind, what, of)
		}
	}
	unused("command", o.Command, len(o.Command) > 0, Command, "a program")
	unused("model.folder", o.Model.Folder, o.Model.Folder != "", Model, "a reward model")
	unused("pattern", o.Pattern, o.Pattern != "", Pattern, "a pattern")
	unused("column", o.Column, o.Column != "" && o.Column != usualColumn, Exact, "a column")
	unused("judge.model", o.Judge.Model, o.Judge.Model != "", Judge, "a judge")
	unused("judge.rubric", o.Judge.Rubric, o.Judge.Rubric != "", Judge, "a rubric")
	return faults
}

// Caller says where a judge keeps what it may need again, and who hears its warnings.
type Caller struct {
	Cache string // file of a judge's replies; "": they are not kept
	Warn  func(format string, args ...any)
	Say   func(format string, args ...any) // may be nil
}

// Open makes a judge.
func Open(o Options, p Caller) (ask.Judge, error) {
	if err := fault.Err("reward", o.Check()); err != nil {
		return nil, err
	}
	if len(o.Kinds()) > 1 || len(o.Weights) > 0 {
		return openSeveral(o, p)
	}
	return openKind(o.Kind, o, p)
}

// openKind makes a judge of one kind.
func openKind(kind string, o Options, p Caller) (ask.Judge, error) {
	switch kind {
	case Command:
		return program{name: o.Command[0], args: slices.Clone(o.Command[1:]), timeout: o.Timeout}, nil
	case Model:
		return openModel(o.Model, p)
	case CI:
		return openCI(o.CI), nil
	case Exact:
		return openExact(o.FunctionOptions), nil
	case Pattern:
		return openPattern(o.FunctionOptions), nil
	}
	rubric, err := readRubric(o.Judge.Rubric)
	if err != nil {
		return nil, err
	}
	j := o.Judge
	j.Name, j.Cache, j.Warn = "judge", cmp.Or(j.Cache, p.Cache), p.Warn
	client, err := metered.Open(j.Options)
	if err != nil {
		return nil, err
	}
	return &rubricJudge{model: client, rubric: rubric, lowest: j.Range[0], highest: j.Range[1],
		parallel: 2 * j.Parallel, close: client.Close}, nil
}
