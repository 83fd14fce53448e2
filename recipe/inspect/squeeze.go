package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/check"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// squeezePairs are the pairs whose gradients are taken.
const squeezePairs = 64

// squeeze takes both gradients, in a forward and a backward pass over each answer.
func (o Options) squeeze(ctx context.Context, pairs []data.Preference) (*check.Squeeze, error) {
	w, err := recipe.OpenWorld(nil, cmp.Or(o.Backend, "auto"), o.Model, train.Defaults(), recipe.Devices{})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := o.Chat.Apply(w.Tokenizer); err != nil {
		return nil, err
	}
	groups, err := encodeSome(ctx, &batch.Encoder{Tokenizer: w.Tokenizer}, pairs, w.Model.Config.MaxPositions)
	if err != nil {
		return nil, err
	}
	l, err := train.NewLearner(w.Engine, w.Model, w.Graph)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var of [2][]float32
	for a := range of {
		if of[a], err = ascent(ctx, l, answersAt(groups, a)); err != nil {
			return nil, err
		}
	}
	return compare(len(groups), of[0], of[1]), nil
}

// encodeSome encodes pairs from all over the data, those that the model can take.
func encodeSome(ctx context.Context, e *batch.Encoder, pairs []data.Preference, positions int) ([]batch.Group, error) {
	n := min(len(pairs), squeezePairs)
	some := make([]data.Preference, n)
	for i := range some {
		some[i] = pairs[i*len(pairs)/n]
	}
	groups, err := recipe.Encode(ctx, e, some, (*batch.Encoder).Preference)
	if err != nil {
		return nil, err
	}
	if groups = data.Pick(groups, batch.Limit(groups, batch.Defaults(), positions).Keep); len(groups) == 0 {
		return nil, errors.New("no pair fits the model's positions: want shorter ones")
	}
	return groups, nil
}

// answersAt gives each prompt answer a alone.
func answersAt(groups []batch.Group, a int) []batch.Group {
	one := make([]batch.Group, len(groups))
	for i, g := range groups {
		one[i] = batch.Group{Prompt: g.Prompt, Answers: g.Answers[a : a+1]}
	}
	return one
}

// ascent is the gradient of the sum of the answers' log-probs, taken pair by pair.
func ascent(ctx context.Context, l *train.Learner, groups []batch.Group) ([]float32, error) {
	o := train.Defaults()
	o.BatchSize, o.MicroBatchSize, o.LearningRate, o.SharePrefix = len(groups), min(8, len(groups)), 1, ""
	method := &train.SFT{Groups: groups}
	loop := &train.Loop{Course: train.Course{Learner: l}, Options: o,
		Train: train.Examples{Method: method, Groups: groups, Sources: make([]string, len(groups))}}
	if _, err := loop.Seek(0); err != nil {
		return nil, err
	}
	all := make([]int, len(groups))
	for i := range all {
		all[i] = i
	}
	g, _, err := loop.Gradient(all)
	tokens := float32(method.Weight(all))
	for i := range g {
		g[i] *= -tokens // of the mean loss of a token
	}
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("%w while gradients were taken", recipe.ErrInterrupted)
	}
	return g, err
}

func compare(n int, chosen, rejected []float32) *check.Squeeze {
	var cc, rr, cr, change, most float64
	for i := range chosen {
		c, r := float64(chosen[i]), float64(rejected[i])
		cc, rr, cr, most = cc+c*c, rr+r*r, cr+c*r, most+math.Abs(c)
		if c != r {
			change += c * math.Copysign(1, c-r)
		}
	}
	s := &check.Squeeze{Pairs: n}
	if cc > 0 && rr > 0 {
		s.Alignment, s.Rise = cr/math.Sqrt(cc*rr), change/most
	}
	return s
}
