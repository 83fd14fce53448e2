package arena

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	text "github.com/posttrain/posttrain/data"
	report "github.com/posttrain/posttrain/eval"
	data "github.com/posttrain/posttrain/eval/arena"
	eval "github.com/posttrain/posttrain/eval/arena"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
)

// judgementsName is the file of the judgements in the benchmark's own form, which Count reads.
const judgementsName = "judgments.jsonl"

// games are the keys of a question's two games. In the first the baseline's answer is A, in the second the model's.
var games = [2]string{"1", "2"}

// evaluation is a call of Run.
type evaluation struct {
	o         Options
	questions []data.Question
	baseline  answers
	prompts   *eval.Prompts
	result    *Result // of the stage report
}

// answers are those of a model by question.
type answers struct {
	model string
	texts map[string]string
}

// Run reads everything that can be wrong, creates the run folder or continues with it, and runs the stages. The result
// is nil unless the stage report was run.
func Run(ctx context.Context, o Options, place bench.Place, r run.Reporter) (*Result, *bench.Evaluation, error) {
	at := &bench.Evaluation{}
	if err := Spec(place.Stages...).Verify(&o); err != nil {
		return nil, at, err
	}
	if err := o.Pin(place); err != nil {
		return nil, at, err
	}
	e := &evaluation{o: o}
	if err := e.read(run.Listen(r)); err != nil {
		return nil, at, err
	}
	b := bench.Bench{
		Command: Command, Items: e.items(), Questions: e.ask, Read: e.readVerdict, Form: "[[A>B]]",
		Reminder: eval.Reminder, Files: []string{judgementsName}, Report: e.report, Config: e.config,
		Identity: map[string]string{"prompts": e.prompts.Hash(), "baseline": e.baseline.model},
	}
	if o.Agent.Answers != "" && (len(place.Stages) == 0 || place.Runs(bench.StageAnswers)) {
		recorded, err := e.readAnswers(o.Agent.Answers)
		if err != nil {
			return nil, at, err
		}
		b.Recorded = map[string][]string{}
		for id, answer := range recorded.texts {
			b.Recorded[id] = []string{answer}
		}
	}
	at, err := b.Run(ctx, o.BenchOptions, place, r)
	return e.result, at, err
}

// read reads questions, the baseline's answers and the judge's prompt.
func (e *evaluation) read(r run.Reporter) (err error) {
	if e.prompts, err = eval.ReadPrompts(e.o.Prompts); err != nil {
		return err
	}
	var rows *text.Report
	if e.questions, rows, err = data.ReadQuestions(e.o.Questions); err != nil {
		return err
	}
	r.Say("%s", rows)
	if n := e.o.First; n > 0 {
		e.questions = e.questions[:min(n, len(e.questions))]
	}
	e.baseline, err = e.readAnswers(e.o.Baseline)
	return err
}

// readAnswers reads a model's answers, and wants one to each question.
func (e *evaluation) readAnswers(path string) (a answers, err error) {
	all, _, err := data.ReadAnswers(path)
	if err != nil {
		return a, err
	}
	a = answers{all[0].Model, map[string]string{}}
	for _, answer := range all {
		a.texts[answer.Question] = answer.Text
	}
	for _, q := range e.questions {
		if _, found := a.texts[q.ID]; !found {
			return a, fmt.Errorf("%s: no answer of %s to question %s: want one to each question of %s; is it cut "+
				"short?",
				path, a.model, q.ID, e.o.Questions)
		}
	}
	return a, nil
}

// items are what the model is asked.
func (e *evaluation) items() []bench.Item {
	items := make([]bench.Item, len(e.questions))
	for i, q := range e.questions {
		items[i] = bench.Item{ID: q.ID, Turns: []string{q.Prompt}}
	}
	return items
}

// ask puts both answers to a question to the judge, in both orders.
func (e *evaluation) ask(i int, outputs []string) ([]bench.Question, error) {
	q := e.questions[i]
	baseline, model := e.baseline.texts[q.ID], outputs[0]
	return []bench.Question{
		{ID: q.ID, Key: games[0], Messages: e.prompts.Messages(q.Prompt, baseline, model)},
		{ID: q.ID, Key: games[1], Messages: e.prompts.Messages(q.Prompt, model, baseline)},
	}, nil
}

// readVerdict reads all that the judge has said so far, as the benchmark does.
func (e *evaluation) readVerdict(_ bench.Question, _ metered.Reply, v *bench.Verdict) {
	var said []string
	for _, reply := range v.Replies { // a judge may weigh other verdicts while it thinks
		rest, _ := bench.WithoutThoughts(reply, false)
		said = append(said, rest)
	}
	v.Said = e.prompts.Verdict(strings.Join(said, "\n"))
	v.Parsed = v.Said != ""
}

// config is config.yaml of the run.
func (e *evaluation) config() []byte {
	o := e.o
	o.Whole()
	for _, path := range []*string{&o.Questions, &o.Baseline, &o.Prompts} {
		*path = bench.WholePath(*path)
	}
	return Spec().Resolve(&o)
}

// caseRow is a question's line of cases.jsonl.
type caseRow struct {
	ID       string    `json:"id"`
	Cluster  string    `json:"cluster,omitempty"`
	Score    *float64  `json:"score"`    // share of the games that the model won, in hundredths; null: no verdict
	Verdicts [2]string `json:"verdicts"` // the baseline's answer is A in the first, the model's in the second
	Output   string    `json:"output"`
	Baseline string    `json:"baseline"`
}

// judgement is a line of judgments.jsonl, in the benchmark's form.
type judgement struct {
	Question string  `json:"question_id"`
	Model    string  `json:"model"`
	Judge    string  `json:"judge"`
	Baseline string  `json:"baseline"`
	Games    [2]game `json:"games"`
}

type game struct {
	Asked string  `json:"user_prompt"`
	Reply string  `json:"judgment"`
	Score *string `json:"score"` // null: no verdict
}

// report counts, and writes what the stages have found.
func (e *evaluation) report(f *bench.Found) error {
	model := cmp.Or(e.o.Agent.RecordedName(), f.Settings[bench.StageAnswers]["model"])
	judge := f.Settings[bench.StageJudge]["model"]
	var all []data.Judgement
	var cases []caseRow
	var lines []judgement
	for _, q := range e.questions {
		j := data.Judgement{Question: q.ID, Model: model}
		line := judgement{Question: q.ID, Model: model, Judge: judge, Baseline: e.baseline.model}
		for i, key := range games {
			v := f.Verdicts[[2]string{q.ID, key}]
			j.Games[i] = v.Said
			line.Games[i] = game{Asked: v.Prompt[len(v.Prompt)-1].Content, Reply: strings.Join(v.Replies, "\n")}
			if v.Parsed {
				line.Games[i].Score = &v.Said
			}
		}
		all, lines = append(all, j), append(lines, line)
		cases = append(cases, caseRow{q.ID, q.Cluster, eval.Won(j), j.Games, f.Outputs(q.ID)[0],
			e.baseline.texts[q.ID]})
	}
	score, err := eval.Count(all, e.o.Rounds, e.o.Seed)
	if err != nil {
		return err
	}
	e.result = &Result{Model: model, Score: score, Judge: judge, Baseline: e.baseline.model, Warnings: f.Warnings,
		Published: report.PublishedRows(report.ArenaHard), Settings: f.Settings, dir: f.Dir}
	if err := text.WriteLines(f.Path(judgementsName), len(lines), func(i int) any { return lines[i] }); err != nil {
		return err
	}
	if err := text.WriteLines(f.Path(bench.CasesName), len(cases), func(i int) any { return cases[i] }); err != nil {
		return err
	}
	return text.WriteJSON(f.Path(bench.SummaryName), e.result)
}
