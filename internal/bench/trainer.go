package main

import (
	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// form is how posttrain does the step.
type form struct {
	backend    string
	share      bool // both answers share a row with their prompt
	micro      int  // pairs a forward pass; 0: all at once
	checkpoint bool
	bfloat16   bool
	headChunk  int // slots whose logits exist at once; 0: posttrain's default
}

// trainer repeats the step of one problem with posttrain's own Learner.
type trainer struct {
	engine  *backend.Engine
	learner *train.Learner
	problem *problem
	method  *train.Preference
	pairs   []train.Example
	parts   []batch.Part
	dtype   dtypes.DType
}

// openTrainer opens the form's engine and puts the model into it.
func openTrainer(m *model.Model, p *problem, f form) (*trainer, error) {
	e, err := backend.Open(f.backend)
	if err != nil {
		return nil, err
	}
	return newTrainer(e, m, p, f)
}

// newTrainer puts the model into an engine, which the trainer closes.
func newTrainer(e *backend.Engine, m *model.Model, p *problem, f form) (*trainer, error) {
	l, err := train.NewLearner(e, m, f.options())
	if err != nil {
		e.Close()
		return nil, err
	}
	t := &trainer{engine: e, learner: l, problem: p, dtype: f.options().ComputeType()}
	if err := t.prepare(f); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (f form) options() model.GraphOptions {
	o := model.GraphOptions{Checkpoint: f.checkpoint, HeadChunk: f.headChunk}
	if f.bfloat16 {
		o.DType = bfloat16
	}
	return o
}

// prepare cuts the batch into pieces as posttrain does, and measures the reference's log-probs if the problem has none.
func (t *trainer) prepare(f form) (err error) {
	groups, micro := t.problem.groups(), f.micro
	if micro == 0 {
		micro = len(groups)
	}
	layout := t.learner.Layout(groups, f.share, micro)
	t.parts = batch.Split(groups, layout)
	t.method = &train.Preference{Options: t.problem.loss()}
	references := t.problem.references()
	if references == nil {
		references, err = train.PairSums(t.learner, groups, layout, nil)
	}
	for i := range references {
		t.pairs = append(t.pairs, train.Example{Group: groups[i], Reference: references[i]})
	}
	return err
}

// step is one update; it returns the loss before it.
func (t *trainer) step() (loss float64, err error) {
	scale := 1 / float64(t.problem.pairs())
	for _, p := range t.parts {
		part, _, err := t.learner.Accumulate(p.Packed, t.method, t.method.Inputs(data.Pick(t.pairs, p.Members), p.Packed), scale)
		if err != nil {
			return 0, err
		}
		loss += part
	}
	_, err = t.learner.Update(t.problem.rule(), t.problem.LearningRate)
	return loss, err
}

// forward measures the answers' log-probs and returns the loss.
func (t *trainer) forward() (loss float64, err error) {
	for _, p := range t.parts {
		sums, err := t.learner.Sums(p.Packed)
		if err != nil {
			return 0, err
		}
		m := train.NewMetrics()
		if err := t.method.Observe(data.Pick(t.pairs, p.Members), p.Packed, [][]float32{sums}, m); err != nil {
			return 0, err
		}
		loss += m.Sums["loss"] / float64(t.problem.pairs())
	}
	return loss, nil
}

func (t *trainer) close() {
	t.learner.Close()
	t.engine.Close()
}
