package preference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/rollout/local"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/track"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/train"
)

// Run trains on preference pairs: it loads model and pairs, measures the reference's log-probs once, trains, saves the
// best model and reports how the log-probs of the answers changed. A nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*recipe.Result, error) {
	j, err := o.newJob(nil, r)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	t := &training{Job: j, o: o}
	if o.isOnline() {
		return t.learnOnline(ctx)
	}
	if err := t.load(ctx); err != nil {
		return nil, err
	}
	if err := j.SayMix(o.Data.Mix, t.pairs.mix); err != nil {
		return nil, err
	}
	if err := j.Open(); err != nil {
		return nil, err
	}
	j.Ready(0)
	t.when = "before the first step"
	t.share = j.SharesPrompts(t.pairs.groups)
	if !o.Loss.Unpaired() {
		j.SayShapes(t.layout())
	}
	if err := t.measureReference(ctx); err != nil {
		return nil, err
	}
	before, err := t.measureBefore(ctx)
	if err != nil {
		return nil, err
	}
	l := t.loop()
	l.AtEnd = t.measureLast(l)
	if o.Loss.Unpaired() { // the reference measures each answer beside a mismatched one, a step apart from it
		j.SayShapes(l.Layout())
	}
	return j.Learn(ctx, l, func(records []run.Record) (string, error) { return t.report(ctx, before, records) })
}

// newJob opens engine and model; load is nil for a run that trains.
func (o *Options) newJob(load recipe.Loader, r run.Reporter) (*recipe.Job, error) {
	if err := Spec.Verify(o); err != nil {
		return nil, err
	}
	recipe.PinBackend(&o.Backend, o.Model, o.Train, o.Devices, o.isOnline(), r)
	if err := o.Place.PinChat(&o.Chat, o.Model); err != nil {
		return nil, err
	}
	title := o.Loss.Name()
	if o.isOnline() {
		title = "online " + title
	}
	return recipe.NewJob(recipe.Setup{
		Command: Command, Title: title, Backend: o.Backend, Folder: o.Model, Load: load, Adapting: o.Adapting,
		Chat: o.Chat, Devices: o.Devices, Train: o.Train, Seed: o.Seed, Tracking: o.Tracking, Resolved: o.Resolved(),
		Place: o.Place,
	}, r)
}

// loop trains on the pairs.
func (t *training) loop() *train.Loop {
	return &train.Loop{Course: t.Course(nil), Options: t.o.Train, Train: *t.pairs.examples(t.o.Loss),
		Eval: t.heldOut.examples(t.o.Loss), Share: t.share}
}

// Draft makes the run up to its first step without the weights of the model. Close it.
func (o Options) Draft(ctx context.Context, r run.Reporter) (*recipe.Draft, error) {
	if o.isOnline() {
		return nil, fmt.Errorf("mode online: its pairs are made while it trains, so that it cannot be planned: want " +
			"mode offline")
	}
	o.Tracking = track.Options{}
	j, err := o.newJob(local.LoadShapes, r)
	if err != nil {
		return nil, err
	}
	t, d := &training{Job: j, o: o}, &recipe.Draft{Job: j, Unit: "pairs"}
	if o.Loss.Unpaired() {
		d.Unit = "answers"
	}
	return d.CloseOn(t.draft(ctx, d))
}

// draft fills in what the run does.
func (t *training) draft(ctx context.Context, d *recipe.Draft) error {
	if err := t.load(ctx); err != nil {
		return err
	}
	if err := t.OpenShapes(); err != nil {
		return err
	}
	if t.reference != nil {
		d.ReferenceOnce = 4 * t.reference.Config.ParamCount()
	}
	t.share = t.SharesPrompts(t.pairs.groups)
	for _, set := range []*pairSet{t.pairs, t.heldOut} {
		if set != nil && !t.o.Loss.ReferenceFree() {
			d.Measure(set.groups, t.layout(), 1)
		}
	}
	_, err := d.Learns(t.loop())
	return err
}

// training is a run on its way.
type training struct {
	*recipe.Job
	o              Options
	reference      *model.Model  // nil: the model itself
	pairs, heldOut *pairSet      // heldOut nil: none
	rewards        *data.Rewards // nil: the scores make none, and the loss needs none
	share          bool          // both answers share their prompt in one row
	after          [][2]float32  // log-probs of the sample after training; nil: not measured yet
	when           string        // a measurement of log-probs takes place, in words
}

// Pairs are encoded pairs of a file, for a loss of pairs.
type Pairs struct {
	Groups  []batch.Group
	Gaps    []float64 // the prior's; nil: the pairs have no scores, and the loss needs none
	Sources []string
	Classes []string // by the column that the options name, else empty
}

// ReadPairs reads the pairs that data.train names and encodes them. What is too long for the limits, or for a model with
// that many positions, is left out.
func (d *Data) ReadPairs(ctx context.Context, loss losses.Options, t *tokenizer.Tokenizer, positions int) (*Pairs,
	error) {
	sources, err := d.readAll()
	if err != nil {
		return nil, err
	}
	pairs := slices.Concat(sources...)
	rewards, err := d.Fit(pairs)
	if err != nil && loss.NeedsGap() {
		return nil, err
	}
	p := &Pairs{}
	if pairs, p.Gaps, _, err = makeGaps(pairs, rewards, loss); err != nil {
		return nil, err
	}
	groups, err := recipe.Encode(ctx, &batch.Encoder{Tokenizer: t}, pairs, (*batch.Encoder).Preference)
	if err != nil {
		return nil, err
	}
	keep := batch.Limit(groups, d.Options, positions).Keep
	if p.Groups = data.Pick(groups, keep); p.Gaps != nil {
		p.Gaps = data.Pick(p.Gaps, keep)
	}
	for _, one := range data.Pick(pairs, keep) {
		p.Sources, p.Classes = append(p.Sources, one.Source), append(p.Classes, one.Class)
	}
	return p, nil
}

// makeGaps makes the prior's gaps, unless there are no scores and the loss needs none. It keeps the pairs that have one.
func makeGaps(pairs []data.Preference, rewards *data.Rewards, loss losses.Options) ([]data.Preference, []float64,
	*data.PriorReport, error) {
	unscored := func(p data.Preference) bool { return !p.Scored }
	if !loss.NeedsGap() && (rewards == nil || slices.ContainsFunc(pairs, unscored)) {
		return pairs, nil, nil, nil
	}
	return rewards.Gaps(pairs)
}

// pairSet is a set of encoded pairs, or of an answer and a mismatched one each, with what the method that trains on it
// needs.
type pairSet struct {
	groups    []batch.Group
	sources   []string
	gaps      []float64    // nil: the pairs have no scores, and the loss needs none
	desirable []bool       // of kto: what the answers are; nil for pairs
	reference [][2]float32 // nil: not measured yet, or the loss has none
	tolerance float64      // of the self-check at step 0
	mix       train.Mix
}

func (p *pairSet) examples(o losses.Options) *train.Examples {
	if p == nil {
		return nil
	}
	if o.Unpaired() {
		return p.answers(o)
	}
	m := &train.Preference{Options: o, Gaps: p.gaps, Reference: p.reference, Tolerance: p.tolerance}
	return &train.Examples{Method: m, Groups: p.groups, Sources: p.sources, Mix: p.mix}
}

// join puts the sets of several sources together.
func join(m recipe.Mix, sets []*pairSet) *pairSet {
	if len(sets) == 1 {
		return sets[0]
	}
	all, sizes, gaps := &pairSet{}, []int(nil), true
	for _, p := range sets {
		all.groups, all.sources = append(all.groups, p.groups...), append(all.sources, p.sources...)
		all.gaps, all.desirable = append(all.gaps, p.gaps...), append(all.desirable, p.desirable...)
		gaps = gaps && p.gaps != nil
		sizes = append(sizes, len(p.groups))
	}
	if !gaps { // of a loss that needs none
		all.gaps = nil
	}
	all.mix = m.Of(sizes...)
	return all
}

func (p *pairSet) subset(keep []int) *pairSet {
	q := &pairSet{groups: data.Pick(p.groups, keep), sources: data.Pick(p.sources, keep), mix: p.mix.Pick(keep)}
	if p.gaps != nil {
		q.gaps = data.Pick(p.gaps, keep)
	}
	if p.desirable != nil {
		q.desirable = data.Pick(p.desirable, keep)
	}
	return q
}

// load loads the reference, the training pairs and the held-out ones.
func (t *training) load(ctx context.Context) (err error) {
	if t.o.Reference != "" {
		if t.reference, err = t.loadReference(); err != nil {
			return err
		}
	}
	if t.o.Loss.Unpaired() {
		return t.loadAnswers(ctx)
	}
	d := t.o.Data
	first, err := recipe.Each(d.Mix, t.read)
	if err != nil {
		return err
	}
	var second []data.Preference
	if d.Eval != "" {
		if second, err = t.read(d.Eval); err != nil {
			return err
		}
	}
	if t.rewards, err = d.Fit(slices.Concat(first...), second); err != nil && t.o.Loss.NeedsGap() {
		return err
	}
	if d.Eval == "" {
		return t.loadOne(ctx, first)
	}
	if t.pairs, err = t.encodeAll(ctx, first); err == nil {
		t.heldOut, err = t.encode(ctx, d.Eval, second)
	}
	return err
}

// encodeAll encodes what is trained on, source by source.
func (t *training) encodeAll(ctx context.Context, sources [][]data.Preference) (*pairSet, error) {
	var sets []*pairSet
	for k, pairs := range sources {
		p, err := t.encode(ctx, t.o.Data.Train[k], pairs)
		if err != nil {
			return nil, err
		}
		sets = append(sets, p)
	}
	return join(t.o.Data.Mix, sets), nil
}

// loadOne encodes what is trained on and holds a share of it out.
func (t *training) loadOne(ctx context.Context, sources [][]data.Preference) error {
	all, err := t.encodeAll(ctx, sources)
	if t.pairs = all; err != nil || t.o.Data.EvalFraction == 0 {
		return err
	}
	kept, heldOut, err := t.o.Data.Split(len(all.groups), "pairs", t.Seed)
	if err == nil {
		t.pairs, t.heldOut = all.subset(kept), all.subset(heldOut)
	}
	return err
}

// encode makes the prior's gaps, unless there are no scores and the loss needs none, encodes, and applies the limits.
func (t *training) encode(ctx context.Context, path string, pairs []data.Preference) (_ *pairSet, err error) {
	all := &pairSet{}
	pairs, gaps, report, err := makeGaps(pairs, t.rewards, t.o.Loss)
	if err != nil {
		return nil, err
	}
	if all.gaps = gaps; report != nil {
		t.Say("%s", report)
		if warning := report.Warning(); warning != "" && t.o.Loss.NeedsGap() {
			t.Warn("%s: %s", path, warning)
		}
	}
	e := batch.Encoder{Tokenizer: t.Tokenizer}
	if all.groups, err = recipe.Encode(ctx, &e, pairs, (*batch.Encoder).Preference); err != nil {
		return nil, err
	}
	for _, p := range pairs {
		all.sources = append(all.sources, p.Source)
	}
	keep, err := t.Limit(path, all.groups, t.o.Data.Options, e.Drift)
	if err != nil {
		return nil, err
	}
	return all.subset(keep), nil
}

// read reads a file of pairs, or the embedded ones.
func (t *training) read(path string) (pairs []data.Preference, err error) {
	pairs, report, err := t.o.Data.read(path)
	if err == nil {
		t.Say("%s", report)
	}
	return pairs, err
}

// Rehearsal reads what a rehearsal tries of the run: the chosen answers, or the desirable ones.
func (o *Options) Rehearsal() (*recipe.Rehearsal, error) {
	if o.isOnline() {
		return nil, errors.New("mode online cannot be rehearsed, since its data have no answers: want pairs, answers " +
			"with labels, or demonstrations with a config of sft")
	}
	read := o.Data.readChosen
	if o.Loss.Unpaired() {
		read = readDesirable
	}
	sources, err := recipe.Each(o.Data.Mix, read)
	return &recipe.Rehearsal{Model: o.Model, Chat: o.Chat, Backend: o.Backend, Seed: o.Seed, Limits: o.Data.Options,
		LossOn: "completion", Rows: slices.Concat(sources...)}, err
}

func (d *Data) readChosen(name string) (rows []data.Demonstration, err error) {
	pairs, _, err := d.read(name)
	for _, p := range pairs {
		rows = append(rows, data.Demonstration{Prompt: p.Prompt, Completion: p.Chosen, Source: p.Source})
	}
	return rows, err
}

// readAll reads the pairs of each source.
func (d *Data) readAll() ([][]data.Preference, error) {
	return recipe.Each(d.Mix, func(name string) ([]data.Preference, error) {
		pairs, _, err := d.read(name)
		return pairs, err
	})
}

func (d *Data) read(path string) ([]data.Preference, *data.Report, error) {
	if path == embedded.Name {
		return data.ReadPreferencesFS(embedded.Files, embedded.Pairs, d.PreferenceOptions)
	}
	return data.ReadPreferences(path, d.PreferenceOptions)
}

// loadReference loads the reference model that the options name, as the job loads its own.
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

// measureReference computes the reference's log-probs of all pairs, once, ahead of training. Reference-free losses need
// none.
func (t *training) measureReference(ctx context.Context) (err error) {
	if t.o.Loss.ReferenceFree() {
		return nil
	}
	learner := t.Learner
	if t.reference == nil {
		t.pairs.tolerance = t.Tolerance()
	} else {
		if learner, err = train.NewLearner(t.Engine, t.reference, t.Graph); err != nil {
			return err
		}
		defer learner.Close()
		t.reference.Release()
	}
	t.Say("reference log-probs of %d %s", len(t.pairs.groups), t.o.unit())
	if t.pairs.reference, err = t.sums(ctx, run.ReferenceName, learner, t.pairs.groups); err != nil ||
		t.heldOut == nil {
		return err
	}
	t.Say("reference log-probs of %d held-out %s", len(t.heldOut.groups), t.o.unit())
	t.heldOut.reference, err = t.sums(ctx, run.ReferenceEvalName, learner, t.heldOut.groups)
	return err
}

// sums measures the summed log-probs of pairs [pairs, 2], or takes them from a file of the run folder.
func (t *training) sums(ctx context.Context, name string, l *train.Learner, groups []batch.Group) ([][2]float32,
	error) {
	bar := t.Progress(strings.TrimSuffix(t.o.unit(), "s"), 0, len(groups))
	defer bar.Close()
	every := time.Duration(t.Train.CheckpointMinutes * float64(time.Minute))
	sums, cached, err := train.CachedPairSums(t.Run.Path(name), l, groups, t.layout(), every, t.tick(ctx, bar))
	if errors.Is(err, context.Canceled) {
		return nil, t.StopError("while log-probs were measured, %s", t.when)
	}
	if cached {
		t.Say("taken from %s", t.Run.Path(name))
	}
	return sums, err
}

// layout is that of all sets of the run.
func (t *training) layout() batch.Layout {
	var heldOut []batch.Group
	if t.heldOut != nil {
		heldOut = t.heldOut.groups
	}
	return t.Learner.Layout(t.pairs.groups, t.share, t.Train.Micro(), heldOut)
}

func (t *training) tick(ctx context.Context, bar run.Bar) func(done int) error {
	return func(done int) error {
		bar.Step(done, nil)
		return context.Cause(ctx)
	}
}
