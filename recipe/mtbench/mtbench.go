// Package mtbench is the recipe of posttrain eval mt-bench: a model answers the questions of MT-Bench, and a judge
// gives the answers scores; or judgements that exist are counted.
package mtbench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/eval"
	stages "github.com/posttrain/posttrain/eval/bench"
	bench "github.com/posttrain/posttrain/eval/mtbench"
	data "github.com/posttrain/posttrain/eval/mtbench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// Command is the command that runs this recipe.
const Command = "eval mt-bench"

// Options say which model is measured and who judges, or which judgements are counted. Paths are relative to the
// working directory.
type Options struct {
	Questions  string `yaml:"questions,omitempty" words:"a file of questions (question.jsonl)"`
	References string `yaml:"references,omitempty" words:"a file of reference answers (reference_gpt-4.jsonl)"`
	Prompts    string `yaml:"prompts,omitempty" words:"a file of the judge's prompts (judge_prompts.jsonl)"`
	// at which temperature answers are drawn: the benchmark's of each category, or agent.temperature
	Temperatures string `yaml:"temperatures" want:"category|one"`

	stages.BenchOptions `yaml:",inline"`

	Judgements string `yaml:"judgments,omitempty" words:"a .json, .jsonl or .parquet file (also .gz)"`
}

// The values of Options.Temperatures.
const (
	ByCategory     = "category"
	OneTemperature = "one"
)

// The lengths of answers and of a judge's replies, in tokens, are the benchmark's.
const (
	answerTokens = 1024
	judgeTokens  = 2048
)

// Defaults are the benchmark's settings; the caller gives files, model and judge, or judgements.
func Defaults() Options {
	return Options{Temperatures: ByCategory, BenchOptions: stages.DefaultBench(0.7, answerTokens, judgeTokens)}
}

// own are the keys that a count of judgements has.
var own = []string{"command", "judgments", "questions"}

// Spec says how a configuration becomes Options, for the stages that are to run.
func Spec(run ...string) *config.Spec[Options] {
	return &config.Spec[Options]{
		Command:  Command,
		Choose:   stages.ChooseBench,
		Defaults: func(*config.Given) Options { return Defaults() },
		Settle: func(g *config.Given, o *Options) {
			if g.Has("agent.temperature") && !g.Has("temperatures") {
				o.Temperatures = OneTemperature
			}
		},
		Check: func(g *config.Given, o *Options) { o.check(g, run) },
		Idle:  (*Options).idle,
	}
}

var _ = config.Register(Spec())

// check looks across sections.
func (o *Options) check(g *config.Given, run []string) {
	if o.Judgements != "" {
		stages.KeepKeys(g, own, "judgments, which are counted")
		return
	}
	if o.Questions == "" {
		g.Fault("questions", "questions is missing: want a file of questions (question.jsonl); or judgments, a file "+
			"of judgements to count")
	}
	if o.Temperatures == ByCategory && g.Has("agent.temperature") {
		g.Fault("agent.temperature", "agent.temperature %v: it has no effect with temperatures category; remove one "+
			"of the two", o.Agent.Temperature)
	}
	o.CheckBench(g, run, ", or judgments, a file of judgements to count")
}

// idle are the keys without effect.
func (o *Options) idle() (keys []string) {
	if o.Judgements != "" {
		return stages.AllBut(Spec().Keys(), own)
	}
	keys = o.IdleBench()
	if o.Temperatures == ByCategory {
		keys = append(keys, "agent.temperature")
	}
	return keys
}

// Uses reports whether one of the stages uses a key.
func Uses(run []string, key string) bool {
	switch key {
	case "questions", "references", "prompts":
		return true // every stage reads them
	case "temperatures":
		return slices.Contains(run, stages.StageAnswers)
	case "judgments":
		return len(run) > 1
	}
	uses, _ := stages.UsesBench(run, key)
	return uses
}

// Result is what was measured or counted. It is the form of summary.json.
type Result struct {
	Judge     string           `json:"judge,omitempty"`
	Models    []bench.Score    `json:"models"` // the best one first
	Warnings  []string         `json:"warnings,omitempty"`
	Published []eval.Published `json:"published"`
	Settings  stages.Settings  `json:"settings,omitempty"` // of a run's stages

	dir string
}

// Count counts judgements, and writes summary.json into the folder out; "": into none. A nil Reporter is silent.
func Count(o Options, out string, r run.Reporter) (*Result, error) {
	if err := Spec().Verify(&o); err != nil {
		return nil, err
	}
	r = run.Listen(r)
	all, report, err := data.ReadJudgements(o.Judgements)
	if err != nil {
		return nil, err
	}
	r.Say("%s", report)
	result := &Result{Published: eval.PublishedRows(eval.MTBench), dir: out}
	questions, err := o.readQuestions(all, r)
	if err == nil {
		result.Models, err = bench.Count(all, questions)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Judgements, err)
	}
	result.warn()
	slices.SortStableFunc(result.Models, func(a, b bench.Score) int {
		return cmp.Compare(b.Score.Value(), a.Score.Value())
	})
	return result, result.write(o)
}

// warn says how many judgements do not count.
func (s *Result) warn() {
	for i := range s.Models {
		if w := s.Models[i].Warning(); w != "" {
			s.Warnings = append(s.Warnings, w)
		}
	}
}

// readQuestions wants each of the questions among the judgements; nil without a file of questions.
func (o Options) readQuestions(all []data.Judgement, r run.Reporter) ([]data.Question, error) {
	if o.Questions == "" {
		return nil, nil
	}
	questions, report, err := data.ReadQuestions(o.Questions)
	if err != nil {
		return nil, err
	}
	r.Say("%s", report)
	for _, q := range questions {
		if !slices.ContainsFunc(all, func(j data.Judgement) bool { return j.Question == q.ID }) {
			return nil, fmt.Errorf("question %s of %s has no judgement: the file is cut short, or of another set", q.ID,
				o.Questions)
		}
	}
	return questions, nil
}

func (s *Result) write(o Options) error {
	if s.dir == "" {
		return nil
	}
	return stages.WriteCount(s.dir, "eval-mt-bench", Spec().Resolve(&o), s)
}

// String gives the scores in words.
func (s *Result) String() string {
	var b strings.Builder
	if s.Judge != "" {
		fmt.Fprintf(&b, "judge: %s\n", s.Judge)
	}
	for i := range s.Models {
		b.WriteString(s.Models[i].String())
	}
	for _, w := range s.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	b.WriteString(eval.PublishedLine(eval.MTBench))
	if s.dir != "" {
		fmt.Fprintf(&b, "Summary: %s\n", s.dir)
	}
	return b.String()
}
