package mtbench

import (
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
)

// Options say which model is measured and who judges. Paths are relative to the working directory.
type Options struct {
	Questions  string `yaml:"questions,omitempty" want:"given" path:"" words:"a file of questions (question.jsonl)" flag:"questions" help:"questions, such as the benchmark's question.jsonl"`
	References string `yaml:"references,omitempty" path:"" words:"a file of reference answers (reference_gpt-4.jsonl)" flag:"references" help:"reference answers for math, reasoning and coding, such as reference_gpt-4.jsonl"`
	Prompts    string `yaml:"prompts,omitempty" path:"" words:"a file of the judge's prompts (judge_prompts.jsonl)" flag:"prompts" help:"the judge's prompts, such as the benchmark's judge_prompts.jsonl (default: prompts of our own)"`

	// judgements of each answer
	Ratings int `yaml:"ratings" want:">=1" default:"1" flag:"ratings" help:"how often the judge rates each answer; the mean is its score (the MaPPO paper: 3)"`

	// Answers and replies are as long as in the benchmark.
	bench.Judged `yaml:",inline" defaults:"agent.max_new_tokens=1024 judge.max_new_tokens=2048"`
}

// Benchmark is posttrain eval mt-bench.
var Benchmark = bench.New(bench.Benchmark[Options, *Result]{
	Spec:  &config.Spec[Options]{Command: "eval mt-bench", Without: []string{"agent.temperature"}},
	Short: "Measure with MT-Bench: scores of answers in two turns, by turn and category",
	Long: `Measure a model with MT-Bench: it answers questions of two turns, the second of which sees its own first answer,
and a judge gives each answer a score from 1 to 10. A reply without a score does not count. Intervals of 95 % are
bootstraps over questions. Answers are drawn at the temperature that the benchmark gives each category.`,
	Example: `  posttrain eval mt-bench --questions question.jsonl --references reference_gpt-4.jsonl --model DIR ` +
		`--judge-model gpt-4 --out runs/mt
  posttrain eval mt-bench --questions question.jsonl --references reference_gpt-4.jsonl --answers gpt-4.jsonl ` +
		`--prompts judge_prompts.jsonl --judge-base-url http://localhost:9000/v1 --judge-model NAME
  posttrain eval mt-bench --questions question.jsonl --references reference_gpt-4.jsonl --answers gpt-4.jsonl ` +
		`--judgments gpt-4_single.jsonl`,
	Open: open,
})

// rating is a run.
type rating struct {
	*Options
	questions  []Question
	references map[string][Turns]string // by question
	prompts    *Prompts
	model      string // whose answers are recorded
}

// open reads the files, and says what the benchmark is.
func open(o *Options, r run.Reporter) (*bench.Protocol, error) {
	e := &rating{Options: o}
	if err := e.read(r); err != nil {
		return nil, err
	}
	b := &bench.Protocol{Questions: e.ask, Read: read, Form: "Rating: [[7]]", Report: e.report, Published: true,
		Differs: e.differs, Released: e.readJudgements,
		Identity: map[string]string{"prompts": e.prompts.Hash()}}
	var seen [][Turns]string // references that the judge sees
	for _, q := range e.questions {
		t := Temperature(q.Category)
		b.Items = append(b.Items, bench.Item{ID: q.ID, Turns: q.Turns[:], Temperature: &t})
		if NeedsReference(q.Category) {
			seen = append(seen, e.references[q.ID])
		}
	}
	if seen != nil {
		b.Identity["references"] = bench.HashCases(seen)
	}
	if o.Agent.Answers == "" {
		return b, nil
	}
	all, _, err := readAnswers(nil, o.Agent.Answers)
	b.Recorded = map[string][]string{}
	for _, a := range all {
		b.Recorded[a.Question], e.model = a.Turns[:], a.Model
	}
	return b, err
}

// differs says what is not as it was where the published figures come from.
func (e *rating) differs(f *bench.Found) []string {
	lines := f.Unlike(&e.Judged, "gpt-4", e.Prompts)
	if e.Ratings != 3 {
		lines = append(lines, fmt.Sprintf("ratings of an answer: %d (published: the mean of 3, --ratings 3)", e.Ratings))
	}
	return lines
}

// read reads questions, references and prompts.
func (e *rating) read(r run.Reporter) (err error) {
	if e.prompts, err = ReadPrompts(e.Prompts); err != nil {
		return err
	}
	var report *data.Report
	if e.questions, report, err = readQuestions(nil, e.Questions); err != nil {
		return err
	}
	r.Say("%s", report)
	if err := e.readReferences(); err != nil {
		return err
	}
	e.questions = bench.Head(e.questions, e.First)
	none := "no file is given, such as reference_gpt-4.jsonl"
	if e.References != "" {
		none = e.References + " has none"
	}
	for _, q := range e.questions {
		if _, known := e.references[q.ID]; !known && NeedsReference(q.Category) {
			return fmt.Errorf("%s: question %s is of category %s, whose judge sees a reference answer: want one in "+
				"references (%s)", q.Source, q.ID, q.Category, none)
		}
	}
	return nil
}

// readReferences wants the references to be of the questions: another one says that these are cut short.
func (e *rating) readReferences() error {
	if e.References == "" {
		return nil
	}
	all, _, err := readAnswers(nil, e.References)
	e.references = map[string][Turns]string{}
	for _, a := range all {
		if !slices.ContainsFunc(e.questions, func(q Question) bool { return q.ID == a.Question }) {
			return fmt.Errorf("%s: a reference answer to question %s, which %s has not: want the file that belongs "+
				"to it; is one of them cut short?", a.Source, a.Question, e.Questions)
		}
		e.references[a.Question] = a.Turns
	}
	return err
}

// key names a judgement of a turn, from 1, among several of the same answer.
func key(turn, rating int) string {
	if rating == 0 {
		return fmt.Sprint(turn)
	}
	return fmt.Sprintf("%d, again %d", turn, rating)
}

// ask puts both turns of a question to the judge, one by one, as often as it is to rate them.
func (e *rating) ask(i int, outputs []string) (asked []bench.Question, err error) {
	q := &e.questions[i]
	for turn := 1; turn <= Turns; turn++ {
		for again := range e.Ratings {
			asked = append(asked, bench.Question{ID: q.ID, Key: key(turn, again), Again: again,
				Messages: e.prompts.Messages(q, e.references[q.ID], [Turns]string(outputs), turn)})
		}
	}
	return asked, nil
}

func read(_ bench.Question, r metered.Reply, v *bench.Verdict) {
	said, _ := bench.WithoutThoughts(r.Text, false) // a judge may weigh other ratings while it thinks
	if v.Score, v.Parsed = Rating(said); v.Parsed {
		v.Said = fmt.Sprint(v.Score)
	}
}

// row is a question's line of cases.jsonl.
type row struct {
	ID       string     `json:"id"`
	Category string     `json:"category"`
	Score    *float64   `json:"score"` // mean of the turns that have one; null: neither has
	Turns    []*float64 `json:"turns"` // null: the judge gave no score
	Outputs  []string   `json:"outputs"`
}

// report counts.
func (e *rating) report(f *bench.Found) (fmt.Stringer, []any, error) {
	result := &Result{Model: f.Model(e.Agent), Ratings: e.Ratings, Judge: f.Judge(), Settings: f.Settings,
		Warnings: f.Warnings}
	var cases []any
	for i, q := range e.questions {
		c, mean := row{ID: q.ID, Category: q.Category, Outputs: f.Outputs(q.ID)}, eval.Mean{}
		for turn := 1; turn <= Turns; turn++ {
			ratings := eval.Mean{}
			for again := range e.Ratings {
				if v, _ := f.Verdict(q.ID, key(turn, again)); v.Parsed {
					ratings.Add(again, v.Score)
				}
			}
			score := eval.Finite(ratings.Value())
			if score != nil {
				mean.Add(turn, *score)
			}
			result.add(i, q.Category, turn, score)
			c.Turns = append(c.Turns, score)
		}
		c.Score = eval.Finite(mean.Value())
		cases = append(cases, c)
	}
	return result, cases, nil
}
