package alpaca

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
)

// Options say which model is judged by whom, or which judgements are counted. Paths are relative to the working
// directory.
type Options struct {
	Baseline    string   `yaml:"baseline,omitempty" path:"" words:"a file of the baseline's outputs" flag:"baseline" help:"instructions with the baseline's outputs: columns instruction, output_1"`
	Others      []string `yaml:"others,omitempty" path:"" words:"files of other models' judgements" flag:"others" help:"files of other models' judgements, with commas between"`
	Weights     string   `yaml:"weights,omitempty" path:"" words:"a .csv file of published weights" flag:"weights" help:".csv with the published weights of these models"`
	Leaderboard string   `yaml:"leaderboard,omitempty" path:"" words:"a .csv file of published rows" flag:"leaderboard" help:".csv with published rows, to print beside"`
	Prompts     string   `yaml:"prompts" path:"" words:"a .jsonl file of the judge's messages, or nothing: our own" flag:"prompts" help:"file of the judge's messages in place of ours (scripts/alignment/export_prompts.py)"`
	Logprobs    bool     `yaml:"logprobs"` // the judge's server is asked for probabilities of its first token

	bench.Judged `yaml:",inline"`
}

// Defaults are the benchmark's: answers of at most 2048 tokens, greedy, and a judge that says one letter.
func Defaults() Options {
	return Options{Logprobs: true, Judged: bench.DefaultJudged(0, 2048, judgeTokens)}
}

// judgeTokens are enough for a letter and what may be around it; topLogprobs is how many likeliest first tokens the
// benchmark asks its judge for.
const (
	judgeTokens = 8
	topLogprobs = 5
)

// Benchmark is posttrain eval alpaca.
var Benchmark = bench.New(bench.Benchmark[Options, *Result]{
	Name:  "eval alpaca",
	Short: "AlpacaEval 2: win rate against a baseline's outputs, standard error, length-controlled win rate",
	Long: `Let a model answer the instructions of AlpacaEval 2, and a judge compare each output with the baseline's. The
report has win rates, summary.json, cases.jsonl, and annotations.json in the benchmark's form. With --judgments,
judgements that exist are counted.`,
	Example: `  posttrain eval alpaca --baseline baseline.jsonl.gz --model DIR --judge-model gpt-4o --out runs/alpaca
  posttrain eval alpaca --baseline baseline.jsonl.gz --answers outputs.json --judge-base-url ` +
		`http://localhost:9000/v1 --judge-model NAME
  posttrain eval alpaca --judgments annotations.json --out counted
  posttrain eval alpaca --judgments annotations.json --baseline baseline.jsonl.gz ` +
		`--others a.jsonl,b.jsonl --weights lc_weights.csv --leaderboard leaderboard.csv`,
	Defaults: Defaults, Check: check, Open: open, Count: count,
	Counting: []string{"baseline", "others", "weights", "leaderboard"},
})

// check looks across what a run, and the length-controlled win rate, need.
func check(g *config.Given, o *Options) {
	for _, c := range []struct {
		key, value, lacks string
		wrong             bool
	}{
		{"weights", o.Weights, "others", o.Weights != "" && len(o.Others) == 0},
		{"others", strings.Join(o.Others, ","), "weights", len(o.Others) > 0 && o.Weights == ""},
		{"others", strings.Join(o.Others, ","), "baseline", len(o.Others) > 0 && o.Baseline == ""},
	} {
		if c.wrong {
			g.Fault(c.key, "%s %s: want %s as well: the length-controlled win rate needs both", c.key, c.value, c.lacks)
		}
	}
	if o.Judgements == "" && o.Baseline == "" {
		g.Fault("baseline", "baseline is missing: want a file of the instructions with the baseline's outputs "+
			"(columns instruction, output_1)")
	}
}

// Result is what was counted. It is the form of summary.json.
type Result struct {
	Generator string `json:"generator"`
	Baseline  string `json:"baseline,omitempty"`
	Counts
	Controlled *Controlled `json:"length_controlled,omitempty"`
	Published  *Row        `json:"published,omitempty"`
	Judging    *Judging    `json:"judging,omitempty"` // of a run that asked a judge
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

// count counts judgements that exist.
func count(o *Options, r run.Reporter) (*Result, error) {
	all, report, err := ReadJudgements(o.Judgements)
	if err != nil {
		return nil, err
	}
	r.Say("%s", report)
	result, err := o.count(all)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Judgements, err)
	}
	if o.Baseline == "" {
		return result, nil
	}
	b, err := ReadBaseline(o.Baseline)
	if err == nil {
		err = o.fits(all, b)
	}
	if err == nil {
		result.Baseline = b.Generator
		err = result.control(o, all, b)
	}
	return result, err
}

// count counts judgements of one model.
func (o *Options) count(all []Judgement) (result *Result, err error) {
	result = &Result{Generator: all[0].Generator}
	if result.Counts, err = Count(all); err == nil && o.Leaderboard != "" {
		result.Published, err = readPublished(o.Leaderboard, result.Generator)
	}
	return result, err
}

// fits refuses judgements against another baseline, and a file that is cut short.
func (o *Options) fits(all []Judgement, b *Baseline) error {
	for _, j := range all {
		if j.Baseline != "" && b.Generator != "" && j.Baseline != b.Generator {
			return fmt.Errorf("%s: generator_1 is %s, and the baseline of %s is %s: want judgements against it",
				j.Source, j.Baseline, o.Baseline, b.Generator)
		}
	}
	if len(all) < len(b.Outputs) {
		return fmt.Errorf("%s: %d judgements for the %d instructions of %s: the file is cut short, or of another set",
			o.Judgements, len(all), len(b.Outputs), o.Baseline)
	}
	return nil
}

// control adds the length-controlled win rate.
func (s *Result) control(o *Options, all []Judgement, b *Baseline) error {
	others, err := o.readOthers(s.Generator)
	if err != nil {
		return err
	}
	c, err := ControlLength(all, b, others)
	if err == nil {
		s.Controlled = &c
	}
	return err
}

// readOthers reads the models that give the difficulties of the instructions: not the model itself.
func (o *Options) readOthers(generator string) (others []Reference, err error) {
	if len(o.Others) == 0 {
		return nil, nil
	}
	weights, err := ReadWeights(o.Weights)
	if err != nil {
		return nil, err
	}
	for _, path := range o.Others {
		all, _, err := ReadJudgements(path)
		if err != nil {
			return nil, err
		}
		name := all[0].Generator
		w, found := weights[name]
		if !found {
			return nil, fmt.Errorf("%s: %s has no weights of %q", path, o.Weights, name)
		}
		if name != generator {
			others = append(others, Reference{Judgements: all, Weights: w})
		}
	}
	return others, nil
}

// readPublished finds a model's row; nil without one.
func readPublished(path, generator string) (*Row, error) {
	table, err := readCSV(path)
	if err != nil {
		return nil, err
	}
	for _, row := range table[1:] {
		if row[0] != generator {
			continue
		}
		p := &Row{Model: generator}
		for column, to := range map[string]*float64{"win_rate": &p.WinRate, "standard_error": &p.StandardError,
			"length_controlled_winrate": &p.Controlled} {
			i := slices.Index(table[0], column)
			if i < 0 {
				return nil, fmt.Errorf("%s: it has no column %s", path, column)
			}
			if *to, err = strconv.ParseFloat(row[i], 64); err != nil {
				return nil, fmt.Errorf("%s: %s of %s is %q: want a number", path, column, generator, row[i])
			}
		}
		return p, nil
	}
	return nil, nil
}

// The keys of a question say which output the judge sees first.
const (
	modelFirst    = "model first"
	baselineFirst = "baseline first"
)

// annotationsName is the file of a run's judgements in the benchmark's own form, which --judgments counts, too.
const annotationsName = "annotations.json"

// comparing is a run.
type comparing struct {
	*Options
	baseline *Baseline
	prompts  *Prompts
}

// open reads the files, and says what the benchmark is.
func open(o *Options, r run.Reporter) (*bench.Bench, error) {
	e := &comparing{Options: o}
	var err error
	if e.baseline, err = ReadBaseline(o.Baseline); err == nil {
		e.prompts, err = ReadPrompts(o.Prompts)
	}
	if err != nil {
		return nil, err
	}
	all := e.baseline.Instructions
	r.Say("%s: %d instructions, baseline %s", o.Baseline, len(all), cmp.Or(e.baseline.Generator, "without a name"))
	if o.First > 0 {
		all = all[:min(len(all), o.First)]
	}
	b := &bench.Bench{Questions: e.questions, Read: read, Form: "m or M", Files: []string{annotationsName},
		Report: e.report}
	if o.Logprobs {
		b.TopLogprobs = topLogprobs
	}
	var outputs []string
	for i, text := range all {
		b.Items = append(b.Items, bench.Item{ID: fmt.Sprint(i + 1), Turns: []string{text}})
		outputs = append(outputs, e.baseline.Outputs[text])
	}
	b.Identity = map[string]string{"prompts": e.prompts.Hash, "seed": fmt.Sprint(o.Seed),
		"logprobs": fmt.Sprint(o.Logprobs), "baseline": bench.HashCases(outputs)}
	if o.Agent.Answers != "" {
		b.Recorded, err = readRecorded(o.Agent.Answers, b.Items)
	}
	return b, err
}

// readRecorded reads a model's recorded outputs.
func readRecorded(path string, items []bench.Item) (map[string][]string, error) {
	outputs, err := ReadOutputs(path)
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

// questions are one about each output that differs from the baseline's.
func (e *comparing) questions(i int, outputs []string) ([]bench.Question, error) {
	instruction := e.baseline.Instructions[i]
	model, base := outputs[0], e.baseline.Outputs[instruction]
	if model == base {
		return nil, nil
	}
	q := bench.Question{ID: fmt.Sprint(i + 1), Key: baselineFirst}
	if ModelFirst(e.Seed, instruction) {
		q.Key, base, model = modelFirst, model, base
	}
	q.Messages = e.prompts.Messages(instruction, base, model)
	return []bench.Question{q}, nil
}

// read makes a preference of a reply: 1 for the baseline's output, 2 for the model's.
func read(q bench.Question, r metered.Reply, v *bench.Verdict) {
	c := ReadChoice(r.Text, r.Top)
	v.Parsed, v.Said, v.Score = c.Parsed, c.Said, 0
	switch {
	case !c.Parsed:
	case q.Key == modelFirst:
		v.Score = 2 - c.Second
	default:
		v.Score = 1 + c.Second
	}
}

// Judging says how the judgements of a run came about.
type Judging struct {
	Judge         string         `json:"judge"`
	Probabilities int            `json:"by_probability"` // preferences from log-probabilities
	Words         int            `json:"by_words"`       // preferences of 1, 1.5 or 2
	Equal         int            `json:"equal_outputs"`  // draws that nobody was asked about
	Unparsed      int            `json:"no_verdict"`     // they do not count
	ModelFirst    int            `json:"model_first"`    // judgements in which the judge saw the model's output first
	FirstWins     *float64       `json:"first_wins"`     // mean win of the output shown first, in hundredths
	Settings      bench.Settings `json:"settings"`
	Warnings      []string       `json:"warnings,omitempty"`

	Paper    []eval.Published `json:"published_mappo"`
	Released []Row            `json:"published_leaderboard"`

	firstWins float64 // sum over judgements
}

// add counts how a verdict came about; shown is the probability that the output shown first wins.
func (j *Judging) add(v bench.Verdict, asked bool, shown float64) {
	switch {
	case !asked:
		j.Equal++
		return
	case !v.Parsed:
		j.Unparsed++
		return
	case HasChoice(v.Top):
		j.Probabilities++
	default:
		j.Words++
	}
	if j.firstWins += shown; v.Key == modelFirst {
		j.ModelFirst++
	}
	j.FirstWins = eval.Finite(100 * j.firstWins / float64(j.Probabilities+j.Words))
}

// row is an instruction with what was judged, a line of cases.jsonl.
type row struct {
	ID          string   `json:"id"`
	Score       *float64 `json:"score"` // probability of a win, in hundredths; null: no verdict
	Instruction string   `json:"instruction"`
	Output      string   `json:"output"`
	Order       string   `json:"order,omitempty"`
	Verdict     string   `json:"verdict,omitempty"`
}

// report counts the judgements, and writes them in the benchmark's form.
func (e *comparing) report(f *bench.Found) (fmt.Stringer, []any, error) {
	judging := &Judging{Judge: f.Settings[bench.StageJudge]["model"], Settings: f.Settings, Warnings: f.Warnings,
		Paper: eval.PublishedRows(eval.AlpacaEval), Released: released}
	var all []Judgement
	var cases []any
	var annotations []annotation
	for _, item := range f.Items {
		j := Judgement{Instruction: item.Turns[0], Output: f.Outputs(item.ID)[0], Generator: f.Model(e.Agent),
			Baseline: e.baseline.Generator, Preference: 1.5, Judged: true, Source: "instruction " + item.ID}
		c, shown := row{ID: item.ID, Instruction: j.Instruction, Output: j.Output}, 0.0
		v, asked := f.Verdict(item.ID, baselineFirst)
		if !asked {
			v, asked = f.Verdict(item.ID, modelFirst)
		}
		if asked {
			j.Preference, j.Judged, c.Order, c.Verdict = v.Score, v.Parsed, v.Key, v.Said
			if shown = 2 - v.Score; v.Key == modelFirst {
				shown = v.Score - 1
			}
		}
		judging.add(v, asked, shown)
		a := annotation{Instruction: &j.Instruction, Output1: e.baseline.Outputs[j.Instruction], Generator1: j.Baseline,
			Output2: &j.Output, Generator2: j.Generator, Annotator: judging.Judge}
		if j.Judged {
			a.Preference, c.Score = eval.Finite(j.Preference), eval.Finite(100*(j.Preference-1))
		}
		all, cases, annotations = append(all, j), append(cases, c), append(annotations, a)
	}
	result, err := e.count(all)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", f.Path(bench.VerdictsName), err)
	}
	if err := result.control(e.Options, all, e.baseline); err != nil {
		judging.Warnings = append(judging.Warnings, "no length-controlled win rate: "+err.Error())
	}
	result.Judging, result.Baseline = judging, e.baseline.Generator
	return result, cases, data.WriteJSON(f.Path(annotationsName), annotations)
}

// String gives the counts in words.
func (s *Result) String() string {
	var t strings.Builder
	fmt.Fprintf(&t, "%s: win rate %.2f %% ± %.2f (%d wins, %d draws, %d losses), outputs of %d characters\n",
		s.Generator, s.WinRate, s.StandardError, s.Wins, s.Draws, s.WinsBase, s.AvgLength)
	if c := s.Controlled; c != nil {
		how := fmt.Sprintf("with difficulties from %d other models", c.References)
		if c.References == 0 {
			how = "without the difficulties of instructions, which other models' judgements give (--others, --weights)"
		}
		fmt.Fprintf(&t, "length-controlled win rate %.2f %%, %s\n", c.WinRate, how)
	}
	if p := s.Published; p != nil {
		fmt.Fprintf(&t, "published: win rate %.2f %% ± %.2f, length-controlled %.2f %%\n", p.WinRate, p.StandardError,
			p.Controlled)
	}
	if s.Judging != nil {
		s.Judging.print(&t)
	}
	return t.String()
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
	var rows []string
	for _, row := range j.Released {
		rows = append(rows, fmt.Sprintf("%s %.2f %.2f", row.Model, row.WinRate, row.Controlled))
	}
	fmt.Fprintf(w, "published (leaderboard), win rate and length-controlled: %s\n", strings.Join(rows, ", "))
}
