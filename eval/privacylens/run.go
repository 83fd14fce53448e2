package privacylens

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/journal"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
)

// Result is what an evaluation has found. After an error it says how far it came.
type Result struct {
	Dir     string       // run folder
	Stage   string       // the last one that was begun; "": none
	Cases   int          // evaluated
	Summary Summary      // of the stage report
	Results []CaseResult // of the stage report; none where the model was only probed
}

// evaluation is a call of [Run].
type evaluation struct {
	Options
	bench.Evaluation
	result Result

	prompts  *sources
	all      []lens.Case       // of the data
	cases    []lens.Case       // those evaluated
	recorded map[string]string // actions by name; nil: none
	leftOut  string            // how many cases have no recorded action; "": all have one
	store    *store

	subject *bench.Subject // nil: no model is asked for actions or probed
	actions actionOptions  // of the subject

	judging      judgeOptions    // the Judge of a model: from the opening of the client on
	judgePrompts judgePrompter   // of a model; nil: no model judges
	probePrompts probePrompter   // of the subject
	client       *metered.Client // of a model; open while it is needed
}

// Run reads everything that can be wrong, creates the run folder or continues with it, and runs the stages.
func Run(ctx context.Context, o Options, place bench.Place, r run.Reporter) (Result, error) {
	if len(place.Stages) == 0 {
		place.Stages = []string{StageActions, StageJudge, StageReport}
	}
	for _, stage := range []string{StageActions, StageProbe} {
		if place.Runs(stage) {
			if err := o.Agent.Pin(place.Dir, stage); err != nil {
				return Result{}, err
			}
			o.Agent.ChooseBackend(run.Listen(r))
		}
	}
	e := &evaluation{Options: o, Evaluation: bench.Evaluation{Place: place, Continuing: place.Continues(),
		Reporter: run.Listen(r)}}
	defer e.close()
	err := e.prepare()
	err = e.Do(ctx, err, StageActions, e.runActions)
	err = e.Do(ctx, err, StageJudge, e.runJudge)
	err = e.Do(ctx, err, StageProbe, e.runProbe)
	err = e.Do(ctx, err, StageReport, e.runReport)
	e.result.Stage = e.Stage
	return e.result, err
}

// prepare finds what is wrong before anything is written or takes long.
func (e *evaluation) prepare() error {
	for _, step := range []func() error{e.checkKeys, e.read, e.prepareActions, e.prepareProbe, e.prepareJudge, e.open} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// read reads cases, prompts and recorded actions.
func (e *evaluation) read() (err error) {
	var report *data.Report
	if e.all, report, err = ReadCases(e.Data.Cases); err != nil {
		return err
	}
	e.Reporter.Say("%s", report)
	e.cases = e.all
	if n := e.Data.First; n > 0 {
		e.cases = e.all[:min(n, len(e.all))]
	}
	if e.prompts, err = readSources(&e.Options); err != nil {
		return err
	}
	if e.Agent.Actions == "" {
		return nil
	}
	if e.Continuing && !e.NewRecorded && !e.Runs(StageActions) {
		e.cases, err = casesWithActions(e.Dir, e.cases)
		return err
	}
	return e.readActions()
}

// mainData is the file of the released cases.
const mainData = "main_data.json"

// casesPath is the file of cases that a path names, itself or in the folder.
func casesPath(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Join(path, mainData)
	}
	return path
}

// ReadCases reads cases from a file, the embedded ones, or the folder in which PrivacyLens has them.
func ReadCases(path string) ([]lens.Case, *data.Report, error) {
	if path == embedded.Name {
		return lens.ReadFS(embedded.Files, embedded.PrivacyLensCases)
	}
	path = casesPath(path)
	if _, err := os.Stat(path); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: want a file of cases, or the folder with PrivacyLens's %s",
			path, run.Cause(err), mainData)
	}
	return lens.Read(path)
}

// readNamed reads a file that names cases, or the embedded one.
func readNamed[T any](read func(fs.FS, string, []lens.Case) (T, error), path, inside string, cases []lens.Case) (T,
	error) {
	if path == embedded.Name {
		return read(embedded.Files, inside, cases)
	}
	return read(nil, path, cases)
}

// readActions reads recorded actions, and leaves out the cases that have none.
func (e *evaluation) readActions() (err error) {
	path := e.Agent.Actions
	if e.recorded, err = readNamed(lens.ReadActionsFS, path, embedded.PrivacyLensActions, e.all); err != nil {
		return err
	}
	wanted := len(e.cases)
	if e.cases = withActions(e.cases, e.recorded); len(e.cases) == 0 {
		return fmt.Errorf("%s: no actions for the first %d cases", path, wanted)
	}
	if left := wanted - len(e.cases); left > 0 {
		e.leftOut = fmt.Sprintf("%d of %d", left, wanted)
		e.Reporter.Warn("%s cases have no recorded action: they are left out", e.leftOut)
	}
	return nil
}

// open creates the run folder, or opens the one of the run that continues.
func (e *evaluation) open() (err error) {
	err = e.Open("privacylens", fileNames, e.saveConfig)
	if e.Folder != nil {
		e.result.Dir, e.result.Cases = e.Folder.Dir, len(e.cases)
	}
	if err != nil {
		return err
	}
	if e.store, err = openStore(e.Folder.Dir, e.cases); err == nil {
		e.store.Accepted, e.store.Held = e.saveIfAccepted, e.Folder.Held
	}
	return err
}

func (e *evaluation) close() {
	e.subject.Close()
	e.closeJudge() // before the folder, which has its cache
	if e.Folder != nil {
		e.Folder.Close()
	}
}

// saveConfig writes what is in force, with paths from the root: later calls on the folder may come from elsewhere.
func (e *evaluation) saveConfig() error {
	o := e.Options
	a, j := &o.Agent, &o.Judge
	if o.Prompts != Released {
		o.Prompts = bench.WholePath(o.Prompts)
	}
	a.Whole()
	for _, path := range []*string{&o.Data.Cases, &a.Actions, &a.Recorded, &j.Cache, &j.Recorded, &j.Verdicts,
		&j.Helpfulness} {
		*path = bench.WholePath(*path)
	}
	return e.Folder.WriteConfig(o.Resolved())
}

// saveIfAccepted saves config.yaml once a stage has begun with it. Two exceptions: actions that run before the judge
// (the judge may still be rejected), and probes in a run that already has actions (their agent may differ).
func (e *evaluation) saveIfAccepted(stage string) error {
	switch stage {
	case StageActions:
		if e.Runs(StageJudge) {
			return nil
		}
	case StageProbe:
		if pending, err := e.store.pending(); err != nil || pending < len(e.cases) {
			return err
		}
	}
	return e.saveConfig()
}

func (e *evaluation) runActions(ctx context.Context) error {
	if e.subject == nil { // recorded actions, or a replay without any
		if err := e.importActions(); err != nil {
			return err
		}
		return e.saveIfAccepted(StageActions)
	}
	if err := e.tryJudge(ctx); err != nil {
		return err
	}
	pending, err := e.store.pending()
	if err == nil {
		err = e.subject.Weigh(e.store.Store, StageActions, e.actions.Settings, pending > 0)
	}
	if err != nil {
		return err
	}
	e.actions.Tick = e.Progress("action", e.subject.Values)
	return e.store.Actions(ctx, e.actions)
}

// importActions puts recorded actions into the run folder.
func (e *evaluation) importActions() error {
	if e.recorded == nil {
		return nil
	}
	settings, err := e.importSettings()
	if err != nil {
		return err
	}
	return e.store.Import(e.recorded, settings)
}

func (e *evaluation) runJudge(ctx context.Context) error {
	if err := e.importActions(); err != nil {
		return err
	}
	if err := e.openJudge(); err != nil {
		return err
	}
	o := e.judging
	o.Tick = e.Progress("case", e.judgeProgress)
	if e.client != nil {
		o.AllowUnparsed = e.Judge.AllowUnparsed
		o.Parallel = 2 * e.Judge.Parallel // the client sends half as many: the others wait for a slow disk
	}
	err := e.store.Judge(ctx, o)
	e.CloseBar() // before the usage is printed
	return cmp.Or(err, e.closeJudge())
}

func (e *evaluation) runProbe(ctx context.Context) error {
	settings, err := e.probeSettings()
	if err != nil {
		return err
	}
	o := probeOptions{Asking: e.subject.Asking(e.Seed), Prompts: e.probePrompts, Levels: e.Probe.Levels,
		Reading: reading{Answers: e.Probe.Think, Keep: e.Agent.reading().Keep}, MaxNew: e.Probe.tokens()}
	if e.Probe.Think && e.Agent.canPrefill() {
		o.Prefill = ci.ThinkPrefill
	}
	rows, err := journal.Read[probeRow](e.store.Path(probesName))
	if err == nil {
		err = e.subject.Weigh(e.store.Store, StageProbe, settings, len(rows) < len(o.questions(e.cases)))
	}
	if err != nil {
		return err
	}
	o.Settings, o.Tick = settings, e.Progress("probe", e.subject.Values)
	return e.store.Probe(ctx, o)
}

func (e *evaluation) runReport(context.Context) (err error) {
	e.result.Summary, e.result.Results, err = e.store.Report()
	return err
}
