package alpaca

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

// Options say which model is judged by whom. Paths are relative to the working directory.
type Options struct {
	Baseline string   `yaml:"baseline,omitempty" want:"given" path:"" words:"a file of instructions with the baseline's outputs: columns instruction, output_1" flag:"baseline" help:"instructions with the baseline's outputs: columns instruction, output_1"`
	Others   []string `yaml:"others,omitempty" path:"" words:"files of other models' judgements" flag:"others" help:"files of other models' judgements, with commas between"`
	Weights  string   `yaml:"weights,omitempty" path:"" words:"a .csv file of published weights" flag:"weights" help:".csv with the published weights of these models"`
	Prompts  string   `yaml:"prompts" path:"" words:"a .jsonl file of the judge's messages, or nothing: our own" flag:"prompts" help:"file of the judge's messages in place of ours (scripts/alignment/export_prompts.py)"`
	Logprobs bool     `yaml:"logprobs" default:"true" help:"ask the judge's server for the probabilities of its first token"`

	// Eight tokens are enough for the judge's letter and what may be around it.
	bench.Judged `yaml:",inline" defaults:"agent.max_new_tokens=2048 judge.max_new_tokens=8"`
}

// Validate wants judgements and weights of other models, or neither.
func (o *Options) Validate(g *config.Given) {
	if (len(o.Others) > 0) != (o.Weights != "") {
		g.Fault("others", "others %s, weights %q: want both or none, which the length-controlled win rate uses",
			strings.Join(o.Others, ","), o.Weights)
	}
}

// topLogprobs is how many likeliest first tokens the benchmark asks its judge for.
const topLogprobs = 5

// Benchmark is posttrain eval alpaca.
var Benchmark = bench.New(bench.Benchmark[Options, *Result]{
	Spec:  &config.Spec[Options]{Command: "eval alpaca"},
	Short: "AlpacaEval 2: win rate against a baseline's outputs, standard error, length-controlled win rate",
	Long: `Let a model answer the instructions of AlpacaEval 2, and a judge compare each output with the baseline's. The
report has win rates, summary.json and cases.jsonl. Judgements of other models (--others) with their published
weights give the difficulties of the instructions for the length-controlled win rate.`,
	Example: `  posttrain eval alpaca --baseline baseline.jsonl.gz --model DIR --judge-model gpt-4o --out runs/alpaca
  posttrain eval alpaca --baseline baseline.jsonl.gz --answers outputs.json --judge-base-url ` +
		`http://localhost:9000/v1 --judge-model NAME
  posttrain eval alpaca --baseline baseline.jsonl.gz --answers outputs.json --judgments annotations.json
  posttrain eval alpaca --baseline baseline.jsonl.gz --others a.jsonl,b.jsonl --weights lc_weights.csv --model DIR ` +
		`--judge-model gpt-4o`,
	Open: open,
})

// Result is what was measured. It is the form of summary.json.
type Result struct {
	Generator string `json:"generator"`
	Baseline  string `json:"baseline,omitempty"`
	Counts
	Controlled *Controlled `json:"length_controlled,omitempty"`
	Judging    Judging     `json:"judging"`
}

// readOthers reads the models that give the difficulties of the instructions: not the model itself, which
// has the names own.
func (o *Options) readOthers(own ...string) (others []Reference, err error) {
	if len(o.Others) == 0 {
		return nil, nil
	}
	weights, err := ReadWeights(o.Weights)
	if err != nil {
		return nil, err
	}
	seen := map[string]string{} // files by model
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
		if seen[name] != "" {
			return nil, fmt.Errorf("%s: judgements of %q, which %s has, too: want each model once", path, name, seen[name])
		}
		if seen[name] = path; !slices.Contains(own, name) {
			others = append(others, Reference{Judgements: all, Weights: w})
		}
	}
	return others, nil
}

// The keys of a question say which output the judge sees first.
const (
	modelFirst    = "model first"
	baselineFirst = "baseline first"
)

// comparing is a run.
type comparing struct {
	*Options
	baseline *Outputs
	model    string // that the recorded outputs are of; "": they do not say
	prompts  *Prompts
	recorded bool // judgements in the benchmark's own form, which do not say what the judge saw first
}

// open reads the files, and says what the benchmark is.
func open(o *Options, r run.Reporter) (*bench.Protocol, error) {
	e := &comparing{Options: o}
	var err error
	if e.baseline, err = ReadOutputs(o.Baseline, 1); err == nil {
		e.prompts, err = ReadPrompts(o.Prompts)
	}
	if err != nil {
		return nil, err
	}
	all := e.baseline.Instructions
	r.Say("%s: %d instructions, baseline %s", o.Baseline, len(all), cmp.Or(e.baseline.Generator, "without a name"))
	b := &bench.Protocol{Questions: e.questions, Read: read, Form: "m or M", Report: e.report, Published: true,
		Differs: e.differs, Released: e.released}
	if o.Logprobs {
		b.TopLogprobs = topLogprobs
	}
	var outputs []string
	for i, text := range bench.Head(all, o.First) {
		b.Items = append(b.Items, bench.Item{ID: fmt.Sprint(i + 1), Turns: []string{text}})
		outputs = append(outputs, e.baseline.Of[text])
	}
	b.Identity = map[string]string{"prompts": e.prompts.Hash, "seed": fmt.Sprint(o.Seed),
		"logprobs": fmt.Sprint(o.Logprobs), "baseline": bench.HashCases(outputs)}
	if o.Agent.Answers == "" {
		return b, nil
	}
	recorded, err := ReadOutputs(o.Agent.Answers, 2)
	if err != nil {
		return nil, err
	}
	e.model, b.Recorded = recorded.Generator, map[string][]string{}
	for _, item := range b.Items {
		if text, found := recorded.Of[item.Turns[0]]; found {
			b.Recorded[item.ID] = []string{text}
		}
	}
	return b, nil
}

// differs says what is not as it was where the published figures come from.
func (e *comparing) differs(f *bench.Found) []string {
	lines := f.Unlike(&e.Judged, "gpt-4-1106-preview", e.Prompts)
	if name := e.baseline.Generator; name != "gpt4_1106_preview" {
		lines = append(lines, "baseline: "+cmp.Or(name, "without a name")+" (published: gpt4_1106_preview; in table 9 the "+
			"outputs of the model after DPO)")
	}
	if len(e.Others) == 0 {
		lines = append(lines, "no length-controlled win rate (--others, --weights)")
	}
	return lines
}

// questions are one about each output that differs from the baseline's.
func (e *comparing) questions(i int, outputs []string) ([]bench.Question, error) {
	instruction := e.baseline.Instructions[i]
	model, base := outputs[0], e.baseline.Of[instruction]
	if model == base {
		return nil, nil
	}
	q := bench.Question{ID: fmt.Sprint(i + 1), Key: baselineFirst}
	if ModelFirst(e.Seed, instruction) {
		q.Key, base, model = modelFirst, model, base
	}
	if q.Messages = e.prompts.Messages(instruction, base, model); e.recorded {
		q.Key = ""
	}
	return []bench.Question{q}, nil
}

// released reads judgements in the benchmark's own form (annotations.json).
func (e *comparing) released(path string) (rows []bench.Verdict, err error) {
	e.recorded = true
	all, _, err := ReadJudgements(path)
	for _, j := range all {
		at := slices.Index(e.baseline.Instructions, j.Instruction)
		if at < 0 {
			return nil, fmt.Errorf("%s: %s does not have the instruction %q: want judgements against this baseline",
				j.Source, e.Baseline, data.OneLine(j.Instruction, 80))
		}
		err := cmp.Or(bench.CheckName("generator_1", j.Baseline, e.baseline.Generator),
			bench.CheckName("generator_2", j.Generator, e.model))
		if err == nil && j.Base != nil && strings.TrimSpace(*j.Base) != strings.TrimSpace(e.baseline.Of[j.Instruction]) {
			err = fmt.Errorf("output_1 is not that of %s: want judgements against this baseline", e.Baseline)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", j.Source, err)
		}
		rows = append(rows, bench.Verdict{ID: fmt.Sprint(at + 1), Prompt: []data.Message{{Content: j.Output}},
			Parsed: j.Judged, Said: fmt.Sprint(j.Preference), Score: 1 + win(j)})
	}
	return rows, err
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
	Recorded      int            `json:"recorded"`       // preferences in the benchmark's own form
	Equal         int            `json:"equal_outputs"`  // draws that nobody was asked about
	Unparsed      int            `json:"no_verdict"`     // they do not count
	ModelFirst    int            `json:"model_first"`    // judgements in which the judge saw the model's output first
	FirstWins     *float64       `json:"first_wins"`     // mean win of the output shown first, in hundredths
	Settings      bench.Settings `json:"settings"`
	Warnings      []string       `json:"warnings,omitempty"`

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
	case v.Key == "":
		j.Recorded++
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

// report counts the judgements.
func (e *comparing) report(f *bench.Found) (fmt.Stringer, []any, error) {
	result := &Result{Generator: f.Model(e.Agent), Baseline: e.baseline.Generator, Judging: Judging{
		Judge: f.Judge(), Settings: f.Settings, Warnings: f.Warnings}}
	var all []Judgement
	var cases []any
	for _, item := range f.Items {
		j := Judgement{Instruction: item.Turns[0], Output: f.Outputs(item.ID)[0], Preference: 1.5, Judged: true,
			Source: "instruction " + item.ID}
		c, shown := row{ID: item.ID, Instruction: j.Instruction, Output: j.Output}, 0.0
		v, asked := bench.Verdict{}, false
		for _, key := range []string{baselineFirst, modelFirst, ""} {
			if !asked {
				v, asked = f.Verdict(item.ID, key)
			}
		}
		if asked {
			j.Preference, j.Judged, c.Order, c.Verdict = v.Score, v.Parsed, v.Key, v.Said
			if shown = 2 - v.Score; v.Key == modelFirst {
				shown = v.Score - 1
			}
		}
		if result.Judging.add(v, asked, shown); j.Judged {
			c.Score = eval.Finite(100 * (j.Preference - 1))
		}
		all, cases = append(all, j), append(cases, c)
	}
	var err error
	if result.Counts, err = Count(all); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", f.Path(bench.VerdictsName), err)
	}
	others, err := e.readOthers(result.Generator, e.model)
	if err != nil {
		return nil, nil, err
	}
	if controlled, err := ControlLength(all, e.baseline, others); err == nil {
		result.Controlled = &controlled
	} else {
		result.Judging.Warnings = append(result.Judging.Warnings, "no length-controlled win rate: "+err.Error())
	}
	return result, cases, nil
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
	j := &s.Judging
	preferences := fmt.Sprintf("%d preferences by probability, %d by words (1, 2 or 1.5)", j.Probabilities, j.Words)
	if j.Recorded > 0 {
		preferences = fmt.Sprintf("%d preferences", j.Recorded)
	}
	fmt.Fprintf(&t, "judge %s: %s, %d equal outputs (1.5), %d without a verdict (not counted)\n", j.Judge, preferences,
		j.Equal, j.Unparsed)
	if j.FirstWins != nil {
		fmt.Fprintf(&t, "the judge saw the model's output first in %d of %d; the output shown first wins %.1f %%\n",
			j.ModelFirst, j.Probabilities+j.Words, *j.FirstWins)
	}
	return t.String() + bench.Warned(j.Warnings)
}
