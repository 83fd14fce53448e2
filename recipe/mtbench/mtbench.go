// Package mtbench is the recipe of posttrain eval mt-bench: it counts judgements of MT-Bench.
package mtbench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	data "github.com/posttrain/posttrain/data/mtbench"
	"github.com/posttrain/posttrain/eval"
	bench "github.com/posttrain/posttrain/eval/mtbench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/run"
)

// Command is the command that runs this recipe.
const Command = "eval mt-bench"

// Options say which judgements are counted. Paths are relative to the working directory.
type Options struct {
	Judgements string `yaml:"judgments" want:"given" words:"a .json, .jsonl or .parquet file (also .gz)"`
	Questions  string `yaml:"questions,omitempty" words:"a file of questions (question.jsonl)"`
	Out        string `yaml:"out,omitempty" words:"a folder to make"`
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command:  Command,
	Defaults: func(*config.Given) Options { return Options{} },
})

// Result is what was counted. It is the form of summary.json.
type Result struct {
	Models    []bench.Score    `json:"models"` // the best one first
	Published []eval.Published `json:"published"`

	dir string
}

// Run counts, and writes summary.json into Options.Out. A nil Reporter is silent.
func Run(_ context.Context, o Options, r run.Reporter) (*Result, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	r = run.Listen(r)
	all, report, err := data.ReadJudgements(o.Judgements)
	if err != nil {
		return nil, err
	}
	r.Say("%s", report)
	result := &Result{Published: eval.PublishedRows(eval.MTBench), dir: o.Out}
	questions, err := o.readQuestions(all, r)
	if err == nil {
		result.Models, err = bench.Count(all, questions)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Judgements, err)
	}
	slices.SortStableFunc(result.Models, func(a, b bench.Score) int {
		if a.Score.Value() > b.Score.Value() {
			return -1
		}
		return 1
	})
	return result, result.write(o)
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
	folder, err := run.Create(o.Out, "eval-mt-bench")
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.WriteConfig(Spec.Resolve(&o)); err != nil {
		return err
	}
	return folder.WriteSummaryJSON(s)
}

// String gives the scores in words.
func (s *Result) String() string {
	var b strings.Builder
	for i := range s.Models {
		b.WriteString(s.Models[i].String())
	}
	b.WriteString(eval.PublishedLine(eval.MTBench))
	if s.dir != "" {
		fmt.Fprintf(&b, "Summary: %s\n", s.dir)
	}
	return b.String()
}
