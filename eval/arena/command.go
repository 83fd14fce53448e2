package arena

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
)

// Options say which model is measured and who judges. Paths are relative to the working directory. The seed is of the
// bootstrap, too.
type Options struct {
	Questions string `yaml:"questions,omitempty" want:"given" path:"" words:"a file of questions (question.jsonl)" flag:"questions" help:"questions, such as the benchmark's question.jsonl.gz"`
	Baseline  string `yaml:"baseline,omitempty" want:"given" path:"" words:"a file of the baseline's answers (gpt-4-0314.jsonl)" flag:"baseline" help:"the baseline's answers, such as gpt-4-0314.jsonl.gz"`
	Prompts   string `yaml:"prompts,omitempty" path:"" words:"a .yaml file of the judge's prompt (arena-hard-v0.1.yaml)" flag:"prompts" help:"the judge's prompt, such as the benchmark's arena-hard-v0.1.yaml (default: a prompt of our own)"`
	Rounds    int    `yaml:"rounds" want:">=1" default:"1000" flag:"rounds" help:"rounds of the bootstrap"`

	// Answers and replies are as long as in the benchmark.
	bench.Judged `yaml:",inline" defaults:"agent.max_new_tokens=4096 judge.max_new_tokens=4096"`
}

// Benchmark is posttrain eval arena-hard.
var Benchmark = bench.New(bench.Benchmark[Options, *Result]{
	Spec:  &config.Spec[Options]{Command: "eval arena-hard"},
	Short: "Measure with Arena-Hard v0.1: the score against a baseline, with its interval",
	Long: `Measure a model with Arena-Hard v0.1: it answers questions, and a judge compares each answer with the baseline's,
in both orders. Verdicts, of which A>>B counts as three wins, give the probability of a win against the
baseline. The interval of 95 % is a bootstrap over questions.`,
	Example: `  posttrain eval arena-hard --questions question.jsonl.gz --baseline gpt-4-0314.jsonl.gz --model DIR ` +
		`--judge-model gpt-4-1106-preview --out runs/arena
  posttrain eval arena-hard --questions question.jsonl.gz --baseline gpt-4-0314.jsonl.gz --answers mine.jsonl ` +
		`--prompts arena-hard-v0.1.yaml --judge-base-url http://localhost:9000/v1 --judge-model NAME
  posttrain eval arena-hard --questions question.jsonl.gz --baseline gpt-4-0314.jsonl.gz --answers mine.jsonl ` +
		`--judgments judgments.jsonl`,
	Open: open,
})

// Result is what was measured. It is the form of summary.json.
type Result struct {
	Model string `json:"model"`
	Score
	Judge    string         `json:"judge"`
	Baseline string         `json:"baseline"`
	Warnings []string       `json:"warnings,omitempty"`
	Settings bench.Settings `json:"settings"` // of the run's stages
}

// String gives the score in words.
func (s *Result) String() string {
	var counts []string
	for _, verdict := range Verdicts {
		counts = append(counts, fmt.Sprintf("%s %d", verdict, s.Verdicts[verdict]))
	}
	text := fmt.Sprintf("%s: score %.1f %% (%.1f to %.1f), %d games against the baseline, which has 50 %%\n"+
		"verdicts, the model being A: %s\njudge %s, baseline %s\n", s.Model, s.Score.Score, s.Low, s.High, s.Games,
		strings.Join(counts, ", "), s.Judge, s.Baseline)
	if s.Missing > 0 {
		text += fmt.Sprintf("%d games have no verdict\n", s.Missing)
	}
	return text + bench.Warned(s.Warnings)
}

// games are the keys of a question's two games. In the first the baseline's answer is A, in the second the model's.
var games = [2]string{"1", "2"}

// comparing is a run.
type comparing struct {
	*Options
	questions []Question
	subject   string            // the model whose answers are recorded
	model     string            // the baseline's name
	baseline  map[string]string // its answers by question
	prompts   *Prompts
}

// open reads questions, the baseline's answers and the judge's prompt, and says what the benchmark is.
func open(o *Options, r run.Reporter) (b *bench.Protocol, err error) {
	e := &comparing{Options: o}
	if e.prompts, err = ReadPrompts(o.Prompts); err != nil {
		return nil, err
	}
	var rows *data.Report
	if e.questions, rows, err = readQuestions(nil, o.Questions); err != nil {
		return nil, err
	}
	r.Say("%s", rows)
	e.questions = bench.Head(e.questions, o.First)
	if e.model, e.baseline, err = e.readAnswers(o.Baseline); err != nil {
		return nil, err
	}
	b = &bench.Protocol{Questions: e.ask, Read: e.readVerdict, Form: "[[A>B]]", Report: e.report, Published: true,
		Differs: e.differs, Released: e.readJudgements,
		Identity: map[string]string{"prompts": e.prompts.Hash(), "baseline": e.model},
		Remind: func(messages []data.Message, reply string) []data.Message {
			return append(slices.Clone(messages), data.Message{Role: "assistant", Content: reply},
				data.Message{Role: "user", Content: reminder})
		}}
	for _, q := range e.questions {
		b.Items = append(b.Items, bench.Item{ID: q.ID, Turns: []string{q.Prompt}})
	}
	if o.Agent.Answers != "" {
		var answers map[string]string
		e.subject, answers, err = e.readAnswers(o.Agent.Answers)
		b.Recorded = map[string][]string{}
		for id, answer := range answers {
			b.Recorded[id] = []string{answer}
		}
	}
	return b, err
}

// differs says what is not as it was where the published figures come from.
func (e *comparing) differs(f *bench.Found) []string {
	lines := f.Unlike(&e.Judged, "gpt-4-1106-preview", e.Prompts)
	if e.model != "gpt-4-0314" {
		lines = append(lines, "baseline: "+e.model+" (published: gpt-4-0314)")
	}
	return lines
}

// readAnswers reads a model's answers by question, and wants one to each question.
func (e *comparing) readAnswers(path string) (model string, texts map[string]string, err error) {
	all, _, err := readAnswers(nil, path)
	if err != nil {
		return "", nil, err
	}
	model, texts = all[0].Model, map[string]string{}
	for _, answer := range all {
		texts[answer.Question] = answer.Text
	}
	for _, q := range e.questions {
		if _, found := texts[q.ID]; !found {
			return "", nil, fmt.Errorf("%s: no answer of %s to question %s: want one to each question of %s; is it cut "+
				"short?", path, model, q.ID, e.Questions)
		}
	}
	return model, texts, nil
}

// ask puts both answers to a question to the judge, in both orders.
func (e *comparing) ask(i int, outputs []string) ([]bench.Question, error) {
	q := e.questions[i]
	baseline, model := e.baseline[q.ID], outputs[0]
	return []bench.Question{
		{ID: q.ID, Key: games[0], Messages: e.prompts.Messages(q.Prompt, baseline, model)},
		{ID: q.ID, Key: games[1], Messages: e.prompts.Messages(q.Prompt, model, baseline)},
	}, nil
}

// readVerdict reads all that the judge has said so far, as the benchmark does.
func (e *comparing) readVerdict(_ bench.Question, _ metered.Reply, v *bench.Verdict) {
	var said []string
	for _, reply := range v.Replies { // a judge may weigh other verdicts while it thinks
		rest, _ := bench.WithoutThoughts(reply, false)
		said = append(said, rest)
	}
	v.Said = e.prompts.Verdict(strings.Join(said, "\n"))
	v.Parsed = v.Said != ""
}

// row is a question's line of cases.jsonl.
type row struct {
	ID       string   `json:"id"`
	Cluster  string   `json:"cluster,omitempty"`
	Score    *float64 `json:"score"`    // share of the games that the model won, in hundredths; null: no verdict
	Verdicts Games    `json:"verdicts"` // the baseline's answer is A in the first, the model's in the second
	Output   string   `json:"output"`
	Baseline string   `json:"baseline"`
}

// report counts.
func (e *comparing) report(f *bench.Found) (fmt.Stringer, []any, error) {
	result := &Result{Model: f.Model(e.Agent), Judge: f.Judge(), Baseline: e.model,
		Warnings: f.Warnings, Settings: f.Settings}
	var all []Games
	var cases []any
	for _, q := range e.questions {
		var said Games
		for i, key := range games {
			v, _ := f.Verdict(q.ID, key)
			said[i] = v.Said
		}
		all = append(all, said)
		cases = append(cases, row{q.ID, q.Cluster, won(said), said, f.Outputs(q.ID)[0], e.baseline[q.ID]})
	}
	var err error
	result.Score, err = Count(all, e.Rounds, e.Seed)
	return result, cases, err
}
