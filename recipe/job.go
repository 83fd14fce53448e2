package recipe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/track"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/train"
)

// Place says which folder keeps a run.
type Place struct {
	Out    string // a folder to make; "": runs/<command>-<time>
	Resume string // the folder of a run to continue; excludes Out
}

// Setup is what a training job needs to know ahead of its data.
type Setup struct {
	Command  string // names the run folder
	Title    string // names the run in its summary and picture: MaPPO-DPO
	Backend  string
	Folder   string // of the model; embedded.Name: the embedded one
	Load     Loader // of the folder; nil: it is a language model's
	Adapting Adapting
	Chat     local.Chat
	Devices  Devices
	Train    train.Options
	Seed     uint64
	Tracking track.Options
	Resolved []byte // the configuration in force
	Place    Place
}

// Job is a training run: engine, model, run folder and learner.
type Job struct {
	Setup
	run.Reporter
	*World
	Run     *run.Folder
	Learner *train.Learner

	bar run.Bar // of the loop
}

// NewJob opens engine and model. Close the job.
func NewJob(s Setup, r run.Reporter) (*Job, error) {
	j := &Job{Setup: s, Reporter: run.Listen(r)}
	if err := j.Place.Check(j.Resolved); err != nil {
		return nil, err
	}
	var err error
	if s.Adapting.Quantized() && s.Devices.several() {
		return nil,
			fmt.Errorf("quantize %s: weights in few bits cannot be cut over devices yet: remove it or engine.devices",
				s.Adapting.Quantize)
	}
	if err := s.Tracking.Try(); err != nil {
		return nil, err
	}
	if j.World, err = OpenWorld(s.Load, s.Backend, s.Folder, s.Train, s.Devices); err != nil {
		return nil, err
	}
	if err := s.Chat.Apply(j.Tokenizer); err != nil {
		j.World.Close()
		return nil, err
	}
	ReportEngine(j.Engine, j)
	if advice := s.Adapting.advise(j.Engine); advice != "" {
		j.Warn("%s", advice)
	}
	if p := backend.Processes(); p != "" {
		j.Warn("%s: processes do not train together: each trains the whole model, in a run folder of its own", p)
	}
	adapted, err := s.Adapting.Adapt(j.Model, s.Folder, s.Seed)
	if err != nil {
		j.World.Close()
		return nil, err
	}
	j.Model = adapted
	for _, w := range j.Tokenizer.Warnings() {
		j.Warn("%s", w)
	}
	return j, nil
}

// Check looks at the run folder ahead of anything that takes long. A run continues with the configuration that it was
// started with.
func (p Place) Check(resolved []byte) error {
	dir := p.Resume
	if dir == "" {
		return run.CheckNew(p.Out)
	}
	stored, err := config.Open(filepath.Join(dir, "config.yaml"))
	if err != nil {
		return fmt.Errorf("%s: there is no run in it (no config.yaml)", dir)
	}
	if of, here := config.CommandOf(stored), config.CommandOf(resolved); of != "" && of != here {
		return fmt.Errorf("--resume %s: it is a run of posttrain %s: want one of posttrain %s", dir, of, here)
	}
	changed := config.Diff(identity(stored), identity(resolved))
	if len(changed) == 0 {
		return nil
	}
	return fmt.Errorf("--resume %s: the config has changed since the run was started (%s): resume without changing "+
		"it, "+
		"or start a new run with --out", dir, strings.Join(changed, "; "))
}

// PinChat notes what prompts depend on besides the rows, see [local.Chat.Pin]. A resumed run keeps what it noted at its
// start, also where the config is the user's, which says nothing of it.
func (p Place) PinChat(c *local.Chat, model string) error {
	if p.Resume == "" {
		return c.Pin(model)
	}
	stored, err := config.Open(filepath.Join(p.Resume, "config.yaml"))
	if err != nil {
		return nil // Check says so
	}
	noted, err := config.ValuesOf(stored)
	if err != nil {
		return fmt.Errorf("--resume %s: config.yaml: %w", p.Resume, err)
	}
	if c.Date == "" {
		c.Date = strings.Join(noted["chat.date"], "")
	}
	if c.SHA256 == "" && c.Template != "" {
		c.SHA256 = strings.Join(noted["chat.template_sha256"], "")
	}
	return nil
}

// Open makes the run folder, or opens the one to continue.
func (p Place) Open(command string, resolved []byte) (folder *run.Folder, err error) {
	if p.Resume != "" {
		return run.Open(p.Resume)
	}
	if folder, err = run.Create(p.Out, strings.ReplaceAll(command, " ", "-")); err != nil {
		return nil, err
	}
	return folder, folder.WriteConfig(resolved)
}

// identity is what a resumed run must have in common with the run that was started: its config without the keys that
// change no result, or its rounding alone. Runs from before these keys continue, too.
func identity(resolved []byte) []byte { return changeable.ReplaceAll(resolved, nil) }

var changeable = regexp.MustCompile(`(?m)^  checkpoint_minutes: .*\n|^(engine|tracking):\n(  .*\n)*`)

// Open puts the model into the engine, and makes the run folder or opens the one to continue.
func (j *Job) Open() (err error) {
	if j.Learner, err = train.NewLearner(j.Engine, j.Model, j.Graph); err != nil {
		return err
	}
	if j.Run, err = j.Place.Open(j.Command, j.Resolved); err != nil {
		return err
	}
	if err := j.Run.NoteInputs(); err != nil {
		return err
	}
	return j.Tracking.Watch(track.Subject{Folder: j.Run, Command: j.Command, Config: j.Resolved, Reporter: j.Reporter})
}

// Ready says how much memory training takes for every parameter, and closes the files of the weights: the engine has
// them. Call it when everything that reads the model has been made.
func (j *Job) Ready(reference int) {
	f := j.Learner.Footprint(j.Train.Rule())
	f.Reference = reference
	j.Say("%s", f)
	j.Model.Release()
	debug.FreeOSMemory()
}

// SayShapes says in which shapes batches are laid out, where the engine compiles a program for each.
func (j *Job) SayShapes(l interface{ DescribeShapes() string }) {
	if text := l.DescribeShapes(); text != "" {
		j.Say("%s", text)
	}
}

// Before loads the model as it was before training.
func (j *Job) Before() (*model.Model, error) {
	m, _, err := local.Load(j.Folder)
	if err != nil {
		return nil, err
	}
	return j.Adapting.Adapt(m, j.Folder, j.Seed)
}

// Close frees what the job holds.
func (j *Job) Close() {
	if j.Learner != nil {
		j.Learner.Close()
	}
	if j.Run != nil {
		j.Run.Close()
	}
	j.World.Close()
}

// Exporter writes model folders with the job's tokenizer.
func (j *Job) Exporter() train.Exporter {
	return train.Exporter{Model: j.Model, Tokenizer: j.Tokenizer}
}

// Trainer trains the job's model on what a source gives, in the run folder.
func (j *Job) Trainer(source train.Source) *train.Trainer {
	return &train.Trainer{
		Learner: j.Learner, Source: source, Options: j.Train, Seed: j.Seed, Folder: j.Run, Export: j.Exporter(),
		ConfigHash: run.HashConfig(identity(j.Resolved)),
		OnNotice:   func(line string) { j.bar.Notice(line) },
		OnStep:     func(step, _ int, values map[string]float64) { j.bar.Step(step, values) },
	}
}

// Follow runs a trainer to its last step, from the start or from the newest checkpoint.
func (j *Job) Follow(ctx context.Context, t *train.Trainer) error {
	if err := j.Resume(t); err != nil {
		return err
	}
	return j.Continue(ctx, t)
}

// Continue is Follow of a trainer that is where it should be.
func (j *Job) Continue(ctx context.Context, t *train.Trainer) error {
	if err := t.Start(); err != nil {
		return err
	}
	j.bar = j.Progress("step", t.Step(), t.Total())
	err := t.Run(ctx)
	j.bar.Close()
	if errors.Is(err, ErrInterrupted) {
		return j.StopError("at step %d of %d, saved", t.Step(), t.Total())
	}
	return err
}

// Resume loads the newest checkpoint of a run to continue. A run that ended before its first checkpoint starts over.
func (j *Job) Resume(t *train.Trainer) error {
	if j.Place.Resume == "" {
		return nil
	}
	warnings, err := t.Resume()
	for _, w := range warnings {
		j.Warn("%s", w)
	}
	switch {
	case err != nil:
		return err
	case t.Total() == 0: // online training does not know yet
		j.Say("%s: continuing after step %d", j.Run.Dir, t.Step())
	default:
		j.Say("%s: continuing after step %d of %d", j.Run.Dir, t.Step(), t.Total())
	}
	return nil
}

// Save writes the best weights of a finished run as the trained model, and the picture. best is nil where nothing was
// evaluated: the model is that of the last step.
func (j *Job) Save(t *train.Trainer) (best *run.Best, err error) {
	if best, err = t.LoadBest(); err != nil {
		return nil, err
	}
	err = j.Run.WriteResult(j.Kind(), func(dir string) error {
		if err := j.Exporter().Write(dir, j.Learner, j.saveDType(j.Train)); err != nil {
			return err
		}
		return j.keepCard(dir)
	})
	if err != nil {
		return nil, err
	}
	return best, j.Run.WriteCurves(j.Title + " (posttrain " + j.Command + ")")
}

// Kind is what a finished run leaves in the folder of this name: a model, or an adapter.
func (j *Job) Kind() string {
	if j.Adapting.On() {
		return run.AdapterName
	}
	return run.ModelName
}

// Result is what a training recipe leaves.
type Result struct {
	Dir     string    // the run folder; the trained model is in its folder model, a trained adapter in adapter
	Steps   int       // of the whole run
	Best    *run.Best // the step whose weights the model has; nil: the last
	Summary string    // in words
}

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Conclude writes the summary into the run folder, and the card into the result's.
func (j *Job) Conclude(t *train.Trainer, best *run.Best, summary string) (*Result, error) {
	if err := j.writeCard(summary); err != nil {
		return nil, err
	}
	name := strings.ToUpper(j.Kind()[:1]) + j.Kind()[1:]
	summary += fmt.Sprintf("%s: %s\nCurves: %s\nMetrics: %s\n", name, j.Run.Path(j.Kind()),
		j.Run.Path("curves.png"), j.Run.Path("metrics.jsonl"))
	if _, err := os.Stat(j.Run.SamplesPath()); err == nil {
		summary += fmt.Sprintf("Samples: %s\n", j.Run.SamplesPath())
	}
	if err := j.Run.WriteSummary(summary); err != nil {
		return nil, err
	}
	if err := j.Run.WriteManifest(run.Manifest{Version: programVersion(), Command: j.Command, Engine: j.Engine.Name,
		Seed: j.Seed, Steps: t.Step()}); err != nil {
		return nil, err
	}
	return &Result{Dir: j.Run.Dir, Steps: t.Step(), Best: best, Summary: summary}, nil
}

// programVersion is the main module's version, such as v1.2.3; "" where the program has none.
func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// ErrInterrupted is the cause of every Stopped.
var ErrInterrupted = train.ErrInterrupted

// Stopped is the error of a run that was interrupted. Running the recipe again with Place.Resume = Dir continues it.
type Stopped struct {
	Where string // "at step 3 of 9, saved"
	Dir   string // the run folder
}

func (e *Stopped) Error() string {
	return fmt.Sprintf("interrupted %s; the run is in %s", e.Where, e.Dir)
}

// Unwrap makes it an ErrInterrupted.
func (e *Stopped) Unwrap() error { return ErrInterrupted }

// StopError says where the run was interrupted.
func (j *Job) StopError(where string, args ...any) error {
	return &Stopped{Where: fmt.Sprintf(where, args...), Dir: j.Run.Dir}
}
