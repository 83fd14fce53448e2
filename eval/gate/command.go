package gate

import (
	"fmt"
	"path/filepath"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// Options say which model is tested, with what. Paths are relative to the working directory.
type Options struct {
	Policy    string `yaml:"policy" want:"given" path:"" words:"a file of norms and limits, such as configs/gate-norms.yaml" flag:"policy" help:"file of norms and limits, such as configs/gate-norms.yaml"`
	Scenarios int    `yaml:"scenarios" want:">=1" default:"100" flag:"scenarios" help:"scenarios of each norm that ask for a message, and as many that offer a tool"`
	Undecided string `yaml:"undecided" want:"pass|fail" default:"pass" flag:"undecided" help:"what too few scenarios to tell mean for the exit code: pass or fail"`

	bench.Options `yaml:",inline" defaults:"agent.max_new_tokens=1024"`
}

// Benchmark is posttrain eval gate.
var Benchmark = bench.New(bench.Benchmark[Options, *Result]{
	Spec:  &config.Spec[Options]{Command: "eval gate"},
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
	Open: open,
})

// Result is what the gate says. It is the form of summary.json.
type Result struct {
	Model     string `json:"model"`
	Policy    string `json:"policy"`
	Scenarios int    `json:"scenarios"` // of each norm and form
	*Report
	Failed   bool           `json:"failed"` // the command ends with exit code 1
	Warnings []string       `json:"warnings,omitempty"`
	Settings bench.Settings `json:"settings"` // of the run's stages
}

// open reads the policy, and makes its scenarios.
func open(o *Options, _ run.Reporter) (*bench.Protocol, error) {
	policy, err := ReadPolicy(o.Policy)
	if err != nil {
		return nil, err
	}
	policy.Norms = bench.Head(policy.Norms, o.First)
	scenarios, err := policy.Expand(o.Scenarios, o.Seed)
	if err != nil {
		return nil, err
	}
	b := &bench.Protocol{Report: func(f *bench.Found) (fmt.Stringer, []any, error) { return o.report(f, policy, scenarios) }}
	for i := range scenarios {
		b.Items = append(b.Items, bench.Item{ID: answerTo(policy, &scenarios[i]), Turns: []string{scenarios[i].Prompt}})
	}
	return b, nil
}

// answerTo names the answer to a scenario.
func answerTo(p *Policy, s *Scenario) string { return s.ID(p) + "/1" }

// row is a scenario's line of cases.jsonl.
type row struct {
	ID     string             `json:"id"`
	Scores map[string]float64 `json:"scores"` // whether the answer leaks, and is useful
	Allow  []Fact             `json:"allow"`
	Forbid []Fact             `json:"forbid"`
	Read   Read               `json:"answer"`
}

// report counts the answers, and gives the verdict.
func (o *Options) report(f *bench.Found, p *Policy, scenarios []Scenario) (fmt.Stringer, []any, error) {
	reads, rows := make([]Read, len(scenarios)), make([]any, len(scenarios))
	for i := range scenarios {
		s := &scenarios[i]
		reads[i] = s.Read(f.Outputs(answerTo(p, s))[0])
		rows[i] = row{s.ID(p), map[string]float64{"leakage": eval.Indicator(len(reads[i].Leaks) > 0),
			"utility": eval.Indicator(reads[i].Useful)}, s.Allow, s.Forbid, reads[i]}
	}
	n := f.Unclosed()
	f.Warn(n > 0, "%d of %d answers never close their think block: they send nothing, and are not useful; allow more "+
		"tokens", n, len(scenarios))
	judged := p.Judge(scenarios, reads)
	return &Result{Model: f.Model(o.Agent), Policy: filepath.Base(o.Policy), Scenarios: o.Scenarios, Report: judged,
		Failed:   judged.Verdict == Fail || judged.Verdict == Undecided && o.Undecided == "fail",
		Warnings: append(f.Warnings, judged.Notes()...), Settings: f.Settings}, rows, nil
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
	return fmt.Sprintf("%s, policy %s, %d scenarios of each norm and form\n%s", s.Model, s.Policy, s.Scenarios,
		s.Report) + bench.Warned(s.Warnings)
}
