package preference

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/online"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/scorer"
	"github.com/posttrain/posttrain/train"
)

// onlineTraining is a run in rounds. In each the model answers prompts, a reward scores the answers, and the model
// trains on the pairs of the best and the worst.
type onlineTraining struct {
	*training
	maker online.Maker
	loop  *train.Loop
}

// round is a round under way.
type round struct {
	train.Round
	tally scorer.Tally
	begun time.Time
}

// learnOnline trains round by round. A run that is continued finds what its round has made in the run folder.
func (t *training) learnOnline(ctx context.Context) (*recipe.Result, error) {
	o := &onlineTraining{training: t, maker: online.Maker{Options: t.o.Online, Job: t.Job}}
	var err error
	if o.maker.Prompts, err = t.o.Online.Read(t.Job, t.o.Data.Mix, t.promptLimit()); err != nil {
		return nil, err
	}
	if err := t.loadHeldOut(ctx); err != nil {
		return nil, err
	}
	if err := t.Job.Open(); err != nil {
		return nil, err
	}
	t.Ready(0)
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
	o.loop = &train.Loop{Course: t.Course(nil), Options: t.o.Train, Eval: t.heldOut.examples(t.o.Loss),
		Data: o.identify()}
	if err := t.Resume(o.loop); err != nil {
		return nil, err
	}
	return o.learn(ctx)
}

// promptLimit is the most tokens of a prompt: the configuration's, and room for one more in the model.
func (t *training) promptLimit() int {
	room := t.Model.Config.MaxPositions - 1
	if most := t.o.Data.MaxPromptTokens; most > 0 {
		return min(most, room)
	}
	return room
}

// loadHeldOut reads the pairs of data.eval, if any.
func (t *training) loadHeldOut(ctx context.Context) error {
	path := t.o.Data.Eval
	if path == "" {
		return nil
	}
	pairs, err := t.read(path)
	if err != nil {
		return err
	}
	if t.rewards, err = t.o.Data.Fit(pairs); err != nil && t.o.Loss.NeedsGap() {
		return err
	}
	t.heldOut, err = t.encode(ctx, path, pairs)
	return err
}

// open opens the sampler, which draws from the weights that learn, and the reward.
func (o *onlineTraining) open() (closeAll func(), err error) {
	sampler := rollout.NewCached(o.Engine, o.Model.Config, o.Learner.Weights,
		rollout.Options{Graph: o.Graph, Decoder: o.Tokenizer, CacheGB: o.maker.Options.CacheGB})
	longest := 0
	for _, p := range o.maker.Prompts {
		longest = max(longest, len(p.Tokens))
	}
	plan, err := sampler.Plan(o.maker.AtOnce(), longest, o.maker.Options.MaxNew)
	if err == nil {
		o.Say("answers: %v", plan)
		o.maker.Sampler = sampler
		place := scorer.Place{Cache: o.Run.Path("replies.jsonl"), Warn: o.Warn}
		o.maker.Reward, err = scorer.Open(o.maker.Options.Reward, place)
	}
	if err != nil {
		sampler.Close()
		return nil, fmt.Errorf("online.%w", err)
	}
	return func() { o.maker.Reward.Close(); sampler.Close() }, nil
}

// measureHeldOut measures the held-out pairs under the model before training, or the reference that the options name.
func (o *onlineTraining) measureHeldOut(ctx context.Context) error {
	t := o.training
	if t.heldOut == nil || t.o.Loss.ReferenceFree() {
		return nil
	}
	learner := t.Learner
	if t.o.Reference != "" {
		m, err := t.loadReference()
		if err != nil {
			return err
		}
		if learner, err = train.NewLearner(t.Engine, m, t.Graph); err != nil {
			return err
		}
		defer learner.Close()
		m.Release()
	}
	t.pairs, t.when = t.heldOut, "before the first round"
	t.share = t.SharesPrompts(t.heldOut.groups)
	t.Say("reference log-probs of %d held-out pairs", len(t.heldOut.groups))
	var err error
	t.heldOut.reference, err = t.sums(ctx, run.ReferenceEvalName, learner, t.heldOut.groups)
	return err
}

// identify is a hash of what the pairs of all rounds come from, beside the configuration.
func (o *onlineTraining) identify() string {
	h := sha256.New()
	online.Hash(h, o.maker.Prompts)
	if t := o.training; t.heldOut != nil {
		_ = json.NewEncoder(h).Encode([]any{t.heldOut.groups, t.heldOut.gaps})
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// learn goes through the rounds that are left.
func (o *onlineTraining) learn(ctx context.Context) (*recipe.Result, error) {
	number, first := o.loop.LastRound()
	for ; number < o.maker.Options.Rounds; number++ {
		r, err := o.begin(ctx, number, first)
		if err != nil {
			return nil, err
		}
		if err := o.Continue(ctx, o.loop); err != nil {
			return nil, err
		}
		if err := o.logAfter(r); err != nil {
			return nil, err
		}
		first = r.Last
	}
	records, err := o.Run.ReadMetrics()
	if err != nil {
		return nil, err
	}
	pairs := 0
	for _, r := range records {
		pairs += int(r.Values[metricPairs])
	}
	return o.Finish(o.loop, pairs, func(records []run.Record) (string, error) { return o.report(records), nil })
}

// begin makes the pairs of a round with their references, and enters it. A round that is continued has both in files.
func (o *onlineTraining) begin(ctx context.Context, number, first int) (*round, error) {
	t, begun := o.training, time.Now()
	t.Say("round %d of %d: %d answers to each of %d prompts", number+1, o.maker.Options.Rounds, o.maker.Options.Samples,
		len(o.maker.Part(number)))
	pairs, tally, err := o.maker.Make(ctx, number)
	if err != nil {
		return nil, err
	}
	t.Say("round %d: %v", number+1, tally)
	if t.rewards, err = t.o.Data.Fit(pairs); err != nil && t.o.Loss.NeedsGap() {
		return nil, fmt.Errorf("round %d of %d: %w", number+1, o.maker.Options.Rounds, err)
	}
	if t.pairs, err = t.encode(ctx, fmt.Sprintf("round %d", number+1), pairs); err != nil {
		return nil, err
	}
	t.share = t.SharesPrompts(t.pairs.groups)
	r := &round{tally: tally, begun: begun, Round: train.Round{Number: number, First: first,
		Last: first + t.o.Train.Passes(len(t.pairs.groups)), Epoch: number * t.o.Train.Epochs}}
	r.Total = r.Last
	for later := number + 1; later < o.maker.Options.Rounds; later++ {
		r.Total += t.o.Train.Passes(len(o.maker.Part(later)))
	}
	if err := o.measureRound(ctx, r); err != nil {
		return nil, err
	}
	r.Train, o.loop.Share = *t.pairs.examples(t.o.Loss), t.share
	o.loop.Enter(r.Round)
	if number == 0 {
		t.SayShapes(o.loop.Layout())
	}
	return r, o.logBefore(r)
}

// referenceName is the file of round n's log-probs under the reference.
func referenceName(n int) string { return fmt.Sprintf("reference-%d.safetensors", n+1) }

// own names the files that are written under a temporary name first, to the run folder.
func (o *onlineTraining) own() error {
	for n := range o.maker.Options.Rounds {
		if err := o.Run.Own(referenceName(n), run.PartOf(referenceName(n))); err != nil {
			return err
		}
	}
	return o.maker.Own()
}

// measureRound measures the reference's log-probs of a round's pairs. Where the round has begun to train, they are in a
// file.
func (o *onlineTraining) measureRound(ctx context.Context, r *round) (err error) {
	t, pairs := o.training, o.pairs
	if t.o.Loss.ReferenceFree() {
		return nil
	}
	name := referenceName(r.Number)
	if o.loop.Step() > r.First {
		pairs.reference, err = train.ReadPairSums(o.Run.Path(name), len(t.pairs.groups))
		return err
	}
	learner := t.Learner
	if o.isReference(r) {
		pairs.tolerance = t.Tolerance()
	} else {
		m, err := o.openReference()
		if err != nil {
			return err
		}
		defer m.Release()
		if learner, err = train.NewLearner(t.Engine, m, t.Graph); err != nil {
			return err
		}
		defer learner.Close()
	}
	t.when = fmt.Sprintf("in round %d of %d", r.Number+1, o.maker.Options.Rounds)
	t.Say("reference log-probs of %d pairs", len(t.pairs.groups))
	pairs.reference, err = t.sums(ctx, name, learner, t.pairs.groups)
	return err
}

// isReference says that a round begins with the weights of the reference.
func (o *onlineTraining) isReference(r *round) bool {
	return o.maker.Options.Reference == online.Round || r.Number == 0 && o.o.Reference == ""
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
func (t *training) watchPairs() train.Examples {
	places := spread(len(t.pairs.groups), watchedPairs)
	some := t.pairs.subset(places)
	if t.pairs.reference != nil {
		some.reference = data.Pick(t.pairs.reference, places)
	}
	return *some.examples(t.o.Loss)
}
