package recipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/doctor"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/track"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/train"
)

// Config is what a training run needs to know ahead of its data.
type Config struct {
	*Base
	Command string      // names the run directory
	Title   string      // names the run in its summary and picture: MaPPO-DPO
	Load    Loader      // of the model folder; nil: it is a language model's
	Samples bool        // the run samples, too: backend auto takes an engine that is good at it
	Dry     bool        // a dry run: the model has no weights, and there is no run directory
	Options interface { // may be nil
		Resolved() []byte // everything in force as YAML
		Explain() string  // in words
	}
}

// Run is a training run: engine, model, tokenizer, run directory and learner.
type Run struct {
	Config
	run.Reporter
	*Opened
	Folder   *run.Folder // the run directory, from Start on
	Learner  *train.Learner
	resolved []byte
	bar      run.Bar  // the newest
	changed  []string // what is different since the start of a run that continues
	plain    string   // what was said of plain prompts
	marked   bool     // it was said that the chat template marks what is trained
	ended    bool     // it was seen with which token plain texts end
}

// Reporter hears what a run says.
type Reporter = run.Reporter

// NewReporter writes plain lines.
func NewReporter(w io.Writer) Reporter { return run.NewReporter(w, false, false) }

// Open opens engine, model and tokenizer, and looks at the run directory. A nil Reporter is silent. Close the run.
func Open(c Config, reporter Reporter) (_ *Run, err error) {
	r := &Run{Config: c, Reporter: run.Listen(reporter)}
	if r.Dry {
		r.Tracking = track.Options{}
		if r.Load == nil {
			r.Load = local.LoadWeightless
		}
	}
	if r.Backend == "" {
		r.Backend = "auto"
	}
	ChooseBackend(&r.Backend, r.Base.Model, r.Train, r.Devices, r.Samples, reporter)
	if err := r.Dir.keep(r.Base); err != nil {
		return nil, err
	}
	if r.Options != nil {
		r.resolved = r.Options.Resolved()
	}
	if err := r.Dir.Check(r.resolved); err != nil {
		return nil, err
	}
	if r.Adapting.Quantized() && r.Devices.several() {
		return nil, fmt.Errorf("quantize %s: weights in few bits cannot be cut over devices yet: remove it or "+
			"engine.devices", r.Adapting.Quantize)
	}
	if r.Opened, err = OpenModel(r.Load, r.Backend, r.Base.Model, r.Train, r.Devices); err != nil {
		return nil, err
	}
	if err := r.adapt(); err != nil {
		r.Opened.Close()
		return nil, err
	}
	return r, nil
}

// adapt gives tokenizer and model what the configuration says, and reports what is odd about them.
func (r *Run) adapt() (err error) {
	if err := r.Chat.Apply(r.Tokenizer, r.Adapting.Adapter); err != nil {
		return err
	}
	ReportEngine(r.Engine, r)
	for _, advice := range []string{r.Adapting.advise(r.Engine), r.Adapting.adviseDropout()} {
		if advice != "" {
			r.Warn("%s", advice)
		}
	}
	if unread := r.Model.Unread; len(unread) > 0 {
		r.Warn("%s: tensors that are not read: %s", r.Base.Model, data.List(unread))
	}
	adapted, err := r.Adapting.Adapt(r.Model, r.Base.Model, r.Seed)
	if err != nil {
		return err
	}
	r.Model = adapted
	for _, w := range r.Tokenizer.Warnings() {
		r.Warn("%s", w)
	}
	return nil
}

// Start puts the model into the engine, and makes the run directory or opens the one to continue.
func (r *Run) Start() (err error) {
	if r.Dry && r.Engine.Absent() == nil {
		r.Learner, err = train.NewWeightless(r.Engine, r.Model, r.Graph)
		return err
	}
	if r.Learner, err = train.NewLearner(r.Engine, r.Model, r.Graph); err != nil || r.Dry {
		return err
	}
	if r.Folder, err = r.Dir.Open(r.Command, r.resolved); err != nil {
		return err
	}
	if r.changed, err = r.Folder.NoteInputs(version()); err != nil {
		return err
	}
	return r.Tracking.Watch(track.Subject{Folder: r.Folder, Command: r.Command, Config: r.resolved, Reporter: r})
}

// ReportMemory says how much memory training takes for every parameter, reference bytes of them for a reference that
// stays loaded, and closes the files of the weights: the engine has them. It comes after everything that reads the
// model.
func (r *Run) ReportMemory(reference int) {
	f := r.Learner.Footprint(r.Train.AdamW())
	f.Reference = reference
	r.Say("%s", f)
	r.Model.Release()
	debug.FreeOSMemory()
}

// reportShapes says in which shapes batches are laid out, where the engine compiles a program for each.
func (r *Run) reportShapes(l interface{ DescribeShapes() string }) {
	if text := l.DescribeShapes(); text != "" {
		r.Say("%s", text)
	}
}

// Before loads the model as it was before training.
func (r *Run) Before() (*model.Model, error) {
	m, _, err := local.Load(r.Base.Model)
	if err != nil {
		return nil, err
	}
	return r.Adapting.Adapt(m, r.Base.Model, r.Seed)
}

// Close frees what the run holds.
func (r *Run) Close() {
	if r.Learner != nil {
		r.Learner.Close()
	}
	if r.Folder != nil {
		r.Folder.Close()
	}
	r.Opened.Close()
}

// Encode gives the tokens of a prompt, a conversation's by the model's chat template.
func (r *Run) Encode(prompt data.Text) ([]int32, error) {
	e := batch.Encoder{Tokenizer: r.Tokenizer}
	return e.Prompt(prompt)
}

// SayEncoded says once what became of the plain prompts that an encoder has met, and that the template's marks are
// followed. It warns of texts at whose end the model does not stop.
func (r *Run) SayEncoded(e *batch.Encoder) {
	if line := r.Chat.Describe(e, "chat.plain=text"); line != "" && line != r.plain {
		r.plain = line
		r.Say("%s", line)
	}
	if e.Marked > 0 && !r.marked {
		r.marked = true
		r.Say("the loss is on what the chat template marks with {%% generation %%} (data.loss_on=turns: on all that " +
			"the assistant says)")
	}
	if e.Ended && !r.ended {
		r.ended = true
		if line := r.strayEnd(); line != "" {
			r.Warn("%s", line)
		}
	}
}

// strayEnd says that plain texts end with a token at which the model does not stop, or with none; "" where it stops.
func (r *Run) strayEnd() string {
	end, ok := r.Tokenizer.End()
	name := func(id int) string { return fmt.Sprintf("%d (%q)", id, r.Tokenizer.Decode([]int32{int32(id)}, false)) }
	switch stops := r.Model.Config.EOS; {
	case !ok:
		return "plain texts get no end token: neither eos_token of tokenizer_config.json nor eos_token_id of " +
			"config.json or generation_config.json names one"
	case len(stops) == 0:
		return fmt.Sprintf("plain texts end with token %s, eos_token of tokenizer_config.json, at which the model does "+
			"not stop: config.json and generation_config.json have no eos_token_id", name(int(end)))
	case !slices.Contains(stops, int(end)):
		return fmt.Sprintf("plain texts end with token %s, eos_token of tokenizer_config.json, at which the model does "+
			"not stop: it stops at token %s, eos_token_id of config.json or generation_config.json", name(int(end)),
			name(stops[0]))
	}
	return ""
}

// Sampler draws from the weights that learn, with a cache of keys and values of at most that many gigabytes; 0: a
// quarter of the memory. Close it ahead of the run.
func (r *Run) Sampler(cacheGB float64) *rollout.Cached {
	return rollout.NewCached(r.Engine, r.Model.Config, r.Learner.Weights,
		rollout.Options{Graph: r.Graph, Decoder: r.Tokenizer, CacheGB: cacheGB})
}

// Exporter writes model folders with the run's tokenizer.
func (r *Run) Exporter() train.Exporter {
	return train.Exporter{Model: r.Model, Tokenizer: r.Tokenizer}
}

// Trainer trains the run's model on what a source gives, in the run directory. The source is tied to it.
func (r *Run) Trainer(source train.Source) (*train.Trainer, error) {
	t := &train.Trainer{
		Learner: r.Learner, Source: source, Options: r.Train, Seed: r.Seed, Folder: r.Folder, Export: r.Exporter(),
		ConfigHash: run.HashConfig(identity(r.resolved)),
		OnNotice:   r.notice,
		OnStep:     func(step, _ int, values map[string]float64) { r.bar.Step(step, values) },
		OnPart:     r.Part,
	}
	return t, t.Start()
}

// Progress opens a bar, of which Part is.
func (r *Run) Progress(unit string, start, total int) run.Bar {
	r.bar = r.Reporter.Progress(unit, start, total)
	return r.bar
}

// notice says a line beside the newest bar, or ahead of the first.
func (r *Run) notice(line string) {
	if r.bar == nil {
		r.Say("%s", line)
		return
	}
	r.bar.Notice(line)
}

// Part shows how far the running step of the newest bar is.
func (r *Run) Part(p run.Part) {
	if r.bar != nil {
		r.bar.Part(p)
	}
}

// Fit runs a trainer to its last step, from the start or from the newest checkpoint.
func (r *Run) Fit(ctx context.Context, t *train.Trainer) error {
	switch s := t.Source.(type) {
	case interface{ Layout() batch.Layout }:
		r.reportShapes(s.Layout())
	case interface{ Rows() batch.GroupLayout }:
		r.reportShapes(s.Rows())
	}
	if err := r.checkRoom(t); err != nil {
		return err
	}
	if set, is := t.Source.(*train.Dataset); is {
		closed, err := r.showSamples(t, set.Held)
		if err != nil {
			return err
		}
		defer closed()
	}
	if err := r.Resume(t); err != nil {
		return err
	}
	return r.Continue(ctx, t)
}

// WatchHealth says, once, what posttrain doctor finds while the run trains.
func (r *Run) WatchHealth() {
	doctor.Watch(r.Folder, func(line string) { r.notice("warning: " + line) })
}

// Continue is Fit of a trainer that is where it should be.
func (r *Run) Continue(ctx context.Context, t *train.Trainer) error {
	r.Progress("step", t.Step(), t.Total())
	err := t.Run(ctx)
	r.bar.Close()
	if errors.Is(err, ErrInterrupted) {
		return r.StopError("at step %d of %d, saved", t.Step(), t.Total())
	}
	return err
}

// Resume loads the newest checkpoint of a run to continue. A run that ended before its first checkpoint starts over.
func (r *Run) Resume(t *train.Trainer) error {
	if r.Dir.Resume == "" {
		return nil
	}
	warnings, err := t.Resume()
	for _, w := range warnings {
		r.Warn("%s", w)
	}
	if err != nil {
		return err
	}
	of := ""
	if n := t.Total(); n > 0 { // online training does not know yet
		of = fmt.Sprintf(" of %d", n)
	}
	r.Say("%s: continuing after step %d%s", r.Folder.Dir, t.Step(), of)
	for _, c := range r.changed {
		r.Warn("since the run was started: %s", c)
	}
	return nil
}

// Save writes the best weights of a finished run as the trained model, and the picture. best is nil where nothing was
// evaluated: the model is the last step's.
func (r *Run) Save(t *train.Trainer) (best *run.Best, err error) {
	if best, err = t.LoadBest(); err != nil {
		return nil, err
	}
	err = r.Folder.WriteResult(r.Kind(), func(dir string) error {
		return r.Exporter().Write(dir, r.Learner, r.SaveDType())
	})
	if err != nil {
		return nil, err
	}
	return best, r.Folder.WriteCurves(r.Title + " (posttrain " + r.Command + ")")
}

// Kind is what a finished run leaves in the folder of this name: a model, or an adapter.
func (r *Run) Kind() string {
	if r.Adapting.On() {
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

// Finish writes the summary into the run directory, in words and for programs, and the card into the result's. best is
// what Save gave.
func (r *Run) Finish(t *train.Trainer, best *run.Best, summary string, o Outcome) (*Result, error) {
	if err := r.writeCard(summary); err != nil {
		return nil, err
	}
	if err := r.writeSummary(t, best, o); err != nil {
		return nil, err
	}
	f, name := r.Folder, strings.ToUpper(r.Kind()[:1])+r.Kind()[1:]
	summary += fmt.Sprintf("%s: %s\nCurves: %s\nMetrics: %s\n", name, f.Path(r.Kind()), f.Path("curves.png"),
		f.Path("metrics.jsonl"))
	if _, err := os.Stat(f.SamplesPath()); err == nil {
		summary += fmt.Sprintf("Samples: %s\n", f.SamplesPath())
	}
	summary += r.next()
	if err := f.WriteSummary(summary); err != nil {
		return nil, err
	}
	return &Result{Dir: f.Dir, Steps: t.Step(), Best: best, Summary: summary}, f.WriteManifest(run.Manifest{
		Version: version(), Command: r.Command, Engine: r.Engine.Name, Seed: r.Seed, Steps: t.Step()})
}

// next has the command lines that use the result.
func (r *Run) next() string {
	dir, made := fault.ShellWord(r.Folder.Dir), fault.ShellWord(r.Folder.Path(r.Kind()))
	of := " --model " + made
	last := "posttrain eval ci" + of
	if r.Adapting.On() {
		of = " --model " + fault.ShellWord(r.Base.Model) + " --adapter " + made
		last = "posttrain model export" + of + " --out " + fault.ShellWord(r.Folder.Path("merged"))
	}
	lines := []string{"posttrain chat " + dir + " --compare", "posttrain serve" + of, last}
	switch {
	case r.Model.Config.Reward:
		lines = []string{"posttrain data score --reward model --reward-model " + made +
			" --data pairs.jsonl --out scored.jsonl"}
		if r.Adapting.On() {
			lines = []string{last, strings.Replace(lines[0], made, fault.ShellWord(r.Folder.Path("merged")), 1)}
		}
	case !r.Tokenizer.HasTemplate():
		lines[0] = "posttrain generate" + of + " --prompt \"Once upon a time\""
	}
	lines = append(lines, "hf upload org/name "+made+"   # to the hub: pip install huggingface_hub")
	return "Next:\n  " + strings.Join(lines, "\n  ") + "\n"
}

// version is the program's, such as v1.2.3.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Version
}

// Learn trains on a data set from the start to the end of the run.
func (r *Run) Learn(ctx context.Context, set *train.Dataset, report func([]run.Record) string) (*Result, error) {
	if err := r.Start(); err != nil {
		return nil, err
	}
	r.ReportMemory(0)
	t, err := r.Trainer(set)
	if err != nil {
		return nil, err
	}
	if err := r.Fit(ctx, t); err != nil {
		return nil, err
	}
	return r.FinishExamples(t, len(set.Examples), len(set.Held), report)
}

// FinishExamples saves the model of a trainer that has learnt from a number of examples, and was evaluated on a number
// of held-out ones, and finishes the run. The report of what changed goes into the summary; the learner has the weights
// of the saved model then.
func (r *Run) FinishExamples(t *train.Trainer, examples, held int, report func([]run.Record) string) (*Result, error) {
	best, err := r.Save(t)
	if err != nil {
		return nil, err
	}
	records, err := r.Folder.ReadMetrics()
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("%s: %s on %d examples, engine %s.\n", r.Title, Count(t.Step(), "step"), examples,
		r.Engine.Name)
	return r.Finish(t, best, head+report(records)+LossChange(records)+r.WhichModel(best, t.Step()),
		outcomeOf(records, held))
}

// ErrInterrupted is the cause of every Stopped.
var ErrInterrupted = train.ErrInterrupted

// Stopped is the error of a run that was interrupted. Running the recipe again with RunDir.Resume = Dir continues it.
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
func (r *Run) StopError(where string, args ...any) error {
	return &Stopped{Where: fmt.Sprintf(where, args...), Dir: r.Folder.Dir}
}
