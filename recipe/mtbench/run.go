package mtbench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	text "github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	stages "github.com/posttrain/posttrain/eval/bench"
	bench "github.com/posttrain/posttrain/eval/mtbench"
	data "github.com/posttrain/posttrain/eval/mtbench"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
)

// judgementsName is the file of the judgements in the benchmark's own form, which Count reads.
const judgementsName = "judgments.jsonl"

// evaluation is a call of Run.
type evaluation struct {
	o          Options
	questions  []data.Question
	references map[string][data.Turns]string // by question
	prompts    *bench.Prompts
	result     *Result // of the stage report
}

// Run reads everything that can be wrong, creates the run folder or continues with it, and runs the stages. The result
// is nil unless the stage report was run.
func Run(ctx context.Context, o Options, place stages.Place, r run.Reporter) (*Result, *stages.Evaluation, error) {
	if err := Spec(place.Stages...).Verify(&o); err != nil {
		return nil, &stages.Evaluation{}, err
	}
	if err := o.Pin(place); err != nil {
		return nil, &stages.Evaluation{}, err
	}
	e := &evaluation{o: o}
	if err := e.read(run.Listen(r)); err != nil {
		return nil, &stages.Evaluation{}, err
	}
	b := stages.Bench{
		Command: Command, Items: e.items(), Questions: e.ask, Read: read, Form: "Rating: [[7]]",
		Identity: map[string]string{"prompts": e.prompts.Hash()}, Files: []string{judgementsName}, Report: e.report,
		Config: e.config,
	}
	var err error
	if o.Agent.Answers != "" && (len(place.Stages) == 0 || place.Runs(stages.StageAnswers)) {
		if b.Recorded, err = e.readAnswers(); err != nil {
			return nil, &stages.Evaluation{}, err
		}
	}
	at, err := b.Run(ctx, o.BenchOptions, place, r)
	return e.result, at, err
}

// read reads questions, references and prompts.
func (e *evaluation) read(r run.Reporter) (err error) {
	if e.prompts, err = bench.ReadPrompts(e.o.Prompts); err != nil {
		return err
	}
	var report *text.Report
	if e.questions, report, err = data.ReadQuestions(e.o.Questions); err != nil {
		return err
	}
	r.Say("%s", report)
	if err := e.readReferences(); err != nil {
		return err
	}
	if n := e.o.First; n > 0 {
		e.questions = e.questions[:min(n, len(e.questions))]
	}
	for _, q := range e.questions {
		if _, known := e.references[q.ID]; !known && bench.NeedsReference(q.Category) {
			return fmt.Errorf("%s: question %s is of category %s, whose judge sees a reference answer: want one in "+
				"references (%s)", q.Source, q.ID, q.Category, orNoFile(e.o.References))
		}
	}
	return nil
}

func orNoFile(path string) string {
	if path == "" {
		return "no file is given, such as reference_gpt-4.jsonl"
	}
	return path + " has none"
}

// readReferences wants the references to be of the questions: another one says that these are cut short.
func (e *evaluation) readReferences() error {
	if e.o.References == "" {
		return nil
	}
	all, _, err := data.ReadAnswers(e.o.References)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, q := range e.questions {
		known[q.ID] = true
	}
	e.references = map[string][data.Turns]string{}
	for _, a := range all {
		if !known[a.Question] {
			return fmt.Errorf("%s: a reference answer to question %s, which %s has not: want the file that belongs "+
				"to it; is one of them cut short?", a.Source, a.Question, e.o.Questions)
		}
		e.references[a.Question] = a.Turns
	}
	return nil
}

// readAnswers reads recorded answers to all questions.
func (e *evaluation) readAnswers() (map[string][]string, error) {
	all, _, err := data.ReadAnswers(e.o.Agent.Answers)
	if err != nil {
		return nil, err
	}
	recorded := map[string][]string{}
	for _, a := range all {
		recorded[a.Question] = a.Turns[:]
	}
	for _, q := range e.questions {
		if recorded[q.ID] == nil {
			return nil, fmt.Errorf("%s: no answer to question %s: want one to each question of %s", e.o.Agent.Answers,
				q.ID,
				e.o.Questions)
		}
	}
	return recorded, nil
}

// items are what the model is asked.
func (e *evaluation) items() []stages.Item {
	items := make([]stages.Item, len(e.questions))
	for i, q := range e.questions {
		items[i] = stages.Item{ID: q.ID, Turns: q.Turns[:]}
		if e.o.Temperatures == ByCategory {
			t := bench.Temperature(q.Category)
			items[i].Temperature = &t
		}
	}
	return items
}

// ask puts both turns of a question to the judge, one by one.
func (e *evaluation) ask(i int, outputs []string) (asked []stages.Question, err error) {
	q := &e.questions[i]
	for turn := 1; turn <= data.Turns; turn++ {
		asked = append(asked, stages.Question{ID: q.ID, Key: fmt.Sprint(turn),
			Messages: e.prompts.Messages(q, e.references[q.ID], [data.Turns]string(outputs), turn)})
	}
	return asked, nil
}

func read(_ stages.Question, r metered.Reply, v *stages.Verdict) {
	said, _ := stages.WithoutThoughts(r.Text, false) // a judge may weigh other ratings while it thinks
	if v.Score, v.Parsed = bench.Rating(said); v.Parsed {
		v.Said = fmt.Sprint(v.Score)
	}
}

// config is config.yaml of the run.
func (e *evaluation) config() []byte {
	o := e.o
	o.Whole()
	for _, path := range []*string{&o.Questions, &o.References, &o.Prompts} {
		*path = stages.WholePath(*path)
	}
	return Spec().Resolve(&o)
}

// row is a question's line of cases.jsonl.
type row struct {
	ID       string     `json:"id"`
	Category string     `json:"category"`
	Score    *float64   `json:"score"` // mean of the turns that have one; null: neither has
	Turns    []*float64 `json:"turns"` // null: the judge gave no score
	Outputs  []string   `json:"outputs"`
}

// judgement is a line of judgments.jsonl, in the benchmark's form.
type judgement struct {
	Question json.RawMessage `json:"question_id"`
	Model    string          `json:"model"`
	Judge    []string        `json:"judge"` // the model and the prompt
	Asked    string          `json:"user_prompt"`
	Reply    string          `json:"judgment"`
	Score    float64         `json:"score"`
	Turn     int             `json:"turn"`
}

// report counts, and writes what the stages have found.
func (e *evaluation) report(f *stages.Found) error {
	model := cmp.Or(e.o.Agent.RecordedName(), f.Settings[stages.StageAnswers]["model"])
	judge := f.Settings[stages.StageJudge]["model"]
	var all []data.Judgement
	var cases []row
	var lines []judgement
	for _, q := range e.questions {
		c := row{ID: q.ID, Category: q.Category, Outputs: f.Outputs(q.ID)}
		mean := eval.Mean{}
		for turn := 1; turn <= data.Turns; turn++ {
			v := f.Verdicts[[2]string{q.ID, fmt.Sprint(turn)}]
			j := data.Judgement{Question: q.ID, Model: model, Turn: turn, Score: data.NoScore}
			var score *float64
			if v.Parsed {
				j.Score, score = v.Score, &v.Score
				mean.Add(turn, v.Score)
			}
			all, c.Turns = append(all, j), append(c.Turns, score)
			lines = append(lines, judgement{idOf(q.ID), model, []string{judge, bench.PromptName(q.Category, turn)},
				v.Prompt[len(v.Prompt)-1].Content, v.Replies[len(v.Replies)-1], j.Score, turn})
		}
		c.Score = eval.Finite(mean.Value())
		cases = append(cases, c)
	}
	scores, err := bench.Count(all, e.questions)
	if err != nil {
		return err
	}
	e.result = &Result{Judge: judge, Models: scores, Published: eval.PublishedRows(eval.MTBench), Settings: f.Settings,
		Warnings: f.Warnings, dir: f.Dir}
	if err := text.WriteLines(f.Path(judgementsName), len(lines), func(i int) any { return lines[i] }); err != nil {
		return err
	}
	if err := text.WriteLines(f.Path(stages.CasesName), len(cases), func(i int) any { return cases[i] }); err != nil {
		return err
	}
	return text.WriteJSON(f.Path(stages.SummaryName), e.result)
}

// idOf writes an id as the benchmark does: a number if it is one.
func idOf(id string) json.RawMessage {
	var number int64
	if json.Unmarshal([]byte(id), &number) == nil {
		return json.RawMessage(id)
	}
	quoted, _ := json.Marshal(id) // a text always marshals
	return quoted
}
