package rewardmodel

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/train"
)

// Run trains a reward model on preference pairs: it loads model and pairs, trains, saves the best model and reports how
// often it prefers the chosen answer. A nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*recipe.Result, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	recipe.PinBackend(&o.Backend, o.Model, o.Train, o.Devices, false, r)
	if err := o.Place.PinChat(&o.Chat, o.Model); err != nil {
		return nil, err
	}
	j, err := recipe.NewJob(recipe.Setup{
		Command: Command, Title: "Reward model", Backend: o.Backend, Folder: o.Model, Load: o.load,
		Adapting: o.Adapting, Chat: o.Chat, Devices: o.Devices, Train: o.Train, Seed: o.Seed, Tracking: o.Tracking,
		Resolved: o.Resolved(), Place: o.Place,
	}, r)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	t := &training{Job: j, o: o}
	pairs, heldOut, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	if err := j.SayMix(o.Data.Mix, pairs.Mix); err != nil {
		return nil, err
	}
	if err := j.Open(); err != nil {
		return nil, err
	}
	j.Ready(0)
	l := &train.Loop{Course: j.Course(nil), Options: o.Train, Train: *pairs, Eval: heldOut,
		Share: j.SharesPrompts(pairs.Groups)}
	j.SayShapes(l.Layout())
	return j.Learn(ctx, l, func(records []run.Record) (string, error) { return report(records, heldOut), nil })
}

// load opens a reward model, or a language model, which gets a new head. As in TRL, the tokenizer's pad token, or its
// end-of-text token, then is what a score passes over at the end of a text.
func (o *Options) load(folder string) (*model.Model, *tokenizer.Tokenizer, error) {
	m, t, err := local.LoadAny(folder)
	if err != nil || m.Config.Reward {
		return m, t, err
	}
	m = m.ToReward(o.Seed)
	id, ok := t.Pad()
	if !ok {
		id, ok = t.EOS()
	}
	if m.Config.Pad = nil; ok {
		pad := int(id)
		m.Config.Pad = &pad
	}
	return m, t, nil
}

// training is a run on its way.
type training struct {
	*recipe.Job
	o Options
}

// load reads the training pairs and the held-out ones, which may be nil.
func (t *training) load(ctx context.Context) (pairs, heldOut *train.Examples, err error) {
	d := t.o.Data
	pairs, err = t.encodeAll(ctx)
	switch {
	case err != nil:
	case d.Eval != "":
		heldOut, err = t.encode(ctx, d.Eval)
	case d.EvalFraction > 0:
		kept, held, err := d.Split(len(pairs.Groups), "pairs", t.Seed)
		return subset(pairs, kept), subset(pairs, held), err
	}
	return pairs, heldOut, err
}

func subset(x *train.Examples, keep []int) *train.Examples {
	method := *x.Method.(*train.Reward)
	if method.Margins != nil {
		method.Margins = data.Pick(method.Margins, keep)
	}
	return &train.Examples{Method: &method, Groups: data.Pick(x.Groups, keep), Sources: data.Pick(x.Sources, keep),
		Mix: x.Mix.Pick(keep)}
}

// encodeAll encodes what is trained on.
func (t *training) encodeAll(ctx context.Context) (*train.Examples, error) {
	d := t.o.Data
	sources, err := recipe.Each(d.Mix, func(name string) (*train.Examples, error) { return t.encode(ctx, name) })
	if err != nil {
		return nil, err
	}
	method := &train.Reward{Options: losses.BradleyTerry{Center: t.o.Loss.Center}}
	all, sizes := &train.Examples{Method: method}, []int(nil)
	for _, s := range sources {
		all.Groups, all.Sources = append(all.Groups, s.Groups...), append(all.Sources, s.Sources...)
		method.Margins = append(method.Margins, s.Method.(*train.Reward).Margins...)
		sizes = append(sizes, len(s.Groups))
	}
	all.Mix = d.Of(sizes...)
	return all, nil
}

// encode reads and encodes pairs, and drops those that are too long.
func (t *training) encode(ctx context.Context, path string) (*train.Examples, error) {
	pairs, err := t.read(path)
	if err != nil {
		return nil, err
	}
	method := &train.Reward{Options: losses.BradleyTerry{Center: t.o.Loss.Center}}
	if method.Margins, err = t.o.Loss.margins(pairs); err != nil {
		return nil, err
	}
	e, pad := batch.Encoder{Tokenizer: t.Tokenizer}, t.Model.Config.Pad
	x := &train.Examples{Method: method}
	x.Groups, err = recipe.Encode(ctx, &e, pairs, func(e *batch.Encoder, p data.Preference) (batch.Group, error) {
		return e.Scored(p.Source, pad, p.Prompt, p.Chosen, p.Rejected)
	})
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		x.Sources = append(x.Sources, p.Source)
	}
	keep, err := t.limit(path, x.Groups)
	if err != nil {
		return nil, err
	}
	return subset(x, keep), nil
}

func (t *training) read(path string) (pairs []data.Preference, err error) {
	var report *data.Report
	if path == embedded.Name {
		pairs, report, err = data.ReadPreferencesFS(embedded.Files, embedded.Pairs, t.o.Data.PreferenceOptions)
	} else {
		pairs, report, err = data.ReadPreferences(path, t.o.Data.PreferenceOptions)
	}
	if err == nil {
		t.Say("%s", report)
	}
	return pairs, err
}

// margins gives each pair its margin; nil: none has one.
func (l Loss) margins(pairs []data.Preference) (margins []float64, err error) {
	if l.Margin == "none" {
		return nil, nil
	}
	for _, p := range pairs {
		if !p.Scored {
			return nil, fmt.Errorf("%s: the pair has no scores: loss.margin scores wants them in every row", p.Source)
		}
		margins = append(margins, l.MarginScale*(p.ChosenScore-p.RejectedScore))
	}
	return margins, nil
}

// limit lists the pairs that are short enough for the model and data.max_tokens.
func (t *training) limit(path string, groups []batch.Group) (keep []int, err error) {
	most := t.Model.Config.MaxPositions
	if n := t.o.Data.MaxTokens; n > 0 {
		most = min(most, n)
	}
	for i, g := range groups {
		if g.ScoredTokens() <= most {
			keep = append(keep, i)
		}
	}
	t.Say("%s: %d kept, %d dropped as longer than %d tokens", path, len(keep), len(groups)-len(keep), most)
	if len(keep) == 0 {
		return nil, fmt.Errorf("%s: no pair is left: all have more than %d tokens (data.max_tokens %d, where 0 is no "+
			"limit; the model takes %d tokens)", path, most, t.o.Data.MaxTokens, t.Model.Config.MaxPositions)
	}
	return keep, nil
}

// report says how often the chosen answer scores higher.
func report(records []run.Record, heldOut *train.Examples) string {
	accuracy, known := recipe.ChangeOf(records, train.MetricAccuracy)
	margin, _ := recipe.ChangeOf(records, train.MetricMargin)
	if !known {
		return ""
	}
	where, n := "training", 0
	if accuracy.Held {
		where, n = fmt.Sprintf("%d held-out", len(heldOut.Groups)), len(heldOut.Groups)
	}
	return fmt.Sprintf("On %s pairs the chosen answer scores higher in %s at the end, %.3f at the start; the mean "+
		"margin went from %.3f to %.3f.\n", where, recipe.Accuracy(accuracy.Last, n), accuracy.First, margin.First,
		margin.Last)
}
