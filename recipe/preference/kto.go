package preference

import (
	"context"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// This file is what kto has in the place of pairs: single answers with labels, each beside a mismatched one.

// loadAnswers loads the training answers and the held-out ones, and gives each a mismatched one.
func (t *training) loadAnswers(ctx context.Context) (err error) {
	d := t.o.Data
	sets, err := recipe.Each(d.Mix, func(name string) (*pairSet, error) { return t.encodeAnswers(ctx, name) })
	if err != nil {
		return err
	}
	t.pairs = join(d.Mix, sets)
	if d.Eval != "" {
		t.heldOut, err = t.encodeAnswers(ctx, d.Eval)
	} else if d.EvalFraction > 0 {
		all := t.pairs
		t.pairs, t.heldOut, err = all.holdOutPrompts(d.Source, t.Seed)
	}
	if err != nil {
		return err
	}
	desirable, undesirable := t.pairs.count()
	if advice := t.o.Loss.AdviseWeights(desirable, undesirable); advice != "" {
		t.Warn("%s", advice)
	}
	answers := t.pairs.groups
	if err = t.mismatch(t.pairs, nil, t.Train.Shuffle); err == nil && t.heldOut != nil {
		err = t.mismatch(t.heldOut, answers, false)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.Train, err)
	}
	return nil
}

// encodeAnswers reads answers with labels, encodes them, and applies the limits.
func (t *training) encodeAnswers(ctx context.Context, path string) (*pairSet, error) {
	rows, report, err := readAnswers(path)
	if err != nil {
		return nil, err
	}
	t.Say("%s", report)
	e, all := batch.Encoder{Tokenizer: t.Tokenizer}, &pairSet{}
	all.groups, err = recipe.Encode(ctx, &e, rows, func(e *batch.Encoder, r data.Labelled) (batch.Group, error) {
		return e.Demonstration(r.Demonstration, false)
	})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		all.sources, all.desirable = append(all.sources, r.Source), append(all.desirable, r.Desirable)
	}
	keep, err := t.Limit(path, all.groups, t.o.Data.Options, e.Drift)
	if err != nil {
		return nil, err
	}
	return all.subset(keep), nil
}

func readAnswers(path string) ([]data.Labelled, *data.Report, error) {
	if path == embedded.Name {
		return data.ReadLabelledFS(embedded.Files, embedded.Pairs)
	}
	return data.ReadLabelled(path)
}

// readDesirable reads the answers whose label is true.
func readDesirable(path string) (rows []data.Demonstration, err error) {
	all, _, err := readAnswers(path)
	for _, r := range all {
		if r.Desirable {
			rows = append(rows, r.Demonstration)
		}
	}
	return rows, err
}

// holdOutPrompts holds a share of the prompts out, with all their answers.
func (p *pairSet) holdOutPrompts(s recipe.Source, seed uint64) (kept, heldOut *pairSet, err error) {
	var prompts [][]int // answers
	at := map[string]int{}
	for i, g := range p.groups {
		key := fmt.Sprint(g.Prompt)
		if _, ok := at[key]; !ok {
			at[key], prompts = len(prompts), append(prompts, nil)
		}
		prompts[at[key]] = append(prompts[at[key]], i)
	}
	first, second, err := s.Split(len(prompts), "prompts", seed)
	if err != nil {
		return nil, nil, err
	}
	answers := func(chosen []int) (all []int) {
		for _, k := range chosen {
			all = append(all, prompts[k]...)
		}
		return all
	}
	return p.subset(answers(first)), p.subset(answers(second)), nil
}

// count counts the answers of both labels.
func (p *pairSet) count() (desirable, undesirable int) {
	for _, yes := range p.desirable {
		if yes {
			desirable++
		} else {
			undesirable++
		}
	}
	return desirable, undesirable
}

// mismatch gives each group a second answer, that of another one of its batch in the first epoch, or of more groups.
func (t *training) mismatch(p *pairSet, more []batch.Group, shuffle bool) error {
	most := t.o.Data.MaxTokens
	if positions := t.Model.Config.MaxPositions; positions > 0 && (most == 0 || most > positions+1) {
		most = positions + 1 // the last token is not fed
	}
	all := slices.Concat(p.groups, more)
	mismatched, err := train.Mismatch(all, train.Order(len(all), t.Seed, 0, shuffle), t.Train.BatchSize, most)
	if err != nil {
		return err
	}
	m := train.KTO{Mismatched: mismatched}
	p.groups = m.Both(p.groups)
	return nil
}

// answers are the examples of kto.
func (p *pairSet) answers(o losses.Options) *train.Examples {
	m := &train.KTO{Options: o, Desirable: p.desirable, Reference: p.reference, Tolerance: p.tolerance}
	own := make([]batch.Group, len(p.groups))
	for i, g := range p.groups {
		own[i] = batch.Group{Prompt: g.Prompt, Answers: g.Answers[:1]}
		m.Mismatched = append(m.Mismatched, batch.Group{Prompt: g.Prompt, Answers: g.Answers[1:]})
	}
	return &train.Examples{Method: m, Groups: own, Sources: p.sources, Mix: p.mix}
}

// sampleAnswers are training answers of both labels, spread over the whole set.
func (t *training) sampleAnswers() (indices []int) {
	for _, label := range []bool{true, false} {
		var of []int
		for i, yes := range t.pairs.desirable {
			if yes == label {
				of = append(of, i)
			}
		}
		for _, i := range spread(len(of), sampleSize/2) {
			indices = append(indices, of[i])
		}
	}
	return indices
}

// reportAnswers says how the log-probs of the sample changed.
func (t *training) reportAnswers(before, after [][2]float32) string {
	var change [2]recipe.Change // of desirable and undesirable answers
	var counts [2]float64
	for i, k := range t.sample() {
		side := 0
		if !t.pairs.desirable[k] {
			side = 1
		}
		change[side].Last += float64(after[i][0] - before[i][0])
		counts[side]++
	}
	text := "On training answers, measured before and after:"
	for side, what := range []string{"desirable", "undesirable"} {
		if counts[side] == 0 {
			return text + fmt.Sprintf(" the set has no %s one.\n", what)
		}
		change[side].Last /= counts[side]
		text += fmt.Sprintf(" log p of %v %s ones %s;", counts[side], what, change[side].Amount())
	}
	return text[:len(text)-1] + ".\n"
}
