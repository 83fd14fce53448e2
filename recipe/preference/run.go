package preference

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/rollout/local"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/train"
)

// Run trains on preference pairs: it loads model and pairs, measures the reference's log-probs once, trains, saves the
// best model and reports how the log-probs of held-out answers changed. A nil Reporter is silent.
func Run(ctx context.Context, o Options, reporter run.Reporter) (*recipe.Result, error) {
	r, err := o.open(reporter, false)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t := &training{Run: r, o: o}
	if o.isOnline() {
		return t.learnOnline(ctx)
	}
	if err := t.loadPairs(ctx); err != nil {
		return nil, err
	}
	if err := t.begin(); err != nil {
		return nil, err
	}
	r.ReportMemory(0)
	if err := t.measureReference(ctx); err != nil {
		return nil, err
	}
	if err := r.Fit(ctx, t.pairTrainer); err != nil {
		return nil, err
	}
	return r.FinishExamples(t.pairTrainer, len(t.set.Examples), len(t.set.Held), t.reportHeldOut)
}

// begin makes run directory and trainer.
func (t *training) begin() error {
	if err := t.Start(); err != nil {
		return err
	}
	t.when = "before the first step"
	return t.prepare()
}

// prepare makes the trainer.
func (t *training) prepare() (err error) {
	t.set.Share = t.SharesPrompts(t.groups(t.set.Examples))
	t.pairTrainer, err = t.Trainer(&t.set)
	return err
}

// open opens engine and model.
func (o *Options) open(reporter run.Reporter, dry bool) (*recipe.Run, error) {
	if err := Spec.Verify(o); err != nil {
		return nil, err
	}
	title := o.Loss.Name()
	if o.isOnline() {
		title = "online " + title
	}
	return recipe.Open(recipe.Config{Base: &o.Base, Command: Command, Title: title, Samples: o.isOnline(),
		Options: o, Dry: dry}, reporter)
}

// DryRun makes the run up to its first step without the weights of the model. Close it.
func (o Options) DryRun(ctx context.Context, reporter run.Reporter) (*recipe.DryRun, error) {
	if o.isOnline() {
		return nil, fmt.Errorf("mode online: its pairs are made while it trains, so that it cannot be planned: want " +
			"mode offline")
	}
	r, err := o.open(reporter, true)
	if err != nil {
		return nil, err
	}
	t, d := &training{Run: r, o: o}, &recipe.DryRun{Run: r, Unit: o.unit()}
	return d.Or(t.count(ctx, d))
}

// count fills in what the run does.
func (t *training) count(ctx context.Context, d *recipe.DryRun) error {
	if err := t.loadPairs(ctx); err != nil {
		return err
	}
	if t.reference != nil {
		d.ReferenceOnce = 4 * t.reference.Config.ParamCount()
	}
	if err := t.Start(); err != nil {
		return err
	}
	t.set.Share = t.SharesPrompts(t.groups(t.set.Examples))
	if err := d.Count(&t.set); err != nil || t.o.Loss.ReferenceFree() {
		return err
	}
	d.Measure(t.groups(t.set.Examples), t.set.Layout(), 1)
	d.Measure(t.groups(t.set.Held), t.set.Layout(), 1)
	return nil
}

// training is a run on its way.
type training struct {
	*recipe.Run
	o           Options
	reference   *model.Model // nil: the model itself
	rewards     *data.Rewards
	set         train.Dataset
	pairTrainer *train.Trainer
	when        string // a measurement of log-probs takes place, in words
}

// ReadPairs reads the pairs that data.train names and encodes them, for a loss of pairs. What is too long for the
// limits, or for a model with that many positions, is left out; r hears of it.
func (d *Data) ReadPairs(ctx context.Context, r run.Reporter, loss losses.Options, t *tokenizer.Tokenizer,
	positions int) ([]train.Example, error) {
	pairs, _, err := recipe.ReadAll(d.Files, func(name string) ([]data.Preference, error) {
		return d.Pairs(r, name, d.PreferenceOptions)
	})
	if err != nil {
		return nil, err
	}
	rewards, err := d.Fit(pairs)
	if err != nil && loss.NeedsGap() {
		return nil, err
	}
	pairs, report, err := addGaps(pairs, rewards, loss)
	if err != nil {
		return nil, err
	}
	sayGaps(r, d.TrainFiles.String(), report, loss)
	all, err := recipe.Encode(ctx, local.PlainText{}.Encoder(t), pairs, encodePair)
	if err != nil {
		return nil, err
	}
	return recipe.Keep(all, func(groups []batch.Group) []int {
		l := batch.Limit(groups, d.Options, positions, t.Begin())
		r.Say("%s: %s", d.TrainFiles, l)
		return l.Keep
	}), nil
}

// sayGaps reports the gaps that the prior made of the scores. Pairs without scores have no report.
func sayGaps(r run.Reporter, path string, report *data.PriorReport, loss losses.Options) {
	if report == nil {
		return
	}
	r.Say("%s", report)
	if warning := report.Warning(); warning != "" && loss.NeedsGap() {
		r.Warn("%s: %s", path, warning)
	}
}

// addGaps gives pairs the prior's gaps in the place of scores, unless there are no scores and the loss needs none. It
// keeps the pairs that have one.
func addGaps(pairs []data.Preference, rewards *data.Rewards, loss losses.Options) ([]data.Preference,
	*data.PriorReport, error) {
	unscored := func(p data.Preference) bool { return !p.Scored }
	if !loss.NeedsGap() && (rewards == nil || slices.ContainsFunc(pairs, unscored)) {
		pairs = slices.Clone(pairs)
		for i := range pairs {
			pairs[i].Scored = false
		}
		return pairs, nil, nil
	}
	kept, gaps, report, err := rewards.Gaps(pairs)
	kept = slices.Clone(kept)
	for i := range gaps {
		kept[i].ChosenScore, kept[i].RejectedScore = gaps[i], 0
	}
	return kept, report, err
}

// encodePair encodes a pair whose scores addGaps has made.
func encodePair(e *batch.Encoder, p data.Preference) (train.Example, error) {
	g, err := e.Preference(p)
	x := train.Example{Group: g, Scored: p.Scored, Source: p.Source, Class: p.Class}
	if p.Scored {
		x.Gap = p.ChosenScore
	}
	return x, err
}

// loadPairs loads the reference, the training pairs and the held-out ones.
func (t *training) loadPairs(ctx context.Context) (err error) {
	if t.o.Reference != "" {
		if t.reference, err = t.loadReference(); err != nil {
			return err
		}
	}
	t.set.Method = t.method()
	if t.o.Loss.Unpaired() {
		return t.loadAnswers(ctx)
	}
	t.set.Examples, t.set.Held, err = recipe.Load(ctx, t.Run, t.o.Data.Source, t.pairs())
	return err
}

// method is the loss with its self-check: before the first step the policy is the reference, unless that is another
// model.
func (t *training) method() train.Method {
	tolerance := 0.0
	if t.reference == nil {
		tolerance = t.Tolerance()
	}
	if t.o.Loss.Unpaired() {
		return &train.KTO{Options: t.o.Loss, Tolerance: tolerance}
	}
	return &train.Preference{Options: t.o.Loss, Tolerance: tolerance}
}

// pairs says how pairs become examples.
func (t *training) pairs() recipe.Encoding[data.Preference] {
	return recipe.Encoding[data.Preference]{
		Unit: "pairs", Read: t.read, Encode: encodePair, Limit: t.limitPairs,
		Fit: func(sets ...[]data.Preference) (err error) {
			if t.rewards, err = t.o.Data.Fit(sets...); !t.o.Loss.NeedsGap() {
				return nil
			}
			return err
		},
		Prepare: func(path string, pairs []data.Preference) ([]data.Preference, error) {
			pairs, report, err := addGaps(pairs, t.rewards, t.o.Loss)
			if missing := new(data.MissingScoresError); errors.As(err, &missing) {
				missing.Model = t.Base.Model
			}
			if err == nil {
				sayGaps(t, path, report, t.o.Loss)
			}
			return pairs, err
		},
	}
}

func (t *training) limitPairs(path string, groups []batch.Group, drift int) ([]int, error) {
	return t.Limit(path, groups, t.o.Data.Options, drift)
}

// read reads a file of pairs, or the embedded ones.
func (t *training) read(path string) ([]data.Preference, error) {
	return t.o.Data.Pairs(t, path, t.o.Data.PreferenceOptions)
}

// Rehearsal reads what a rehearsal looks at: the chosen answers, or the desirable ones.
func (o *Options) Rehearsal() (*recipe.Rehearsal, error) {
	if o.isOnline() {
		return nil, errors.New("mode online cannot be rehearsed, since its data have no answers: want pairs, answers " +
			"with labels, or demonstrations with a config of sft")
	}
	read := o.Data.readChosen
	if o.Loss.Unpaired() {
		read = o.Data.readDesirable
	}
	rows, _, err := recipe.ReadAll(o.Data.Files, read)
	return &recipe.Rehearsal{Model: o.Model, Adapter: o.Adapting.Adapter, Chat: o.Chat, Limits: o.Data.Options,
		LossOn: "turns", Rows: rows}, err
}

func (d *Data) readChosen(name string) (rows []data.Demonstration, err error) {
	pairs, err := d.Pairs(nil, name, d.PreferenceOptions)
	for _, p := range pairs {
		rows = append(rows, data.Demonstration{Prompt: p.Prompt, Completion: p.Chosen, Source: p.Source})
	}
	return rows, err
}

// loadReference loads the reference model that the options name, as the run loads its own.
func (t *training) loadReference() (*model.Model, error) {
	load := t.Load
	if load == nil {
		load = local.Load
	}
	m, _, err := load(t.o.Reference)
	if err != nil {
		return nil, err
	}
	if theirs, ours := m.Config.VocabSize, t.Model.Config.VocabSize; theirs != ours {
		m.Release()
		return nil, fmt.Errorf("reference %s: its vocabulary has %d tokens, the model's %d: they must be the same",
			t.o.Reference, theirs, ours)
	}
	return m, nil
}

// upload puts a loaded reference into the engine, and closes the files of its weights.
func (t *training) upload(m *model.Model, err error) (*train.Learner, error) {
	if err != nil {
		return nil, err
	}
	defer m.Release()
	return train.NewLearner(t.Engine, m, t.Graph)
}

// measureReference computes the reference's log-probs of all examples, once, ahead of training. Reference-free losses
// need none.
func (t *training) measureReference(ctx context.Context) (err error) {
	if t.o.Loss.ReferenceFree() {
		return nil
	}
	learner := t.Learner
	if t.reference != nil {
		if learner, err = t.upload(t.reference, nil); err != nil {
			return err
		}
		defer learner.Close()
	}
	t.Say("reference log-probs of %d %s", len(t.set.Examples), t.o.unit())
	if err := t.refer(ctx, run.ReferenceName, learner, t.set.Examples); err != nil || t.set.Held == nil {
		return err
	}
	t.Say("reference log-probs of %d held-out %s", len(t.set.Held), t.o.unit())
	return t.refer(ctx, run.ReferenceEvalName, learner, t.set.Held)
}

// refer gives examples the log-probs under the learner's weights, or those in a file of the run folder.
func (t *training) refer(ctx context.Context, name string, l *train.Learner, examples []train.Example) error {
	sums, err := t.sums(ctx, name, l, examples)
	for i := range sums {
		examples[i].Reference = sums[i]
	}
	return err
}

// groups are what the log-probs of examples are measured of.
func (t *training) groups(examples []train.Example) []train.Group {
	if t.o.Loss.Unpaired() {
		return train.Both(examples)
	}
	return train.Groups(examples)
}

// sums measures the summed log-probs of examples [examples, 2], or takes them from a file of the run folder.
func (t *training) sums(ctx context.Context, name string, l *train.Learner, examples []train.Example) ([][2]float32,
	error) {
	shown := run.Reporter(t)
	if _, err := os.Stat(t.Folder.Path(name)); err == nil {
		shown = nil // nothing is measured
	}
	bar := run.Listen(shown).Progress(strings.TrimSuffix(t.o.unit(), "s"), 0, len(examples))
	defer bar.Close()
	every := time.Duration(t.Train.CheckpointMinutes * float64(time.Minute))
	sums, cached, err := train.CachedPairSums(t.Folder.Path(name), l, t.groups(examples), t.layout(), every,
		func(done int) error {
			bar.Step(done, nil)
			return context.Cause(ctx)
		})
	if errors.Is(err, context.Canceled) {
		return nil, t.StopError("while log-probs were measured, %s", t.when)
	}
	if cached {
		t.Say("taken from %s", t.Folder.Path(name))
	}
	return sums, err
}

// layout is how log-probs are measured: as the examples are trained on; of kto with both answers.
func (t *training) layout() batch.Layout {
	if !t.o.Loss.Unpaired() {
		return t.set.Layout()
	}
	return t.Learner.Layout(t.groups(t.set.Examples), t.set.Share, t.Train.Micro(), t.groups(t.set.Held))
}

// Sweeps are the sweeps of the command.
var Sweeps = recipe.NewSweeps(recipe.Sweeps[Options]{Spec: Spec, Example: "loss.beta=0.05,0.1,0.2", Split: "eval",
	Columns: []string{"loss", losses.MetricAccuracies, losses.MetricMargins, losses.MetricLogpsChosen,
		losses.MetricLogpsRejected},
	Tested: func(o *Options) bool { return o.Data.HasEval() }}, Run)
