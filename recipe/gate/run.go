package gate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/data"
	stages "github.com/posttrain/posttrain/eval/bench"
	bench "github.com/posttrain/posttrain/eval/gate"
	"github.com/posttrain/posttrain/internal/run"
)

// Result is what the gate says. It is the form of summary.json.
type Result struct {
	Model     string `json:"model"`
	Policy    string `json:"policy"`
	Scenarios int    `json:"scenarios"` // of each norm and form
	Samples   int    `json:"samples"`   // answers to each scenario
	*bench.Report
	Failed   bool     `json:"failed"` // the command ends with exit code 1
	Warnings []string `json:"warnings,omitempty"`

	Settings stages.Settings `json:"settings"` // of the run's stages

	dir string
}

// evaluation is a call of Run under way.
type evaluation struct {
	o         Options
	policy    *bench.Policy
	scenarios []bench.Scenario
	result    *Result // of the stage report
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
	if err := e.read(); err != nil {
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

// read reads the policy and makes its scenarios.
func (e *evaluation) read() (err error) {
	if err := checkFolder(e.o.JUnit); err != nil {
		return err
	}
	if e.policy, err = bench.ReadPolicy(e.o.Policy); err != nil {
		return err
	}
	if n := e.o.First; n > 0 {
		e.policy.Norms = e.policy.Norms[:min(n, len(e.policy.Norms))]
	}
	e.scenarios, err = e.policy.Expand(e.o.Scenarios, e.o.Seed)
	return err
}

// checkFolder wants the folder of a file that is to be written at the end.
func checkFolder(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("junit %s: it is a folder: want a file", path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("junit %s: there is no folder %s: make it first", path, filepath.Dir(path))
	}
	return nil
}

func (e *evaluation) sample(s *bench.Scenario, n int) string {
	return fmt.Sprintf("%s/%d", s.ID(e.policy), n)
}

// items are what the model is asked, each scenario as often as it has samples.
func (e *evaluation) items() (items []stages.Item) {
	for i := range e.scenarios {
		s := &e.scenarios[i]
		for n := range e.o.Samples {
			items = append(items, stages.Item{ID: e.sample(s, n+1), Turns: []string{s.Prompt}})
		}
	}
	return items
}

// config is config.yaml of the run.
func (e *evaluation) config() []byte {
	o := e.o
	o.Whole()
	o.Policy, o.JUnit = stages.WholePath(o.Policy), stages.WholePath(o.JUnit)
	return Spec().Resolve(&o)
}

// row is a scenario's line of cases.jsonl.
type row struct {
	ID     string       `json:"id"`
	Allow  []bench.Fact `json:"allow"`
	Forbid []bench.Fact `json:"forbid"`
	Reads  []bench.Read `json:"answers"`
}

// report counts, and writes what the stages have found.
func (e *evaluation) report(f *stages.Found) error {
	reads, rows := make([][]bench.Read, len(e.scenarios)), make([]row, len(e.scenarios))
	for i := range e.scenarios {
		s := &e.scenarios[i]
		for n := range e.o.Samples {
			reads[i] = append(reads[i], s.Read(f.Outputs(e.sample(s, n+1))[0]))
		}
		rows[i] = row{s.ID(e.policy), s.Allow, s.Forbid, reads[i]}
	}
	judged := e.policy.Judge(e.scenarios, reads)
	e.result = &Result{
		Model:  cmp.Or(e.o.Agent.RecordedName(), f.Settings[stages.StageAnswers]["model"]),
		Policy: e.o.policyName(), Scenarios: e.o.Scenarios, Samples: e.o.Samples, Report: judged,
		Failed:   judged.Verdict == bench.Fail || judged.Verdict == bench.Undecided && e.o.Undecided == "fail",
		Warnings: append(f.Warnings, judged.Notes()...), Settings: f.Settings, dir: f.Dir,
	}
	if err := e.writeJUnit(); err != nil {
		return err
	}
	if err := data.WriteLines(f.Path(stages.CasesName), len(rows), func(i int) any { return rows[i] }); err != nil {
		return err
	}
	return data.WriteJSON(f.Path(stages.SummaryName), e.result)
}

func (e *evaluation) writeJUnit() error {
	if e.o.JUnit == "" {
		return nil
	}
	return data.WriteFile(e.o.JUnit, func(w io.Writer) error {
		return e.result.JUnit(w, e.result.Model, e.result.Policy, e.o.Undecided == "fail")
	})
}

// Err says why the command ends with exit code 1; nil where it does not.
func (s *Result) Err() error {
	if !s.Failed {
		return nil
	}
	return fmt.Errorf("gate %s: %s", s.Policy, s.Words())
}

// String gives the result as a table.
func (s *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, policy %s, %d scenarios of each norm and form, %d answers to each\n", s.Model, s.Policy,
		s.Scenarios, s.Samples)
	_ = s.Write(&b) // a Builder takes everything
	for _, w := range s.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	fmt.Fprintf(&b, "Summary: %s\n", s.dir)
	return b.String()
}
