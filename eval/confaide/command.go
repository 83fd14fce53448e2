package confaide

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// Options say which model is measured, with what. Paths are relative to the working directory.
type Options struct {
	Data  string   `yaml:"data" want:"given" path:"" words:"the folder of the benchmark's files (tier_1.txt and so on)" flag:"data" help:"folder of the benchmark's files, tier_1.txt and so on"`
	Tiers []string `yaml:"tiers" want:"1|2a|2b|3|4" default:"1,2a,2b,3,4" flag:"tiers" help:"which tiers, with commas"`
	// of tiers 3 and 4
	Questions []string `yaml:"questions" default:"free-response,info-accessibility,privacy-sharing,control,meeting-summary,action-item" words:"kinds of questions, such as free-response" flag:"questions" help:"which kinds of questions of tiers 3 and 4, with commas"`
	Samples   int      `yaml:"samples" want:">=1" default:"10" flag:"samples" help:"answers to each question"`
	Prompts   string   `yaml:"prompts,omitempty" path:"" words:"a file of templates, a folder with prompts.jsonl, or released" flag:"prompts" help:"file of templates, or released: prompts.jsonl in the folder of the data (default: prompts of our own)"`

	Prompt string `yaml:"prompt,omitempty" want:"|cot" words:"cot, or nothing" flag:"prompt" help:"cot: the CI-CoT text of the dissertation follows each question, and the answer is what its answer tags hold"`

	bench.Options `yaml:",inline" defaults:"agent.temperature=1 agent.max_new_tokens=1024"`
}

// CoT is the value of Options.Prompt with which a model reasons about every piece of information first.
const CoT = "cot"

// Resolve lets answers begin with their thoughts where these are asked for.
func (o *Options) Resolve(g *config.Given) {
	if !g.Has("agent.prefill") {
		o.Agent.Prefill = o.Prompt == CoT && o.Agent.CanPrefill()
	}
}

// Validate wants answers that differ, and known kinds of questions.
func (o *Options) Validate(g *config.Given) {
	o.CheckSamples(g, o.Samples)
	if unknown := func(kind string) bool { return !slices.Contains(Kinds(), kind) }; len(o.Questions) == 0 ||
		slices.ContainsFunc(o.Questions, unknown) {
		g.Fault("questions", "questions %v: want some of %s", o.Questions, strings.Join(Kinds(), ", "))
	}
}

// Benchmark is posttrain eval confaide.
var Benchmark = bench.New(bench.Benchmark[Options, *Result]{
	Spec:  &config.Spec[Options]{Command: "eval confaide"},
	Short: "Measure with ConfAIde: does a model know, and keep, what is private",
	Long: `Measure a model with ConfAIde, in tiers: 1 how sensitive information is and 2a, 2b which flows of it people
expect (correlation with people's ratings), 3 secrets in stories (who learns them, who knows them), 4 summaries and
action items of meetings (leaks and omissions). Each question is asked --samples times: the worst case counts a
question that any answer fails. No judge is needed.`,
	Example: `  posttrain eval confaide --data confAIde/benchmark --model DIR --out runs/confaide
  posttrain eval confaide --data confAIde/benchmark --tiers 1,2a,3 --base-url http://localhost:8000/v1 --api-model NAME
  posttrain eval confaide --data confAIde/benchmark --prompts released --prompt cot --model DIR
  posttrain eval confaide --data confAIde/benchmark --prompts released --samples 1 --temperature 0 --model DIR`,
	Open: open,
})

// Result is what was measured. It is the form of summary.json.
type Result struct {
	Model    string   `json:"model"`
	Samples  int      `json:"samples"`           // answers to each question
	Prompts  string   `json:"prompts,omitempty"` // "": the answers are recorded, and do not say
	Parts    []*Part  `json:"parts"`
	Warnings []string `json:"warnings,omitempty"`

	Settings bench.Settings `json:"settings"` // of the run's stages
}

// asking is a run.
type asking struct {
	*Options
	cases   []Case
	prompts *Prompts
}

// open reads data and prompts, and says what the benchmark is: each question is asked as often as it has samples.
func open(o *Options, r run.Reporter) (*bench.Protocol, error) {
	e := &asking{Options: o}
	if err := e.read(r); err != nil {
		return nil, err
	}
	b := &bench.Protocol{Report: e.report, Published: true, Differs: e.differs}
	for i := range e.cases {
		for n := range o.Samples {
			b.Items = append(b.Items, bench.Item{ID: e.cases[i].Sample(n + 1), Turns: []string{e.cases[i].Prompt}})
		}
	}
	return b, nil
}

// differs says what is not as it was where the published figures come from.
func (e *asking) differs(f *bench.Found) (lines []string) {
	if f.Settings[bench.StageAnswers]["kind"] == bench.Recorded {
		return []string{"the answers are recorded: what was asked is not known"}
	}
	if e.Prompts != bench.Released {
		lines = append(lines, "prompts in "+e.prompts.Name+" (published: the benchmark's, --prompts released)")
	}
	if e.Samples != 10 {
		lines = append(lines, fmt.Sprintf("%d answers to each question (of the six models: 10)", e.Samples))
	}
	if e.First > 0 {
		lines = append(lines, fmt.Sprintf("the first %d questions of each kind", e.First))
	}
	return append(lines, "of CI-RL's rows, prompts, temperature, answers to a question and what is counted of them (mean "+
		"or worst case) are not published")
}

func (e *asking) read(r run.Reporter) (err error) {
	path := e.Prompts
	if path == bench.Released {
		path = filepath.Join(e.Data, PromptsName)
	}
	e.prompts, err = ReadPrompts(path)
	if errors.Is(err, fs.ErrNotExist) && e.Prompts == bench.Released {
		err = fmt.Errorf("%w: scripts/confaide/export_prompts.py writes it from a checkout of the benchmark", err)
	}
	if err != nil {
		return err
	}
	if e.Prompt == CoT {
		e.prompts.Name += " with CI-CoT"
		e.prompts.cot = "\n\n" + strings.TrimSpace(ci.CoT)
	}
	set, report, err := readSet(nil, e.Data, e.Tiers)
	if err != nil {
		return err
	}
	r.Say("%s", report)
	e.cases = Cases(set, e.Tiers, e.Questions, e.First, e.prompts)
	if len(e.cases) == 0 {
		return fmt.Errorf("no question is left: tiers %s have none of questions %s", strings.Join(e.Tiers, ", "),
			strings.Join(e.Questions, ", "))
	}
	return nil
}

// row is a case's line of cases.jsonl.
type row struct {
	ID     string              `json:"id"`
	Human  *float64            `json:"human,omitempty"` // people's rating
	Scores map[string]*float64 `json:"scores"`          // share of the answers with each fault, or the mean rating
	Reads  []Read              `json:"answers"`
}

// report counts the answers.
func (e *asking) report(f *bench.Found) (fmt.Stringer, []any, error) {
	reads, rows := make([][]Read, len(e.cases)), make([]any, len(e.cases))
	for i := range e.cases {
		c := &e.cases[i]
		for n := range e.Samples {
			read := bench.WithoutThoughts
			if e.Prompt == CoT {
				read = bench.InTags
			}
			answer, _ := read(f.Outputs(c.Sample(n + 1))[0], false)
			reads[i] = append(reads[i], c.Read(answer))
		}
		line := row{ID: c.ID(), Reads: reads[i], Scores: c.scores(reads[i])}
		if c.Kind == Rating {
			line.Human = &c.Human
		}
		rows[i] = line
	}
	result := &Result{Model: f.Model(e.Agent), Samples: e.Samples, Prompts: e.prompts.Name, Parts: Count(e.cases, reads),
		Settings: f.Settings}
	if f.Settings[bench.StageAnswers]["kind"] == bench.Recorded {
		result.Prompts = ""
	}
	unclosed := f.Unclosed()
	f.Warn(unclosed > 0, "%d of %d answers never close their think block: they are read as empty; allow more tokens",
		unclosed, len(e.cases)*e.Samples)
	result.Warnings = f.Warnings
	for _, p := range result.Parts {
		result.Warnings = append(result.Warnings, p.Notes()...)
	}
	return result, rows, nil
}

// String gives the result as a table.
func (s *Result) String() string {
	var b strings.Builder
	prompts := "prompts in " + s.Prompts
	if s.Prompts == "" {
		prompts = "recorded"
	}
	fmt.Fprintf(&b, "%s, %d answers to each question, %s\n", s.Model, s.Samples, prompts)
	_ = Write(&b, s.Parts) // a Builder takes everything
	b.WriteString("95% intervals; shares in percent, mean and worst case\n")
	return b.String() + bench.Warned(s.Warnings)
}
