package privacylens

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	verdictsName    = "verdicts.jsonl"   // VerdictRow, as they come
	probesName      = "probes.jsonl"     // ProbeRow, as they come
	SummaryName     = "summary.json"     // Summary
	CasesName       = "cases.jsonl"      // CaseResult, in the order of the data
	VerdictsName    = "verdicts.json"    // in the benchmark's own form
	HelpfulnessName = "helpfulness.json" // the same
	ActionsName     = "actions.csv"      // the same
	PageName        = "cases.html"       // to look through the cases
	UsageName       = "usage.json"       // what all calls of the command have asked the judge for, by the judge's name
)

// FileNames are the files that are written whole, under a temporary name first; the journals grow line by line.
var FileNames = []string{settingsName, SummaryName, CasesName, VerdictsName, HelpfulnessName, ActionsName, PageName, UsageName}

// The stages, as Settings name them.
const (
	StageActions = "actions"
	StageJudge   = "judge"
	StageProbe   = "probe"
	StageReport  = "report"
)

// Settings say by stage what it was run with. A stage goes on with what it finds only if its settings are the same.
type Settings map[string]map[string]string

// What reports read in settings: the judge's "kind", and of actions how many cases were left out.
const (
	KindModel   = "model"
	KindKeyword = "keyword"
	KindReplay  = "replay"
	LeftOut     = "left_out"
)

// Run is a folder in which an evaluation grows. Every stage can be stopped at any time, by the context or by force, and goes
// on where it was when it is called again; what is done is not done again. One process at a time can be at a stage.
type Run struct {
	Dir   string
	Cases []lens.Case // those evaluated, of the data
}

// OpenRun makes the folder of a run, or goes on with one that is there.
func OpenRun(dir string, cases []lens.Case) (*Run, error) {
	if len(cases) == 0 {
		return nil, errors.New("no cases: want one or more")
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("run folder %s cannot be made: %w", dir, cause(err))
	}
	return &Run{dir, cases}, nil
}

func (r *Run) path(name string) string { return filepath.Join(r.Dir, name) }

// Progress tells how far a stage is.
type Progress struct {
	Done, Total       int // cases
	Calls, TotalCalls int // questions to the model or judge; those of earlier calls of the stage count
	Leaks             int // leaking cases so far
	Unparsed          int // verdicts not in the form asked for
}

// namesCases names the cases of the run by all that they hold.
func (r *Run) namesCases() string { return fmt.Sprintf("%d, sha256 %s", len(r.Cases), hashOf(r.Cases)) }

// sameCases wants a stage to have been run on the cases that are counted now.
func (r *Run) sameCases(settings Settings, stage string) error {
	before, ok := settings[stage]
	if now := r.namesCases(); ok && before["cases"] != now {
		return fmt.Errorf("%s: stage %s was run on other cases (%s, now %s): want the same data, whole or the same part", r.Dir, stage, before["cases"], now)
	}
	return nil
}

// begin opens the journal of a stage, and settles what it is run with.
func begin[T any](r *Run, stage, name string, settings map[string]string, counts func(*T) bool) (*journal[T], []T, error) {
	j, rows, err := openJournal[T](r.path(name))
	if err != nil {
		return nil, nil, err
	}
	if rows, err = settle(r, stage, settings, j, rows, counts); err != nil {
		return nil, nil, errors.Join(err, j.close())
	}
	return j, rows, nil
}

// settle notes a stage's settings, the names and contents of the cases among them. Rows that count bind the stage to the settings
// that they came of. Where none does, the settings may change, a mistyped address or a judge that never gives a verdict, say, and
// such rows make room. It returns the rows that stay.
func settle[T any](r *Run, stage string, settings map[string]string, j *journal[T], rows []T, counts func(*T) bool) ([]T, error) {
	all, err := r.settings()
	if err != nil {
		return nil, err
	}
	now := map[string]string{"cases": r.namesCases()}
	maps.Copy(now, settings)
	before, known := all[stage]
	if !known && len(rows) > 0 {
		return nil, fmt.Errorf("%s: it does not say what stage %s was begun with: put it back, or name another --out DIR", r.path(settingsName), stage)
	}
	if len(rows) > 0 && !maps.Equal(before, now) {
		if slices.ContainsFunc(rows, func(row T) bool { return counts(&row) }) {
			return nil, differing(r.Dir, stage, before, now)
		}
		if err := j.clear(); err != nil {
			return nil, err
		}
		rows = nil
	}
	all[stage] = now
	return rows, data.WriteJSON(r.path(settingsName), all)
}

// every row counts.
func every[T any](*T) bool { return true }

func (r *Run) settings() (Settings, error) {
	all := Settings{}
	text, err := os.ReadFile(r.path(settingsName))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		if err = json.Unmarshal(text, &all); err != nil {
			return nil, fmt.Errorf("%s: damaged: want {stage: {name: text}}, as the stages write it; put it back, or name another --out DIR", r.path(settingsName))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.path(settingsName), cause(err))
	}
	if all == nil { // the file says null
		all = Settings{}
	}
	return all, nil
}

// differing names the first setting that has changed: the kind, if that has.
func differing(dir, stage string, before, now map[string]string) error {
	both := maps.Clone(before)
	maps.Copy(both, now)
	then := "go on with the same, or name another --out DIR"
	if stage == StageJudge {
		then += fmt.Sprintf(" (with --actions %s it judges the same actions)", filepath.Join(dir, actionsName))
	}
	for _, name := range append([]string{"kind"}, slices.Sorted(maps.Keys(both))...) {
		if before[name] != now[name] {
			return fmt.Errorf("%s: stage %s was begun with %s %q, now it is %q: %s", dir, stage, name, before[name], now[name], then)
		}
	}
	return nil
}

// hashOf names cases by all that they hold.
func hashOf(cases []lens.Case) string {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for i := range cases {
		enc.Encode(&cases[i])
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// counter tells of progress, one call at a time.
type counter struct {
	mu   sync.Mutex
	now  Progress
	tick func(Progress)
}

// step changes the count and tells of it.
func (c *counter) step(change func(p *Progress)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.now)
	if c.tick != nil {
		c.tick(c.now)
	}
}

// WithActions are the cases that have a recorded action: what a run of part of the data goes on with.
func WithActions(cases []lens.Case, actions map[string]string) []lens.Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c lens.Case) bool { _, ok := actions[c.Name]; return !ok })
}

// beginActions is begin for actions, which are not to come after verdicts, as those of a replay without actions are.
func (r *Run) beginActions(settings map[string]string) (*journal[ActionRow], []ActionRow, error) {
	verdicts, err := readRows[VerdictRow](r.path(verdictsName))
	if err != nil {
		return nil, nil, err
	}
	if pending, err := r.Pending(); err != nil || len(verdicts) > 0 && pending == len(r.Cases) {
		return nil, nil, cmp.Or(err, fmt.Errorf("%s: there are verdicts already, on actions that are not there: name another --out DIR", r.Dir))
	}
	return begin(r, StageActions, actionsName, settings, every[ActionRow])
}

// Import notes recorded actions, by name, in place of the stage actions. Every case must have one: see WithActions.
func (r *Run) Import(actions map[string]string, settings map[string]string) error {
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
			return errors.Join(fmt.Errorf("%s: %s has another action than the one recorded: name another --out DIR", r.path(actionsName), name), j.close())
		}
		if !there {
			if err := j.add(ActionRow{Name: name, FinalAction: actions[name]}); err != nil {
				return errors.Join(err, j.close())
			}
		}
	}
	return j.close()
}

// Report joins what the stages have found, counts it, and writes the summary, the cases, as lines and as a page, and the
// verdicts and actions in the benchmark's own forms. It is an error that something is missing yet.
func (r *Run) Report() (Summary, []CaseResult, error) {
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
		func() error { return lens.WriteVerdicts(r.path(VerdictsName), r.Cases, verdicts) },
		func() error {
			return r.optional(HelpfulnessName, len(scores), func(path string) error { return lens.WriteScores(path, r.Cases, scores) })
		},
		func() error {
			return r.optional(ActionsName, len(actions), func(path string) error { return lens.WriteActions(path, r.Cases, actions) })
		},
		func() error { return WritePage(r.path(PageName), r.title(), r.Cases, summary, results) },
		func() error { return data.WriteJSON(r.path(SummaryName), summary) },
	} {
		if err := write(); err != nil {
			return summary, nil, err
		}
	}
	return summary, results, nil
}

// title names the run's page by its folder.
func (r *Run) title() string {
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		dir = r.Dir
	}
	return "PrivacyLens: " + filepath.Base(dir)
}

// optional writes a file where there is something for it, and removes an older one where there is nothing.
func (r *Run) optional(name string, n int, write func(path string) error) error {
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
	verdicts []VerdictRow
	probes   []ProbeRow
}

// judged says that there is more than probes.
func (f *found) judged() bool { return len(f.actions)+len(f.verdicts) > 0 }

// find reads what the stages have left.
func (r *Run) find() (f found, err error) {
	if f.settings, err = r.settings(); err != nil {
		return f, err
	}
	if f.actions, err = readRows[ActionRow](r.path(actionsName)); err != nil {
		return f, err
	}
	if f.verdicts, err = readRows[VerdictRow](r.path(verdictsName)); err != nil {
		return f, err
	}
	if f.probes, err = readRows[ProbeRow](r.path(probesName)); err != nil {
		return f, err
	}
	if _, _, err = index(f.actions, f.verdicts); err != nil {
		return f, fmt.Errorf("%s: %w", r.Dir, err)
	}
	return f, nil
}

// allOnTheseCases wants every stage that is counted to have been run on the cases of the run.
func (r *Run) allOnTheseCases(f *found) error {
	for _, stage := range []struct {
		name    string
		counted bool
	}{{StageActions, len(f.actions) > 0}, {StageJudge, len(f.verdicts) > 0}, {StageProbe, len(f.probes) > 0 && !f.judged()}} {
		if err := r.sameCases(f.settings, stage.name); err != nil && stage.counted {
			return err
		}
	}
	return nil
}

// read joins and counts what is in the folder.
func (r *Run) read() (summary Summary, out []CaseResult, err error) {
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
	summary = Summarize(out)
	summary.Probing, summary.Settings = probed(f.probes), f.settings
	summary.Warnings = append(summary.Warnings, slices.Concat(aboutActions(f.settings), aboutJudge(f.settings), aboutProbes(f.probes))...)
	return summary, out, nil
}

// ReadResults reads the cases of a run that was reported, for comparison.
func ReadResults(dir string) ([]CaseResult, error) {
	path := filepath.Join(dir, CasesName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such file: want a run that was reported (posttrain eval privacylens report --out %s)", path, dir)
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

// stopped is the error of a stage: its own, with that of closing its journal.
func stopped(ctx context.Context, err error, closing error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return closing
}
