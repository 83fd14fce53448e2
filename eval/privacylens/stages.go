package privacylens

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/journal"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/bench"
)

// The files of a run's folder.
const (
	actionsName     = "actions.jsonl"    // ActionRow, as they come
	verdictsName    = "verdicts.jsonl"   // verdictRow, as they come
	probesName      = "probes.jsonl"     // probeRow, as they come
	SummaryName     = "summary.json"     // Summary
	CasesName       = "cases.jsonl"      // CaseResult, in the order of the data
	verdictsFile    = "verdicts.json"    // in the benchmark's own form
	helpfulnessFile = "helpfulness.json" // the same
	actionsFile     = "actions.csv"      // the same
	PageName        = "cases.html"       // to look through the cases
)

// fileNames are the files that are written whole, under a temporary name first; the journals grow line by line.
var fileNames = []string{bench.SettingsName, SummaryName, CasesName, verdictsFile, helpfulnessFile, actionsFile,
	PageName, bench.UsageName}

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

// store is the folder of an evaluation with its cases.
type store struct {
	*bench.Store
	Cases []lens.Case // those evaluated, of the data
}

// openStore creates the folder, or continues with the one that is there.
func openStore(dir string, cases []lens.Case) (*store, error) {
	if len(cases) == 0 {
		return nil, errors.New("no cases: want one or more")
	}
	s, err := bench.OpenStore(dir, bench.HashCases(cases))
	if err != nil {
		return nil, err
	}
	s.Hints = map[string]string{StageJudge: fmt.Sprintf(" (with --actions %s it judges the same actions)",
		s.Path(actionsName))}
	return &store{s, cases}, nil
}

// in says whether a case is among those that a map has by name.
func in[V any](all map[string]V) func(c *lens.Case) bool {
	return func(c *lens.Case) bool { _, ok := all[c.Name]; return ok }
}

// withActions are the cases that have a recorded action.
func withActions(cases []lens.Case, actions map[string]string) []lens.Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c lens.Case) bool { return !in(actions)(&c) })
}

// beginActions is begin for actions. They are refused after the verdicts of a replay without actions.
func (r *store) beginActions(settings map[string]string, tick func(bench.Progress)) (*bench.Stage[ActionRow], error) {
	verdicts, err := journal.Read[verdictRow](r.Path(verdictsName))
	if err != nil {
		return nil, err
	}
	if pending, err := r.pending(); err != nil || len(verdicts) > 0 && pending == len(r.Cases) {
		return nil, cmp.Or(err, fmt.Errorf("%s: this folder has verdicts but not the actions they judge: use "+
			"another --out DIR", r.Dir))
	}
	return bench.Begin[ActionRow](r.Store, StageActions, actionsName, settings, tick, nil)
}

// Import notes recorded actions, by name, in place of the stage actions. Every case must have one: see withActions.
func (r *store) Import(actions map[string]string, settings map[string]string) error {
	if err := lacking("recorded actions", "action", r.Cases, in(actions)); err != nil {
		return err
	}
	s, err := r.beginActions(settings, nil)
	if err != nil {
		return err
	}
	for _, row := range s.Rows {
		if action, ok := actions[row.Name]; ok && row.FinalAction != action {
			err = fmt.Errorf("%s: %s has another action than the one recorded: name another --out DIR",
				r.Path(actionsName), row.Name)
			return errors.Join(err, s.Close())
		}
	}
	for _, c := range r.casesWithout(s.Rows) {
		if err = s.Add(ActionRow{Name: c.Name, FinalAction: actions[c.Name]}); err != nil {
			break
		}
	}
	return errors.Join(err, s.Close())
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
	err = cmp.Or(
		data.WriteLines(r.Path(CasesName), len(results), func(i int) any { return results[i] }),
		lens.WriteVerdicts(r.Path(verdictsFile), r.Cases, verdicts),
		writeOptional(r, helpfulnessFile, scores, lens.WriteScores),
		writeOptional(r, actionsFile, actions, lens.WriteActions),
		writePage(r.Path(PageName), "PrivacyLens: "+filepath.Base(bench.WholePath(r.Dir)), r.Cases, summary, results),
	)
	if err == nil {
		err = data.WriteJSON(r.Path(SummaryName), summary)
	}
	return summary, results, err
}

// writeOptional writes a file where there is something for it, and removes an older one where there is nothing.
func writeOptional[V any](r *store, name string, of map[string]V,
	write func(string, []lens.Case, map[string]V) error) error {
	if len(of) > 0 {
		return write(r.Path(name), r.Cases, of)
	}
	if err := os.Remove(r.Path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read joins and counts what the stages have left in the folder.
func (r *store) read() (summary Summary, out []CaseResult, err error) {
	settings, err := bench.ReadSettings(r.Dir)
	actions, actionsErr := journal.Read[ActionRow](r.Path(actionsName))
	verdicts, verdictsErr := journal.Read[verdictRow](r.Path(verdictsName))
	probes, probesErr := journal.Read[probeRow](r.Path(probesName))
	if err := cmp.Or(err, actionsErr, verdictsErr, probesErr); err != nil {
		return summary, nil, err
	}
	byName, verdictOf, err := index(actions, verdicts)
	if err != nil {
		return summary, nil, fmt.Errorf("%s: %w", r.Dir, err)
	}
	judged := len(actions)+len(verdicts) > 0
	counted := map[string]bool{StageActions: len(actions) > 0, StageJudge: len(verdicts) > 0,
		StageProbe: len(probes) > 0 && !judged}
	for _, stage := range slices.Sorted(maps.Keys(counted)) {
		if err := r.SameCases(settings, stage); err != nil && counted[stage] {
			return summary, nil, err
		}
	}
	if judged || len(probes) == 0 {
		if out, err = results(r.Cases, byName, verdictOf); err != nil {
			return summary, nil, fmt.Errorf("%s: %w", r.Dir, err)
		}
	}
	summary = summarize(out)
	summary.Probing = countProbes(probes, settings[StageProbe]["format"] == formatThink)
	summary.Settings, summary.Judge = settings, settings[StageJudge]["model"]
	summary.warnOfSettings()
	summary.warnOfProbes(probes)
	summary.warnOfReplies(verdicts)
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
