package gate

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// Options say which model is tested, with what. Paths are relative to the working directory.
type Options struct {
	Policy    string `yaml:"policy" want:"given" path:"" words:"a file of norms and limits, such as configs/gate-norms.yaml" flag:"policy" help:"file of norms and limits, such as configs/gate-norms.yaml"`
	Scenarios int    `yaml:"scenarios" want:">=1" flag:"scenarios" help:"scenarios of each norm that ask for a message, and as many that offer a tool"`
	Samples   int    `yaml:"samples" want:">=1" flag:"samples" help:"answers to each scenario"`
	Undecided string `yaml:"undecided" want:"pass|fail" flag:"undecided" help:"what too few scenarios to tell mean for the exit code: pass or fail"`
	JUnit     string `yaml:"junit,omitempty" path:"" words:"a file to write, such as gate.xml" flag:"junit" help:"file for the verdicts as JUnit's XML, a test case for each norm and channel"`

	bench.Options `yaml:",inline"`
}

// Defaults have no policy and no model yet.
func Defaults() Options {
	return Options{Scenarios: 100, Samples: 1, Undecided: "pass", Options: bench.Defaults(0, 1024)}
}

// Benchmark is posttrain eval gate.
var Benchmark = bench.New(bench.Benchmark[Options, *Result]{
	Name:  "eval gate",
	Short: "Fail a build when a model leaks what the norms of a policy forbid",
	Long: `Test a model with a policy: norms that say which attributes may flow from a sender to a recipient and which
must not, with limits of leakage and a floor of utility. Each norm is expanded to --scenarios scenarios with synthetic
values, some of which ask for a message and some for a call of a tool. The gate fails, with exit code 1, when
the lower bound of a leakage is above its limit, or the upper bound of a utility is below its floor. A model within all
limits fails with a chance of 5 % at most, however many norms and channels there are. Where a limit is inside an
interval, there are too few scenarios to tell: the verdict is undecided, and --undecided says what that means.`,
	Example: `  posttrain eval gate --policy configs/gate-norms.yaml --model DIR --out runs/gate
  posttrain eval gate --policy configs/gate-norms.yaml --base-url http://localhost:8000/v1 --api-model NAME
  posttrain eval gate --policy configs/gate-norms.yaml --model DIR --scenarios 300 --undecided fail`,
	Defaults: Defaults, Check: func(g *config.Given, o *Options) { o.CheckSamples(g, o.Samples) }, Open: open,
})

// Result is what the gate says. It is the form of summary.json.
type Result struct {
	Model     string `json:"model"`
	Policy    string `json:"policy"`
	Scenarios int    `json:"scenarios"` // of each norm and form
	Samples   int    `json:"samples"`   // answers to each scenario
	*Report
	Failed   bool     `json:"failed"` // the command ends with exit code 1
	Warnings []string `json:"warnings,omitempty"`

	Settings bench.Settings `json:"settings"` // of the run's stages
}

// gating is a run.
type gating struct {
	*Options
	policy    *Policy
	scenarios []Scenario
}

// open reads the policy, and makes its scenarios, each of which is asked as often as it has samples.
func open(o *Options, _ run.Reporter) (*bench.Bench, error) {
	e := &gating{Options: o}
	if err := e.read(); err != nil {
		return nil, err
	}
	b := &bench.Bench{Report: e.report}
	for i := range e.scenarios {
		for n := range o.Samples {
			b.Items = append(b.Items, bench.Item{ID: e.sample(i, n), Turns: []string{e.scenarios[i].Prompt}})
		}
	}
	var err error
	if o.Agent.Answers != "" {
		b.Recorded, err = bench.ReadAnswers(o.Agent.Answers)
	}
	return b, err
}

func (e *gating) read() (err error) {
	if err := checkFolder(e.JUnit); err != nil {
		return err
	}
	if e.policy, err = ReadPolicy(e.Policy); err != nil {
		return err
	}
	if n := e.First; n > 0 {
		e.policy.Norms = e.policy.Norms[:min(n, len(e.policy.Norms))]
	}
	e.scenarios, err = e.policy.Expand(e.Scenarios, e.Seed)
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

// sample names answer n, from 0, to scenario i.
func (e *gating) sample(i, n int) string {
	return fmt.Sprintf("%s/%d", e.scenarios[i].ID(e.policy), n+1)
}

// row is a scenario's line of cases.jsonl.
type row struct {
	ID     string             `json:"id"`
	Scores map[string]float64 `json:"scores"` // shares of the answers that leak, and that are useful
	Allow  []Fact             `json:"allow"`
	Forbid []Fact             `json:"forbid"`
	Reads  []Read             `json:"answers"`
}

// report counts the answers, and gives the verdict.
func (e *gating) report(f *bench.Found) (fmt.Stringer, []any, error) {
	reads, rows := make([][]Read, len(e.scenarios)), make([]any, len(e.scenarios))
	for i := range e.scenarios {
		s, leaks, useful := &e.scenarios[i], eval.Share{}, eval.Share{}
		for n := range e.Samples {
			r := s.Read(f.Outputs(e.sample(i, n))[0])
			reads[i] = append(reads[i], r)
			leaks.Add(len(r.Leaks) > 0)
			useful.Add(r.Useful)
		}
		rows[i] = row{s.ID(e.policy), map[string]float64{"leakage": leaks.Value(), "utility": useful.Value()}, s.Allow,
			s.Forbid, reads[i]}
	}
	judged := e.policy.Judge(e.scenarios, reads)
	result := &Result{Model: f.Model(e.Agent), Policy: filepath.Base(e.Policy), Scenarios: e.Scenarios,
		Samples: e.Samples, Report: judged,
		Failed:   judged.Verdict == Fail || judged.Verdict == Undecided && e.Undecided == "fail",
		Warnings: append(f.Warnings, judged.Notes()...), Settings: f.Settings}
	if e.JUnit == "" {
		return result, rows, nil
	}
	return result, rows, data.WriteFile(e.JUnit, func(w io.Writer) error {
		return result.JUnit(w, result.Model, result.Policy, e.Undecided == "fail")
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
	return b.String()
}
