package mtbench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
)

// Options say which model is measured and who judges, or which judgements are counted. Paths are relative to the
// working directory.
type Options struct {
	Questions  string `yaml:"questions,omitempty" path:"" words:"a file of questions (question.jsonl)" flag:"questions" help:"questions, such as the benchmark's question.jsonl"`
	References string `yaml:"references,omitempty" path:"" words:"a file of reference answers (reference_gpt-4.jsonl)" flag:"references" help:"reference answers for math, reasoning and coding, such as reference_gpt-4.jsonl"`
	Prompts    string `yaml:"prompts,omitempty" path:"" words:"a file of the judge's prompts (judge_prompts.jsonl)" flag:"prompts" help:"the judge's prompts, such as the benchmark's judge_prompts.jsonl (default: prompts of our own)"`
	// at which temperature answers are drawn: the benchmark's of each category, or agent.temperature
	Temperatures string `yaml:"temperatures" want:"category|one"`

	bench.Judged `yaml:",inline"`
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
	return Options{Temperatures: ByCategory, Judged: bench.DefaultJudged(0.7, answerTokens, judgeTokens)}
}

// Benchmark is posttrain eval mt-bench.
var Benchmark = bench.New(bench.Benchmark[Options, *Result]{
	Name:  "eval mt-bench",
	Short: "Measure with MT-Bench: scores of answers in two turns, by turn and category",
	Long: `Measure a model with MT-Bench: it answers questions of two turns, the second of which sees its own first answer,
and a judge gives each answer a score from 1 to 10. A reply without a score does not count. Intervals of 95 % are
bootstraps over questions. With --judgments, judgements that exist are counted. Answers are drawn at the
temperature that the benchmark gives each category, unless --temperature says another.`,
	Example: `  posttrain eval mt-bench --questions question.jsonl --references reference_gpt-4.jsonl --model DIR ` +
		`--judge-model gpt-4 --out runs/mt
  posttrain eval mt-bench --questions question.jsonl --references reference_gpt-4.jsonl --answers gpt-4.jsonl ` +
		`--prompts judge_prompts.jsonl --judge-base-url http://localhost:9000/v1 --judge-model NAME
  posttrain eval mt-bench --judgments gpt-4_single.jsonl --questions question.jsonl --out counted`,
	Defaults: Defaults,
	Settle: func(g *config.Given, o *Options) {
		if g.Has("agent.temperature") && !g.Has("temperatures") {
			o.Temperatures = OneTemperature
		}
	},
	Check: check, Open: open, Count: count, Counting: []string{"questions"},
	Idle: func(o *Options) []string {
		if o.Temperatures == ByCategory {
			return []string{"agent.temperature"}
		}
		return nil
	},
})

func check(g *config.Given, o *Options) {
	if o.Judgements == "" && o.Questions == "" {
		g.Fault("questions", "questions is missing: want a file of questions (question.jsonl); or judgments, a file "+
			"of judgements to count")
	}
	if o.Temperatures == ByCategory && g.Has("agent.temperature") {
		g.Fault("agent.temperature", "agent.temperature %v: it has no effect with temperatures category; remove one "+
			"of the two", o.Agent.Temperature)
	}
}

// Result is what was measured or counted. It is the form of summary.json.
type Result struct {
	Judge     string           `json:"judge,omitempty"`
	Models    []Score          `json:"models"` // the best one first
	Warnings  []string         `json:"warnings,omitempty"`
	Published []eval.Published `json:"published"`
	Settings  bench.Settings   `json:"settings,omitempty"` // of a run's stages
}

// count counts judgements that exist.
func count(o *Options, r run.Reporter) (*Result, error) {
	all, report, err := ReadJudgements(o.Judgements)
	if err != nil {
		return nil, err
	}
	r.Say("%s", report)
	result := &Result{Published: eval.PublishedRows(eval.MTBench)}
	questions, err := o.readQuestions(all, r)
	if err == nil {
		result.Models, err = Count(all, questions)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Judgements, err)
	}
	for i := range result.Models {
		if w := result.Models[i].Warning(); w != "" {
			result.Warnings = append(result.Warnings, w)
		}
	}
	slices.SortStableFunc(result.Models, func(a, b Score) int { return cmp.Compare(b.Score.Value(), a.Score.Value()) })
	return result, nil
}

// readQuestions wants each of the questions among the judgements; nil without a file of questions.
func (o *Options) readQuestions(all []Judgement, r run.Reporter) ([]Question, error) {
	if o.Questions == "" {
		return nil, nil
	}
	questions, report, err := ReadQuestions(o.Questions)
	if err != nil {
		return nil, err
	}
	r.Say("%s", report)
	for _, q := range questions {
		if !slices.ContainsFunc(all, func(j Judgement) bool { return j.Question == q.ID }) {
			return nil, fmt.Errorf("question %s of %s has no judgement: the file is cut short, or of another set", q.ID,
				o.Questions)
		}
	}
	return questions, nil
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
	return b.String()
}

// judgementsName is the file of the judgements in the benchmark's own form, which count reads.
const judgementsName = "judgments.jsonl"

// rating is a run.
type rating struct {
	*Options
	questions  []Question
	references map[string][Turns]string // by question
	prompts    *Prompts
}

// open reads the files, and says what the benchmark is.
func open(o *Options, r run.Reporter) (*bench.Bench, error) {
	e := &rating{Options: o}
	if err := e.read(r); err != nil {
		return nil, err
	}
	b := &bench.Bench{Questions: e.ask, Read: read, Form: "Rating: [[7]]", Files: []string{judgementsName},
		Identity: map[string]string{"prompts": e.prompts.Hash()}, Report: e.report}
	for _, q := range e.questions {
		item := bench.Item{ID: q.ID, Turns: q.Turns[:]}
		if o.Temperatures == ByCategory {
			t := Temperature(q.Category)
			item.Temperature = &t
		}
		b.Items = append(b.Items, item)
	}
	if o.Agent.Answers == "" {
		return b, nil
	}
	all, _, err := ReadAnswers(o.Agent.Answers)
	b.Recorded = map[string][]string{}
	for _, a := range all {
		b.Recorded[a.Question] = a.Turns[:]
	}
	return b, err
}

// read reads questions, references and prompts.
func (e *rating) read(r run.Reporter) (err error) {
	if e.prompts, err = ReadPrompts(e.Prompts); err != nil {
		return err
	}
	var report *data.Report
	if e.questions, report, err = ReadQuestions(e.Questions); err != nil {
		return err
	}
	r.Say("%s", report)
	if err := e.readReferences(); err != nil {
		return err
	}
	if n := e.First; n > 0 {
		e.questions = e.questions[:min(n, len(e.questions))]
	}
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
	all, _, err := ReadAnswers(e.References)
	if err != nil {
		return err
	}
	e.references = map[string][Turns]string{}
	for _, a := range all {
		if !slices.ContainsFunc(e.questions, func(q Question) bool { return q.ID == a.Question }) {
			return fmt.Errorf("%s: a reference answer to question %s, which %s has not: want the file that belongs "+
				"to it; is one of them cut short?", a.Source, a.Question, e.Questions)
		}
		e.references[a.Question] = a.Turns
	}
	return nil
}

// ask puts both turns of a question to the judge, one by one.
func (e *rating) ask(i int, outputs []string) (asked []bench.Question, err error) {
	q := &e.questions[i]
	for turn := 1; turn <= Turns; turn++ {
		asked = append(asked, bench.Question{ID: q.ID, Key: fmt.Sprint(turn),
			Messages: e.prompts.Messages(q, e.references[q.ID], [Turns]string(outputs), turn)})
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

// report counts, and writes the judgements in the benchmark's form.
func (e *rating) report(f *bench.Found) (fmt.Stringer, []any, error) {
	model := f.Model(e.Agent)
	result := &Result{Judge: f.Settings[bench.StageJudge]["model"], Published: eval.PublishedRows(eval.MTBench),
		Settings: f.Settings, Warnings: f.Warnings}
	var all []Judgement
	var cases []any
	var lines []judgementRow
	for _, q := range e.questions {
		c, mean := row{ID: q.ID, Category: q.Category, Outputs: f.Outputs(q.ID)}, eval.Mean{}
		for turn := 1; turn <= Turns; turn++ {
			v, _ := f.Verdict(q.ID, fmt.Sprint(turn))
			j := Judgement{Question: q.ID, Model: model, Turn: turn, Score: NoScore}
			var score *float64
			if v.Parsed {
				j.Score, score = v.Score, &v.Score
				mean.Add(turn, v.Score)
			}
			all, c.Turns = append(all, j), append(c.Turns, score)
			lines = append(lines, judgementRow{Question: id(q.ID), Model: model, Score: &j.Score, Turn: turn,
				Judge: []string{result.Judge, PromptName(q.Category, turn)},
				Asked: v.Prompt[len(v.Prompt)-1].Content, Reply: v.Replies[len(v.Replies)-1]})
		}
		c.Score = eval.Finite(mean.Value())
		cases = append(cases, c)
	}
	var err error
	if result.Models, err = Count(all, e.questions); err != nil {
		return nil, nil, err
	}
	return result, cases, data.WriteLines(f.Path(judgementsName), len(lines), func(i int) any { return lines[i] })
}
