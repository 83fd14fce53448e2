// Package arena is the recipe of posttrain eval arena-hard: a model answers the questions of Arena-Hard v0.1, and a
// judge compares its answers with a baseline's in both orders; or judgements that exist are counted.
package arena

import (
	"fmt"
	"strings"

	report "github.com/posttrain/posttrain/eval"
	data "github.com/posttrain/posttrain/eval/arena"
	eval "github.com/posttrain/posttrain/eval/arena"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// Command is the command that runs this recipe.
const Command = "eval arena-hard"

// Options say which model is measured and who judges, or which judgements are counted. Paths are relative to the
// working directory. The seed is of the bootstrap, too.
type Options struct {
	Questions string `yaml:"questions,omitempty" words:"a file of questions (question.jsonl)"`
	Baseline  string `yaml:"baseline,omitempty" words:"a file of the baseline's answers"`
	Prompts   string `yaml:"prompts,omitempty" words:"a .yaml file of the judge's prompt (arena-hard-v0.1.yaml)"`
	Rounds    int    `yaml:"rounds" want:">=1"` // of the bootstrap

	bench.BenchOptions `yaml:",inline"`

	Judgements string `yaml:"judgments,omitempty" words:"a .json, .jsonl or .parquet file (also .gz)"`
	Out        string `yaml:"out,omitempty" words:"a folder to make"` // of a count of judgements
}

// tokens is the most that an answer, and a judge's reply, may have, as in the benchmark.
const tokens = 4096

// Defaults are the benchmark's settings; the caller gives files, model and judge, or judgements.
func Defaults() Options {
	return Options{Rounds: 1000, BenchOptions: bench.DefaultBench(0, tokens, tokens)}
}

// own are the keys that a count of judgements has.
var own = []string{"command", "judgments", "rounds", "seed", "out"}

// Spec says how a configuration becomes Options, for the stages that are to run.
func Spec(run ...string) *config.Spec[Options] {
	return &config.Spec[Options]{
		Command:  Command,
		Choose:   bench.ChooseBench,
		Defaults: func(*config.Given) Options { return Defaults() },
		Check:    func(g *config.Given, o *Options) { o.check(g, run) },
		Idle: func(o *Options) []string {
			if o.Judgements == "" {
				return o.IdleBench()
			}
			return bench.AllBut(Spec().Keys(), own)
		},
	}
}

var _ = config.Register(Spec())

// check looks across sections.
func (o *Options) check(g *config.Given, run []string) {
	if o.Judgements != "" {
		bench.KeepKeys(g, own, "judgments, which are counted")
		return
	}
	if o.Questions == "" {
		g.Fault("questions", "questions is missing: want a file of questions (question.jsonl); or judgments, a file "+
			"of judgements to count")
	}
	if o.Baseline == "" && o.Questions != "" {
		g.Fault("baseline", "baseline is missing: want a file of the baseline's answers (gpt-4-0314.jsonl)")
	}
	if o.Out != "" {
		g.Fault("out", "out %s: it has an effect with judgments alone; name a run's folder with --out", o.Out)
	}
	o.CheckBench(g, run, ", or judgments, a file of judgements to count")
}

// Uses reports whether one of the stages uses a key.
func Uses(run []string, key string) bool {
	switch key {
	case "questions", "baseline", "prompts":
		return true // every stage reads them
	case "rounds", "seed":
		return true
	case "judgments":
		return len(run) > 1
	}
	uses, _ := bench.UsesBench(run, key)
	return uses
}

// Result is what was measured or counted. It is the form of summary.json.
type Result struct {
	Model string `json:"model"`
	eval.Score
	Judge     string             `json:"judge,omitempty"`
	Baseline  string             `json:"baseline,omitempty"`
	Published []report.Published `json:"published"`
	Warnings  []string           `json:"warnings,omitempty"`
	Settings  bench.Settings     `json:"settings,omitempty"` // of a run's stages

	dir string
}

// Count counts judgements, and writes summary.json into Options.Out. A nil Reporter is silent.
func Count(o Options, r run.Reporter) (*Result, error) {
	if err := Spec().Verify(&o); err != nil {
		return nil, err
	}
	all, rows, err := data.ReadJudgements(o.Judgements)
	if err != nil {
		return nil, err
	}
	run.Listen(r).Say("%s", rows)
	result := &Result{Model: all[0].Model, dir: o.Out, Published: report.PublishedRows(report.ArenaHard)}
	if result.Score, err = eval.Count(all, o.Rounds, o.Seed); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Judgements, err)
	}
	if o.Out == "" {
		return result, nil
	}
	return result, bench.WriteCount(o.Out, "eval-arena-hard", Spec().Resolve(&o), result)
}

// String gives the score in words.
func (s *Result) String() string {
	var counts []string
	for _, verdict := range data.Verdicts {
		counts = append(counts, fmt.Sprintf("%s %d", verdict, s.Verdicts[verdict]))
	}
	text := fmt.Sprintf("%s: score %.1f %% (%.1f to %.1f), %d games against the baseline, which has 50 %%\n"+
		"verdicts, the model being A: %s\n", s.Model, s.Score.Score, s.Low, s.High, s.Games, strings.Join(counts, ", "))
	if s.Missing > 0 {
		text += fmt.Sprintf("%d games have no verdict\n", s.Missing)
	}
	for _, w := range s.Warnings {
		text += "warning: " + w + "\n"
	}
	if s.Judge != "" {
		text += fmt.Sprintf("judge %s, baseline %s\n", s.Judge, s.Baseline)
	}
	text += report.PublishedLine(report.ArenaHard)
	if s.dir != "" {
		text += fmt.Sprintf("Summary: %s\n", s.dir)
	}
	return text
}
