package bench

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/run"
)

// Place says where an evaluation keeps its files, and what is run.
type Place struct {
	Dir    string // run folder, a new one or that of a run to continue; "": a new one in runs
	Stages []string
}

// Continues reports whether the folder is that of an earlier run.
func (p Place) Continues() bool {
	if p.Dir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(p.Dir, "config.yaml"))
	return err == nil
}

// Runs reports whether a stage is run.
func (p Place) Runs(stage string) bool { return slices.Contains(p.Stages, stage) }

// Evaluation is a call of the command under way: its folder, and what the user sees.
type Evaluation struct {
	Place
	Continuing bool // the run continues
	Reporter   run.Reporter
	Folder     *run.Folder // nil until open
	Stage      string      // the last one that was begun; "": no stage was
	Cases      int         // evaluated
	Reported   bool        // there is a result

	bar run.Bar // of the stage under way, from its first tick on
}

// Open creates the run folder, or opens the one of the run that continues. names are the files that are written whole;
// save writes config.yaml of a new run.
func (e *Evaluation) Open(kind string, names []string, save func() error) (err error) {
	if e.Continuing {
		e.Folder, err = run.Open(e.Dir)
	} else {
		e.Folder, err = run.Create(e.Dir, kind)
	}
	if err != nil {
		return err
	}
	e.Dir = e.Folder.Dir
	if err = e.Folder.Own(names...); err == nil && !e.Continuing {
		err = save()
	}
	return err
}

// Do runs a stage, if it is one of those to run and err is nil.
func (e *Evaluation) Do(ctx context.Context, err error, name string, stage func(context.Context) error) error {
	if err != nil || !e.Runs(name) {
		return err
	}
	e.Stage = name
	if err = context.Cause(ctx); err == nil {
		err = stage(ctx)
	}
	e.CloseBar()
	return err
}

// Progress shows how far a stage is, from its first tick on, which knows how many cases there are.
func (e *Evaluation) Progress(unit string, values func(Progress) map[string]float64) (tick func(Progress)) {
	return func(p Progress) {
		if e.bar == nil {
			e.bar = e.Reporter.Progress(unit, 0, p.Total)
		}
		e.bar.Step(p.Done, values(p))
	}
}

// CloseBar ends the bar of the stage under way.
func (e *Evaluation) CloseBar() {
	if e.bar != nil {
		e.bar.Close()
		e.bar = nil
	}
}

// folderName begins the name of a run folder that the user does not name.
func folderName(command string) string {
	return strings.ReplaceAll(strings.TrimPrefix(command, "eval "), " ", "-")
}
