package preference

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/scorer"
	"github.com/posttrain/posttrain/train"
)

// onlineTraining is a run in rounds. In each the model answers prompts, a reward scores the answers, and the model
// trains on the pairs of the best and the worst. What is sampled and scored is in files of the run folder, from which
// an interrupted run continues: the same weights give the same answers, bit for bit.
type onlineTraining struct {
	*training
	prompts []ask.Question
	sampler *rollout.Cached // of the weights that learn
	reward  ask.Judge
	id      string // of what the pairs of all rounds come from
}

// round is a round under way.
type round struct {
	number      int // from 0
	first, last int // steps done before and after it
	total       int // steps of the whole run as far as is known, over which the learning rate's schedule goes
	tally       ask.Tally
	begun       time.Time
}

// Numbers of a round that checkpoints keep.
const roundKey, firstKey = "round", "step before the round"

// learnOnline trains round by round. A run that is continued finds what its round has made in the run folder.
func (t *training) learnOnline(ctx context.Context) (*recipe.Result, error) {
	o, limit := &onlineTraining{training: t}, recipe.PromptLimit(t.Model.Config.MaxPositions, t.o.Data.MaxPromptTokens)
	var err error
	if o.prompts, err = t.o.Online.readPrompts(t.Run, t.o.Data.Files, limit); err != nil {
		return nil, err
	}
	if err := t.o.Online.Reward.Try(ctx, o.prompts[0]); err != nil {
		return nil, err
	}
	if err := t.loadHeldOut(ctx); err != nil {
		return nil, err
	}
	t.Choose(len(o.part(0)), t.o.Online.Rounds, "prompts of a round", t.set.Held != nil)
	if err := t.Start(); err != nil {
		return nil, err
	}
	t.ReportMemory(0)
	if err := o.own(); err != nil {
		return nil, err
	}
	closeAll, err := o.open()
	if err != nil {
		return nil, err
	}
	defer closeAll()
	if err := o.measureHeldOut(ctx); err != nil {
		return nil, err
	}
	o.id = o.identify()
	t.pairTrainer, err = t.Trainer(&train.Dataset{Method: t.method(), Held: t.set.Held, ID: o.id})
	if err != nil {
		return nil, err
	}
	if err := t.Resume(t.pairTrainer); err != nil {
		return nil, err
	}
	return o.learnRounds(ctx)
}

// loadHeldOut reads the pairs of data.eval, if any.
func (t *training) loadHeldOut(ctx context.Context) error {
	path := t.o.Data.EvalFile
	if path == "" {
		return nil
	}
	pairs, err := t.read(path)
	if err != nil {
		return err
	}
	t.set.Held, err = t.encodePairs(ctx, path, pairs)
	return err
}

// encodePairs fits the prior to pairs and encodes them.
func (t *training) encodePairs(ctx context.Context, name string, pairs []data.Preference) ([]train.Example, error) {
	e := t.pairs()
	if err := e.Fit(pairs); err != nil {
		return nil, err
	}
	return e.Examples(ctx, t.Run, name, pairs)
}

// open opens the sampler, which draws from the weights that learn, and the reward.
func (o *onlineTraining) open() (closeAll func(), err error) {
	sampler := o.Sampler(o.o.Online.CacheGB)
	longest := 0
	for _, p := range o.prompts {
		longest = max(longest, len(p.Tokens))
	}
	plan, err := sampler.Plan(ask.AtOnce(o.o.Online.Samples)*o.o.Online.Samples, longest, o.o.Online.MaxNew)
	if err == nil {
		o.Say("answers: %v", plan)
		o.sampler = sampler
		place := scorer.Caller{Cache: o.Folder.Path("replies.jsonl"), Warn: o.Warn, Say: o.Say}
		o.reward, err = scorer.Open(o.o.Online.Reward, place)
	}
	if err != nil {
		sampler.Close()
		return nil, fmt.Errorf("online.%w", err)
	}
	return func() { o.reward.Close(); sampler.Close() }, nil
}

// measureHeldOut measures the held-out pairs under the model before training, or the reference that the options name.
func (o *onlineTraining) measureHeldOut(ctx context.Context) (err error) {
	t := o.training
	if t.set.Held == nil || t.o.Loss.ReferenceFree() {
		return nil
	}
	learner := t.Learner
	if t.o.Reference != "" {
		if learner, err = t.upload(t.loadReference()); err != nil {
			return err
		}
		defer learner.Close()
	}
	all := &training{Run: t.Run, o: t.o, set: train.Dataset{Method: t.method(), Examples: t.set.Held}}
	if err := all.prepare(); err != nil {
		return err
	}
	all.when = "before the first round"
	t.Say("reference log-probs of %d held-out pairs", len(t.set.Held))
	return all.refer(ctx, run.ReferenceEvalName, learner, t.set.Held)
}

// identify is a hash of what the pairs of all rounds come from, beside the configuration.
func (o *onlineTraining) identify() string {
	h := sha256.New()
	hashPrompts(h, o.prompts)
	for _, x := range o.set.Held {
		x.Reference = [2]float32{}
		_ = json.NewEncoder(h).Encode(x)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// learnRounds goes through the rounds that are left.
func (o *onlineTraining) learnRounds(ctx context.Context) (*recipe.Result, error) {
	number, first := int(o.pairTrainer.Kept[roundKey]), int(o.pairTrainer.Kept[firstKey]) // 0 in a new run
	for ; number < o.o.Online.Rounds; number++ {
		r, err := o.begin(ctx, number, first)
		if err != nil {
			return nil, err
		}
		if err := o.Continue(ctx, o.pairTrainer); err != nil {
			return nil, err
		}
		if err := o.logAfter(r); err != nil {
			return nil, err
		}
		first = r.last
	}
	records, err := o.Folder.ReadMetrics()
	if err != nil {
		return nil, err
	}
	pairs := 0
	for _, r := range records {
		pairs += int(r.Values[metricPairs])
	}
	return o.FinishExamples(o.pairTrainer, pairs, len(o.set.Held), o.report)
}

// begin makes the pairs of a round with their references, and enters it. A round that is continued has both in files.
func (o *onlineTraining) begin(ctx context.Context, number, first int) (*round, error) {
	t, begun := o.training, time.Now()
	t.Say("round %d of %d: %d answers to each of %d prompts", number+1, o.o.Online.Rounds, o.o.Online.Samples,
		len(o.part(number)))
	pairs, tally, err := o.make(ctx, number)
	if err != nil {
		return nil, err
	}
	t.Say("round %d: %v", number+1, tally)
	examples, err := t.encodePairs(ctx, fmt.Sprintf("round %d", number+1), pairs)
	if err != nil {
		return nil, fmt.Errorf("round %d of %d: %w", number+1, o.o.Online.Rounds, err)
	}
	passes := t.Train.Passes
	r := &round{number: number, first: first, last: first + passes(len(examples)), tally: tally, begun: begun}
	r.total = r.last
	for later := number + 1; later < o.o.Online.Rounds; later++ {
		r.total += passes(len(o.part(later)))
	}
	if err := o.enter(r, examples); err != nil {
		return nil, err
	}
	if err := o.measureRound(ctx, r); err != nil {
		return nil, err
	}
	return r, o.logBefore(r)
}

// enter makes the trainer learn from a round's pairs. Weights, moments, the count of steps and the schedule of the
// learning rate go on over all rounds.
func (o *onlineTraining) enter(r *round, examples []train.Example) error {
	t := o.pairTrainer
	o.set = train.Dataset{Method: o.method(), Examples: examples, Held: o.set.Held, Steps: r.total, ID: o.id,
		Share: o.SharesPrompts(train.Groups(examples))}
	t.Source, t.Last = &o.set, r.last
	if t.State.Step == r.first {
		t.State.Epoch, t.State.Position = r.number*o.o.Train.Epochs, 0
	}
	if err := t.Start(); err != nil {
		return err
	}
	t.Kept[roundKey], t.Kept[firstKey] = float64(r.number), float64(r.first)
	return nil
}

// referenceName is the file of round n's log-probs under the reference.
func referenceName(n int) string { return fmt.Sprintf("reference-%d.safetensors", n+1) }

// own names the files that are written under a temporary name first, to the run folder.
func (o *onlineTraining) own() error {
	for n := range o.o.Online.Rounds {
		if err := o.Folder.Own(referenceName(n), run.PartOf(referenceName(n)), tableName(n)); err != nil {
			return err
		}
	}
	return nil
}

// measureRound measures the reference's log-probs of a round's pairs. Where the round has begun to train, they are in a
// file.
func (o *onlineTraining) measureRound(ctx context.Context, r *round) (err error) {
	t, name := o.training, referenceName(r.number)
	if t.o.Loss.ReferenceFree() {
		return nil
	}
	if t.pairTrainer.Step() > r.first {
		sums, err := train.ReadPairSums(t.Folder.Path(name), len(t.set.Examples))
		for i := range sums {
			t.set.Examples[i].Reference = sums[i]
		}
		return err
	}
	learner := t.Learner
	if !o.isReference(r) {
		if learner, err = t.upload(o.openReference()); err != nil {
			return err
		}
		defer learner.Close()
	}
	t.when = fmt.Sprintf("in round %d of %d", r.number+1, o.o.Online.Rounds)
	t.Say("reference log-probs of %d pairs", len(t.set.Examples))
	return t.refer(ctx, name, learner, t.set.Examples)
}

// isReference says that a round begins with the weights of the reference.
func (o *onlineTraining) isReference(r *round) bool {
	return o.o.Online.Reference == eachRound || r.number == 0 && o.o.Reference == ""
}

// openReference loads the reference where it is not the model that learns.
func (o *onlineTraining) openReference() (*model.Model, error) {
	if o.o.Reference != "" {
		return o.loadReference()
	}
	return o.Before()
}

// watched pairs of a round are measured before and after it.
const watchedPairs = 256

// watchPairs are some pairs of a round, spread over all.
func (t *training) watchPairs() []train.Example {
	n := len(t.set.Examples)
	watched := make([]train.Example, min(n, watchedPairs))
	for i := range watched {
		watched[i] = t.set.Examples[i*n/len(watched)]
	}
	return watched
}
