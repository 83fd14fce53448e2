package alpaca

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/alpaca"
	bench "github.com/posttrain/posttrain/eval/alpaca"
	stages "github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
)

// AnnotationsName is the file of a run's judgements in the benchmark's own form, which --annotations counts, too.
const AnnotationsName = "annotations.json"

// topLogprobs is how many likeliest first tokens the benchmark asks its judge for.
const topLogprobs = 5

// The keys of a question say which output the judge sees first.
const (
	modelFirst    = "model first"
	baselineFirst = "baseline first"
)

// Judging says how the judgements of a run came about.
type Judging struct {
	Judge         string          `json:"judge"`
	Probabilities int             `json:"by_probability"` // preferences from log-probabilities
	Words         int             `json:"by_words"`       // preferences of 1, 1.5 or 2
	Equal         int             `json:"equal_outputs"`  // draws that nobody was asked about
	Unparsed      int             `json:"no_verdict"`     // they do not count
	ModelFirst    int             `json:"model_first"`    // judgements in which the judge saw the model's output first
	FirstWins     *float64        `json:"first_wins"`     // mean win of the output shown first, in hundredths
	Settings      stages.Settings `json:"settings"`
	Warnings      []string        `json:"warnings,omitempty"`

	Paper    []eval.Published `json:"published_mappo"`
	Released []Row            `json:"published_leaderboard"`
}

// Row is a row of the benchmark's leaderboard, under its own names.
type Row struct {
	Model         string  `json:"model"`
	WinRate       float64 `json:"win_rate"`
	StandardError float64 `json:"standard_error"`
	Controlled    float64 `json:"length_controlled_winrate"`
}

// released are some rows of the leaderboard of AlpacaEval 2, judged by gpt-4-1106-preview against its own outputs.
var released = []Row{
	{"gpt-4o-2024-05-13", 51.33, 1.47, 57.46}, {"gpt4_1106_preview", 50, 0, 50},
	{"Qwen2-72B-Instruct", 29.85, 1.37, 38.07}, {"claude-2", 17.19, 1.17, 28.16},
	{"Meta-Llama-3-8B-Instruct", 22.57, 1.26, 22.92}, {"gpt-3.5-turbo-1106", 9.18, 0.89, 19.30},
	{"Mistral-7B-Instruct-v0.2", 14.72, 1.08, 17.11}, {"Qwen1.5-7B-Chat", 11.77, 0.95, 14.75},
	{"alpaca-7b", 2.59, 0.49, 5.88}, {"gemma-2b-it", 3.40, 0.54, 5.44},
}

// Case is an instruction with what was judged, a line of cases.jsonl.
type Case struct {
	ID          string   `json:"id"`
	Score       *float64 `json:"score"` // probability of a win, in hundredths; null: no verdict
	Instruction string   `json:"instruction"`
	Output      string   `json:"output"`
	Order       string   `json:"order,omitempty"`
	Verdict     string   `json:"verdict,omitempty"`
}

// annotation is a judgement in the benchmark's own form.
type annotation struct {
	Instruction string   `json:"instruction"`
	Output1     string   `json:"output_1"`
	Generator1  string   `json:"generator_1"`
	Output2     string   `json:"output_2"`
	Generator2  string   `json:"generator_2"`
	Annotator   string   `json:"annotator"`
	Preference  *float64 `json:"preference"`
}

// evaluation is a call of Run.
type evaluation struct {
	Options
	baseline  *bench.Baseline
	prompts   *alpaca.Prompts
	generator string
	result    *Result
}

// Run runs the stages: a model answers the instructions, a judge compares, the judgements are counted. The result is
// that of the stage report, nil without it. The evaluation says how far it came, after an error too.
func Run(ctx context.Context, o Options, place stages.Place, r run.Reporter) (*Result, *stages.Evaluation, error) {
	if err := o.Pin(place); err != nil {
		return nil, &stages.Evaluation{}, err
	}
	e := &evaluation{Options: o}
	b, err := e.bench(place, run.Listen(r))
	if err != nil {
		return nil, &stages.Evaluation{}, err
	}
	at, err := b.Run(ctx, o.BenchOptions, place, r)
	return e.result, at, err
}

// bench reads the files, and says what the benchmark is.
func (e *evaluation) bench(place stages.Place, r run.Reporter) (b stages.Bench, err error) {
	if e.baseline, err = bench.ReadBaseline(e.Baseline); err == nil {
		e.prompts, err = alpaca.ReadPrompts(e.Prompts)
	}
	if err != nil {
		return b, err
	}
	r.Say("%s: %d instructions, baseline %s", e.Baseline, len(e.baseline.Instructions),
		cmp.Or(e.baseline.Generator, "without a name"))
	n := len(e.baseline.Instructions)
	if e.First > 0 {
		n = min(n, e.First)
	}
	b = stages.Bench{Command: Command, Questions: e.questions, Read: e.read, Form: "m or M",
		Identity: map[string]string{"prompts": e.prompts.Hash, "seed": fmt.Sprint(e.Seed),
			"logprobs": fmt.Sprint(e.Logprobs), "baseline": hashOf(e.baseline, n)},
		Files: []string{AnnotationsName}, Report: e.report, Config: e.resolved}
	if e.Logprobs {
		b.TopLogprobs = topLogprobs
	}
	for i, text := range e.baseline.Instructions[:n] {
		b.Items = append(b.Items, stages.Item{ID: fmt.Sprint(i + 1), Turns: []string{text}})
	}
	e.generator = e.nameOf()
	if e.Agent.Answers != "" && (place.Runs(stages.StageAnswers) || len(place.Stages) == 0) {
		b.Recorded, err = e.readRecorded(b.Items)
	}
	return b, err
}

// hashOf names the baseline's first outputs.
func hashOf(b *bench.Baseline, n int) string {
	var outputs []string
	for _, instruction := range b.Instructions[:n] {
		outputs = append(outputs, b.Outputs[instruction])
	}
	return stages.HashCases(outputs)
}

// nameOf names the model under test, for the judgements.
func (e *evaluation) nameOf() string {
	a := e.Agent
	switch a.Way() {
	case stages.Server:
		return a.APIModel
	case stages.Recorded:
		return a.RecordedName()
	}
	return hub.Short(a.Model)
}

// readRecorded reads a model's recorded outputs.
func (e *evaluation) readRecorded(items []stages.Item) (map[string][]string, error) {
	outputs, err := bench.ReadOutputs(e.Agent.Answers)
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, item := range items {
		if text, found := outputs.Outputs[item.Turns[0]]; found {
			all[item.ID] = []string{text}
		}
	}
	return all, nil
}

// resolved is config.yaml, with paths from the root.
func (e *evaluation) resolved() []byte {
	o := e.Options
	o.Whole()
	for _, path := range []*string{&o.Baseline, &o.Weights, &o.Leaderboard, &o.Prompts} {
		*path = stages.WholePath(*path)
	}
	o.Others = nil
	for _, path := range e.Others {
		o.Others = append(o.Others, stages.WholePath(path))
	}
	return Spec().Resolve(&o)
}

// questions are one about each output that differs from the baseline's.
func (e *evaluation) questions(i int, outputs []string) ([]stages.Question, error) {
	instruction := e.baseline.Instructions[i]
	model, base := outputs[0], e.baseline.Outputs[instruction]
	if model == base {
		return nil, nil
	}
	q := stages.Question{ID: fmt.Sprint(i + 1), Key: baselineFirst}
	if alpaca.ModelFirst(e.Seed, instruction) {
		q.Key, base, model = modelFirst, model, base
	}
	q.Messages = e.prompts.Messages(instruction, base, model)
	return []stages.Question{q}, nil
}

// read makes a preference of a reply: 1 for the baseline's output, 2 for the model's.
func (e *evaluation) read(q stages.Question, r metered.Reply, v *stages.Verdict) {
	c := alpaca.ReadChoice(r.Text, r.Top)
	v.Parsed, v.Said, v.Score = c.Parsed, c.Said, 0
	switch {
	case !c.Parsed:
	case q.Key == modelFirst:
		v.Score = 2 - c.Second
	default:
		v.Score = 1 + c.Second
	}
}

// report counts the judgements, and writes them with the summary.
func (e *evaluation) report(f *stages.Found) error {
	j := &Judging{Judge: f.Settings[stages.StageJudge]["model"], Settings: f.Settings, Warnings: f.Warnings,
		Paper: eval.PublishedRows(eval.AlpacaEval), Released: released}
	var all []bench.Judgement
	var cases []Case
	firstWins := 0.0
	for i, item := range f.Items {
		judgement, c, shown := e.judgement(f, i)
		all, cases = append(all, judgement), append(cases, c)
		switch v, asked := f.Verdicts[[2]string{item.ID, c.Order}]; {
		case !asked:
			j.Equal++
			continue
		case !v.Parsed:
			j.Unparsed++
			continue
		case alpaca.HasChoice(v.Top):
			j.Probabilities++
		default:
			j.Words++
		}
		firstWins += shown
		if c.Order == modelFirst {
			j.ModelFirst++
		}
	}
	if n := j.Probabilities + j.Words; n > 0 {
		j.FirstWins = eval.Finite(100 * firstWins / float64(n))
	}
	result, err := e.count(all)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path(stages.VerdictsName), err)
	}
	if err := result.controlWith(e.Options, all, e.baseline); err != nil {
		j.Warnings = append(j.Warnings, "no length-controlled win rate: "+err.Error())
	}
	result.Judging, result.dir, result.Baseline = j, f.Dir, e.baseline.Generator
	e.result = result
	return cmp.Or(
		data.WriteLines(f.Path(stages.CasesName), len(cases), func(i int) any { return cases[i] }),
		data.WriteJSON(f.Path(AnnotationsName), e.annotations(all, j.Judge)),
		data.WriteJSON(f.Path(stages.SummaryName), result))
}

// judgement joins what is known of item i; shown is the probability that the output shown first wins.
func (e *evaluation) judgement(f *stages.Found, i int) (j bench.Judgement, c Case, shown float64) {
	item := f.Items[i]
	instruction, output := item.Turns[0], f.Outputs(item.ID)[0]
	j = bench.Judgement{Instruction: instruction, Output: output, Generator: e.generator,
		Baseline: e.baseline.Generator, Preference: 1.5, Judged: true, Source: fmt.Sprintf("instruction %s", item.ID)}
	c = Case{ID: item.ID, Instruction: instruction, Output: output}
	for _, key := range []string{modelFirst, baselineFirst} {
		v, found := f.Verdicts[[2]string{item.ID, key}]
		if !found {
			continue
		}
		j.Preference, j.Judged, c.Order, c.Verdict = v.Score, v.Parsed, key, v.Said
		if shown = 2 - v.Score; key == modelFirst {
			shown = v.Score - 1
		}
	}
	if j.Judged {
		c.Score = eval.Finite(100 * (j.Preference - 1))
	}
	return j, c, shown
}

// annotations are judgements in the benchmark's own form.
func (e *evaluation) annotations(all []bench.Judgement, judge string) []annotation {
	rows := make([]annotation, len(all))
	for i, j := range all {
		rows[i] = annotation{Instruction: j.Instruction, Output1: e.baseline.Outputs[j.Instruction],
			Generator1: j.Baseline, Output2: j.Output, Generator2: j.Generator, Annotator: judge}
		if j.Judged {
			rows[i].Preference = eval.Finite(j.Preference)
		}
	}
	return rows
}

// print says how the judgements came about, and what others have reached.
func (j *Judging) print(w io.Writer) {
	fmt.Fprintf(w, "judge %s: %d preferences by probability, %d by words (1, 2 or 1.5), %d equal outputs (1.5), %d "+
		"without a verdict (not counted)\n", j.Judge, j.Probabilities, j.Words, j.Equal, j.Unparsed)
	if j.FirstWins != nil {
		fmt.Fprintf(w, "the judge saw the model's output first in %d of %d; the output shown first wins %.1f %%\n",
			j.ModelFirst, j.Probabilities+j.Words, *j.FirstWins)
	}
	for _, warning := range j.Warnings {
		fmt.Fprintf(w, "warning: %s\n", warning)
	}
	io.WriteString(w, eval.PublishedLine(eval.AlpacaEval))
	fmt.Fprint(w, "published (leaderboard), win rate and length-controlled:")
	for i, row := range j.Released {
		separator := ","
		if i == 0 {
			separator = ""
		}
		fmt.Fprintf(w, "%s %s %.2f %.2f", separator, row.Model, row.WinRate, row.Controlled)
	}
	fmt.Fprintln(w)
}
