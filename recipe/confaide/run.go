package confaide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	text "github.com/posttrain/posttrain/data"
	stages "github.com/posttrain/posttrain/eval/bench"
	bench "github.com/posttrain/posttrain/eval/confaide"
	data "github.com/posttrain/posttrain/eval/confaide"
	"github.com/posttrain/posttrain/internal/run"
)

// Result is what was measured. It is the form of summary.json.
type Result struct {
	Model     string        `json:"model"`
	Samples   int           `json:"samples"`           // answers to each question
	Prompts   string        `json:"prompts,omitempty"` // "": the answers are recorded, and do not say
	Parts     []*bench.Part `json:"parts"`
	Warnings  []string      `json:"warnings,omitempty"`
	Published published     `json:"published"`

	Settings stages.Settings `json:"settings"` // of the run's stages

	dir string
}

// published are figures of others.
type published struct {
	Source string            `json:"source"`
	Models []string          `json:"models"`
	Rows   []bench.Published `json:"rows"`
}

// evaluation is a call of Run under way.
type evaluation struct {
	o       Options
	cases   []bench.Case
	prompts *bench.Prompts
	result  *Result // of the stage report
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
	b := stages.Bench{Command: Command, Items: e.items(), Report: e.report, Config: e.config}
	if o.Agent.Answers != "" && (len(place.Stages) == 0 || place.Runs(stages.StageAnswers)) {
		var err error
		if b.Recorded, err = stages.ReadAnswers(o.Agent.Answers); err != nil {
			return nil, &stages.Evaluation{}, err
		}
	}
	at, err := b.Run(ctx, stages.BenchOptions{AnswerOptions: o.AnswerOptions}, place, r)
	return e.result, at, err
}

// read reads data and prompts.
func (e *evaluation) read(r run.Reporter) (err error) {
	e.prompts, err = bench.ReadPrompts(e.o.promptsPath())
	if errors.Is(err, fs.ErrNotExist) && e.o.Prompts == Released {
		err = fmt.Errorf("%w: scripts/confaide/export_prompts.py writes it from a checkout of the benchmark", err)
	}
	if err != nil {
		return err
	}
	set, report, err := data.ReadSet(e.o.Data, e.o.Tiers)
	if err != nil {
		return err
	}
	r.Say("%s", report)
	e.cases = bench.Cases(set, e.o.Tiers, e.o.Questions, e.o.First, e.prompts)
	if len(e.cases) == 0 {
		return fmt.Errorf("no question is left: tiers %s have none of questions %s", strings.Join(e.o.Tiers, ", "),
			strings.Join(e.o.Questions, ", "))
	}
	return nil
}

func (o *Options) promptsPath() string {
	if o.Prompts == Released {
		return filepath.Join(o.Data, bench.PromptsName)
	}
	return o.Prompts
}

// items are what the model is asked, each question as often as it has samples.
func (e *evaluation) items() (items []stages.Item) {
	for i := range e.cases {
		c := &e.cases[i]
		for n := range e.o.Samples {
			items = append(items, stages.Item{ID: c.Sample(n + 1), Turns: []string{c.Prompt}})
		}
	}
	return items
}

// config is config.yaml of the run.
func (e *evaluation) config() []byte {
	o := e.o
	o.Whole()
	o.Data = stages.WholePath(o.Data)
	if o.Prompts != Released {
		o.Prompts = stages.WholePath(o.Prompts)
	}
	return Spec().Resolve(&o)
}

// row is a case's line of cases.jsonl.
type row struct {
	ID    string       `json:"id"`
	Human *float64     `json:"human,omitempty"` // people's rating
	Reads []bench.Read `json:"answers"`
}

// report counts, and writes what the stages have found.
func (e *evaluation) report(f *stages.Found) error {
	reads, rows := make([][]bench.Read, len(e.cases)), make([]row, len(e.cases))
	unclosed := 0
	for i := range e.cases {
		c := &e.cases[i]
		for n := range e.o.Samples {
			answer := f.Outputs(c.Sample(n + 1))[0]
			if closed := true; e.o.Think == stages.ThinkStrip {
				if answer, closed = stages.WithoutThoughts(answer, false); !closed {
					unclosed++
				}
			}
			reads[i] = append(reads[i], c.Read(answer))
		}
		if rows[i] = (row{ID: c.ID(), Reads: reads[i]}); c.Kind == bench.Rating {
			rows[i].Human = &c.Human
		}
	}
	e.result = &Result{
		Model:   cmp.Or(e.o.Agent.RecordedName(), f.Settings[stages.StageAnswers]["model"]),
		Samples: e.o.Samples, Prompts: e.prompts.Name, Parts: bench.Count(e.cases, reads), Warnings: f.Warnings,
		Published: published{bench.PublishedSource, bench.PublishedModels[:], bench.PublishedRows},
		Settings:  f.Settings, dir: f.Dir,
	}
	if f.Settings[stages.StageAnswers]["kind"] == stages.Recorded {
		e.result.Prompts = ""
	}
	if unclosed > 0 {
		e.result.Warnings = append(e.result.Warnings, fmt.Sprintf("%d of %d answers never close their think block: "+
			"they are read as empty; allow more tokens", unclosed, len(e.cases)*e.o.Samples))
	}
	for _, p := range e.result.Parts {
		e.result.Warnings = append(e.result.Warnings, p.Notes()...)
	}
	if err := text.WriteLines(f.Path(stages.CasesName), len(rows), func(i int) any { return rows[i] }); err != nil {
		return err
	}
	return text.WriteJSON(f.Path(stages.SummaryName), e.result)
}

// String gives the result as a table.
func (s *Result) String() string {
	var b strings.Builder
	prompts := "prompts in " + s.Prompts
	if s.Prompts == "" {
		prompts = "recorded"
	}
	fmt.Fprintf(&b, "%s, %d answers to each question, %s\n", s.Model, s.Samples, prompts)
	_ = bench.Write(&b, s.Parts) // a Builder takes everything
	fmt.Fprintf(&b, "95%% intervals; shares in percent, mean and worst case; published: %s\n", bench.PublishedSource)
	for _, w := range s.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	fmt.Fprintf(&b, "Summary: %s\n", s.dir)
	return b.String()
}
