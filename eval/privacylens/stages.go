package privacylens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/posttrain/posttrain/data"
	lens "github.com/posttrain/posttrain/data/privacylens"
)

// The files of a run's folder.
const (
	settingsName    = "settings.json"    // what each stage was run with: {stage: {name: value}}
	actionsName     = "actions.jsonl"    // ActionRow, as they come
	verdictsName    = "verdicts.jsonl"   // verdictRow, as they come
	probesName      = "probes.jsonl"     // probeRow, as they come
	SummaryName     = "summary.json"     // Summary
	CasesName       = "cases.jsonl"      // CaseResult, in the order of the data
	verdictsFile    = "verdicts.json"    // in the benchmark's own form
	helpfulnessFile = "helpfulness.json" // the same
	actionsFile     = "actions.csv"      // the same
	PageName        = "cases.html"       // to look through the cases
	usageName       = "usage.json"       // what all calls of the command have asked the judge for, by the judge's name
)

// fileNames are the files that are written whole, under a temporary name first; the journals grow line by line.
var fileNames = []string{settingsName, SummaryName, CasesName, verdictsFile, helpfulnessFile, actionsFile, PageName,
	usageName}

// The stages, as Settings name them.
const (
	StageActions = "actions"
	StageJudge   = "judge"
	StageProbe   = "probe"
	StageReport  = "report"
)

// The judges, as the setting "kind" of the stage judge names them.
const (
	KindModel   = "model"
	KindKeyword = "keyword"
	KindReplay  = "replay"
)

// store is the folder in which the rows of an evaluation grow. Every stage can be stopped at any time, by the context
// or by force. Called again, it continues where it was and repeats nothing. One process at a time can be at a stage.
type store struct {
	Dir      string
	Cases    []lens.Case              // those evaluated, of the data
	accepted func(stage string) error // called when a stage has begun, before it asks anything; may be nil
}

// openStore creates the folder, or continues with the one that is there.
func openStore(dir string, cases []lens.Case) (*store, error) {
	if len(cases) == 0 {
		return nil, errors.New("no cases: want one or more")
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("run folder %s cannot be made: %w", dir, cause(err))
	}
	return &store{Dir: dir, Cases: cases}, nil
}

func (r *store) path(name string) string { return filepath.Join(r.Dir, name) }

// start says that a stage has begun.
func (r *store) start(stage string) error {
	if r.accepted == nil {
		return nil
	}
	return r.accepted(stage)
}

// progress says how far a stage is.
type progress struct {
	Done, Total       int // cases
	Calls, TotalCalls int // questions to the model or judge; those of earlier calls of the stage count
	Leaks             int // leaking cases so far
	Unparsed          int // verdicts not in the form asked for
}

// counter reports progress, one call at a time.
type counter struct {
	mu   sync.Mutex
	now  progress
	tick func(progress)
}

// step changes the count and reports it.
func (c *counter) step(change func(p *progress)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.now)
	if c.tick != nil {
		c.tick(c.now)
	}
}

// withActions are the cases that have a recorded action.
func withActions(cases []lens.Case, actions map[string]string) []lens.Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c lens.Case) bool { _, ok := actions[c.Name]; return !ok })
}

// beginActions is begin for actions. They are refused after the verdicts of a replay without actions.
func (r *store) beginActions(settings map[string]string) (*journal[ActionRow], []ActionRow, error) {
	verdicts, err := readRows[verdictRow](r.path(verdictsName))
	if err != nil {
		return nil, nil, err
	}
	if pending, err := r.pending(); err != nil || len(verdicts) > 0 && pending == len(r.Cases) {
		return nil, nil, cmp.Or(err, fmt.Errorf("%s: this folder has verdicts but not the actions they judge: use "+
			"another --out DIR", r.Dir))
	}
	return begin(r, StageActions, actionsName, settings, every[ActionRow])
}

// Import notes recorded actions, by name, in place of the stage actions. Every case must have one: see withActions.
func (r *store) Import(actions map[string]string, settings map[string]string) error {
	has := func(c *lens.Case) bool { _, ok := actions[c.Name]; return ok }
	if err := lacking("recorded actions", "action", r.Cases, has); err != nil {
		return err
	}
	j, rows, err := r.beginActions(settings)
	if err != nil {
		return err
	}
	done := map[string]string{}
	for _, row := range rows {
		done[row.Name] = row.FinalAction
	}
	for i := range r.Cases {
		name := r.Cases[i].Name
		before, there := done[name]
		if there && before != actions[name] {
			return errors.Join(fmt.Errorf("%s: %s has another action than the one recorded: name another --out DIR",
				r.path(actionsName), name), j.close())
		}
		if !there {
			if err := j.add(ActionRow{Name: name, FinalAction: actions[name]}); err != nil {
				return errors.Join(err, j.close())
			}
		}
	}
	return j.close()
}

// Report joins what the stages have found, counts it, and writes the summary, the cases, as lines and as a page, and
// the verdicts and actions in the benchmark's own forms. Anything missing is an error.
func (r *store) Report() (Summary, []CaseResult, error) {
	summary, results, err := r.read()
	if err != nil {
		return summary, nil, err
	}
	verdicts, scores := verdictsOf(results)
	actions := map[string]string{}
	for _, c := range results {
		if c.Recorded {
			actions[c.Name] = c.FinalAction
		}
	}
	for _, write := range []func() error{
		func() error {
			return data.WriteLines(r.path(CasesName), len(results), func(i int) any { return results[i] })
		},
		func() error { return lens.WriteVerdicts(r.path(verdictsFile), r.Cases, verdicts) },
		func() error {
			return r.optional(helpfulnessFile, len(scores),
				func(path string) error { return lens.WriteScores(path, r.Cases, scores) })
		},
		func() error {
			return r.optional(actionsFile, len(actions),
				func(path string) error { return lens.WriteActions(path, r.Cases, actions) })
		},
		func() error { return writePage(r.path(PageName), r.title(), r.Cases, summary, results) },
		func() error { return data.WriteJSON(r.path(SummaryName), summary) },
	} {
		if err := write(); err != nil {
			return summary, nil, err
		}
	}
	return summary, results, nil
}

// title names the run's page by its folder.
func (r *store) title() string {
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		dir = r.Dir
	}
	return "PrivacyLens: " + filepath.Base(dir)
}

// optional writes a file where there is something for it, and removes an older one where there is nothing.
func (r *store) optional(name string, n int, write func(path string) error) error {
	if n > 0 {
		return write(r.path(name))
	}
	if err := os.Remove(r.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// found is what is in a run's folder.
type found struct {
	settings Settings
	actions  []ActionRow
	verdicts []verdictRow
	probes   []probeRow
}

// judged says that there is more than probes.
func (f *found) judged() bool { return len(f.actions)+len(f.verdicts) > 0 }

// find reads what the stages have left.
func (r *store) find() (f found, err error) {
	if f.settings, err = readSettings(r.Dir); err != nil {
		return f, err
	}
	if f.actions, err = readRows[ActionRow](r.path(actionsName)); err != nil {
		return f, err
	}
	if f.verdicts, err = readRows[verdictRow](r.path(verdictsName)); err != nil {
		return f, err
	}
	if f.probes, err = readRows[probeRow](r.path(probesName)); err != nil {
		return f, err
	}
	if _, _, err = index(f.actions, f.verdicts); err != nil {
		return f, fmt.Errorf("%s: %w", r.Dir, err)
	}
	return f, nil
}

// allOnTheseCases wants every stage that is counted to have been run on the cases of the run.
func (r *store) allOnTheseCases(f *found) error {
	for _, stage := range []struct {
		name    string
		counted bool
	}{{StageActions, len(f.actions) > 0}, {StageJudge, len(f.verdicts) > 0},
		{StageProbe, len(f.probes) > 0 && !f.judged()}} {
		if err := r.sameCases(f.settings, stage.name); err != nil && stage.counted {
			return err
		}
	}
	return nil
}

// read joins and counts what is in the folder.
func (r *store) read() (summary Summary, out []CaseResult, err error) {
	f, err := r.find()
	if err == nil {
		err = r.allOnTheseCases(&f)
	}
	if err != nil {
		return summary, nil, err
	}
	if f.judged() || len(f.probes) == 0 {
		if out, err = results(r.Cases, f.actions, f.verdicts); err != nil {
			return summary, nil, fmt.Errorf("%s: %w", r.Dir, err)
		}
	}
	summary = summarize(out)
	summary.Probing, summary.Settings = probed(f.probes), f.settings
	summary.Warnings = append(summary.Warnings, slices.Concat(aboutActions(f.settings), aboutJudge(f.settings),
		aboutProbes(f.probes))...)
	return summary, out, nil
}

// readResults reads the cases of a run that was reported, for comparison.
func readResults(dir string) ([]CaseResult, error) {
	path := filepath.Join(dir, CasesName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such file: want a run that was reported (posttrain eval privacylens report "+
			"--out %s)", path, dir)
	}
	var out []CaseResult
	err := data.ReadLines(path, func(line int, r CaseResult) error {
		if r.Name == "" || len(r.Items) == 0 {
			return fmt.Errorf("%s:%d: name or items are missing: want a case as the stage report writes it", path, line)
		}
		out = append(out, r)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: no cases: want a run that was judged, not only probed", path)
	}
	return out, err
}

// stopped is the error of a stage: that of an ended context, its own, or that of closing its journal.
func stopped(ctx context.Context, err, closing error) error {
	return cmp.Or(context.Cause(ctx), err, closing)
}
