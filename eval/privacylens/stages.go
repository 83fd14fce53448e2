package privacylens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/journal"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/run"
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
	held     func() error             // returns an error if the folder is no longer this run's; may be nil
}

// openStore creates the folder, or continues with the one that is there.
func openStore(dir string, cases []lens.Case) (*store, error) {
	if len(cases) == 0 {
		return nil, errors.New("no cases: want one or more")
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("run folder %s cannot be made: %w", dir, run.Cause(err))
	}
	return &store{Dir: dir, Cases: cases}, nil
}

func (r *store) path(name string) string { return filepath.Join(r.Dir, name) }

// progress says how far a stage is.
type progress struct {
	Done, Total       int // cases
	Calls, TotalCalls int // questions to the model or judge; those of earlier calls of the stage count
	Leaks             int // leaking cases so far
	Unparsed          int // verdicts not in the form asked for
}

// stage is a stage under way.
type stage[R any] struct {
	*journal.Journal[R]
	store *store
	name  string
	rows  []R // of earlier calls

	mu   sync.Mutex
	now  progress
	tick func(progress) // one call at a time; may be nil
}

// run does what is left to do, and closes the journal. The error of an ended context comes first.
func (s *stage[R]) run(ctx context.Context, work func() error) (err error) {
	if s.store.accepted != nil {
		err = s.store.accepted(s.name)
	}
	if err == nil {
		s.step(func(*progress) {})
		err = work()
	}
	return cmp.Or(context.Cause(ctx), err, s.Close())
}

// step changes the progress and reports it.
func (s *stage[R]) step(change func(p *progress)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.now)
	if s.tick != nil {
		s.tick(s.now)
	}
}

// note adds a row, and changes the progress.
func (s *stage[R]) note(row R, change func(p *progress)) error {
	if s.store.held != nil {
		if err := s.store.held(); err != nil {
			return err
		}
	}
	if err := s.Add(row); err != nil {
		return err
	}
	s.step(change)
	return nil
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
func (r *store) beginActions(settings map[string]string, tick func(progress)) (*stage[ActionRow], error) {
	verdicts, err := journal.Read[verdictRow](r.path(verdictsName))
	if err != nil {
		return nil, err
	}
	if pending, err := r.pending(); err != nil || len(verdicts) > 0 && pending == len(r.Cases) {
		return nil, cmp.Or(err, fmt.Errorf("%s: this folder has verdicts but not the actions they judge: use "+
			"another --out DIR", r.Dir))
	}
	return begin[ActionRow](r, StageActions, actionsName, settings, tick, nil)
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
	for _, row := range s.rows {
		if action, ok := actions[row.Name]; ok && row.FinalAction != action {
			err = fmt.Errorf("%s: %s has another action than the one recorded: name another --out DIR",
				r.path(actionsName), row.Name)
			return errors.Join(err, s.Close())
		}
	}
	for _, c := range r.casesWithout(s.rows) {
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
		data.WriteLines(r.path(CasesName), len(results), func(i int) any { return results[i] }),
		lens.WriteVerdicts(r.path(verdictsFile), r.Cases, verdicts),
		writeOptional(r, helpfulnessFile, scores, lens.WriteScores),
		writeOptional(r, actionsFile, actions, lens.WriteActions),
		writePage(r.path(PageName), "PrivacyLens: "+filepath.Base(wholePath(r.Dir)), r.Cases, summary, results),
	)
	if err == nil {
		err = data.WriteJSON(r.path(SummaryName), summary)
	}
	return summary, results, err
}

// writeOptional writes a file where there is something for it, and removes an older one where there is nothing.
func writeOptional[V any](r *store, name string, of map[string]V,
	write func(string, []lens.Case, map[string]V) error) error {
	if len(of) > 0 {
		return write(r.path(name), r.Cases, of)
	}
	if err := os.Remove(r.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read joins and counts what the stages have left in the folder.
func (r *store) read() (summary Summary, out []CaseResult, err error) {
	settings, err := readSettings(r.Dir)
	actions, actionsErr := journal.Read[ActionRow](r.path(actionsName))
	verdicts, verdictsErr := journal.Read[verdictRow](r.path(verdictsName))
	probes, probesErr := journal.Read[probeRow](r.path(probesName))
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
		if err := r.sameCases(settings, stage); err != nil && counted[stage] {
			return summary, nil, err
		}
	}
	if judged || len(probes) == 0 {
		if out, err = results(r.Cases, byName, verdictOf); err != nil {
			return summary, nil, fmt.Errorf("%s: %w", r.Dir, err)
		}
	}
	summary = summarize(out)
	summary.Probing, summary.Settings = countProbes(probes), settings
	summary.warnOfSettings()
	summary.warnOfProbes(probes)
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

// inParallel does n pieces of work, a number of them at a time, started in order. The first error or the end of the
// context stops it; it waits for the work under way. The error of an ended context is its cause.
func inParallel(ctx context.Context, parallel, n int, work func(ctx context.Context, i int) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var begun atomic.Int64
	var wg sync.WaitGroup
	for range min(max(parallel, 1), n) {
		wg.Go(func() {
			for inner.Err() == nil {
				i := int(begun.Add(1)) - 1
				if i >= n {
					return
				}
				if err := work(inner, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return cmp.Or(context.Cause(ctx), context.Cause(inner))
}

// asking is how a stage puts its rows to the model under test.
type asking struct {
	Chat     rollout.Chat
	Seed     uint64
	Parallel int                                      // calls of Chat under way; 0: 1
	Batch    int                                      // conversations a call; 0: 1
	Fits     func(rollout.Conversation) (bool, error) // nil: every prompt fits
	Settings map[string]string                        // what a later call must agree with
	Tick     func(progress)                           // one call at a time
}

// ask puts every row to the model in the words of talk, and notes it with its answer; nil: its prompt does not fit.
func ask[R any](ctx context.Context, a asking, rows []R, talk func(R) (rollout.Conversation, error),
	note func(R, rollout.Conversation, *rollout.Answer) error) error {
	batches := slices.Collect(slices.Chunk(rows, max(a.Batch, 1)))
	return inParallel(ctx, a.Parallel, len(batches), func(ctx context.Context, i int) error {
		var asked []R
		var talks []rollout.Conversation
		for _, row := range batches[i] {
			c, err := talk(row)
			fits := true
			if err == nil && a.Fits != nil {
				fits, err = a.Fits(c)
			}
			switch {
			case err != nil:
			case fits:
				asked, talks = append(asked, row), append(talks, c)
			default:
				err = note(row, c, nil)
			}
			if err != nil {
				return err
			}
		}
		if len(asked) == 0 {
			return nil
		}
		answers, err := a.Chat.Answer(ctx, talks)
		for i := 0; i < len(asked) && err == nil; i++ {
			err = note(asked[i], talks[i], &answers[i][0])
		}
		return err
	})
}
