// Package arena is the recipe of posttrain eval arena-hard: it counts judgements of Arena-Hard v0.1.
package arena

import (
	"context"
	"fmt"
	"strings"

	data "github.com/posttrain/posttrain/data/arena"
	eval "github.com/posttrain/posttrain/eval/arena"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/run"
)

// Command is the command that runs this recipe.
const Command = "eval arena-hard"

// Options say which judgements are counted. Paths are relative to the working directory.
type Options struct {
	Judgements string `yaml:"judgments" want:"given" words:"a .json, .jsonl or .parquet file (also .gz)"`
	Rounds     int    `yaml:"rounds" want:">=1"` // of the bootstrap
	Seed       uint64 `yaml:"seed"`
	Out        string `yaml:"out,omitempty" words:"a folder to make"`
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command:  Command,
	Defaults: func(*config.Given) Options { return Options{Rounds: 1000} },
})

// Result is what was counted. It is the form of summary.json.
type Result struct {
	Model string `json:"model"`
	eval.Score

	dir string
}

// Run counts, and writes summary.json into Options.Out. A nil Reporter is silent.
func Run(_ context.Context, o Options, r run.Reporter) (*Result, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	all, report, err := data.ReadJudgements(o.Judgements)
	if err != nil {
		return nil, err
	}
	run.Listen(r).Say("%s", report)
	result := &Result{Model: all[0].Model, dir: o.Out}
	if result.Score, err = eval.Count(all, o.Rounds, o.Seed); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Judgements, err)
	}
	if o.Out == "" {
		return result, nil
	}
	folder, err := run.Create(o.Out, "eval-arena-hard")
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	if err := folder.WriteConfig(Spec.Resolve(&o)); err != nil {
		return nil, err
	}
	return result, folder.WriteSummaryJSON(result)
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
	if s.dir != "" {
		text += fmt.Sprintf("Summary: %s\n", s.dir)
	}
	return text
}
