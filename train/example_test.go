package train_test

import (
	"context"
	"fmt"
	"log"
	"math"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// withLearner calls f with a tiny random model in the Go engine; model.Load opens a folder instead.
func withLearner(f func(l *train.Learner) error) {
	e, err := backend.Open("go")
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	config, err := testkit.Llama()
	if err != nil {
		log.Fatal(err)
	}
	l, err := train.NewLearner(e, model.Init(config, 1), model.GraphOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	if err := f(l); err != nil {
		log.Fatal(err)
	}
}

// pairs are prompts with two answers, the chosen one first, as token ids.
var pairs = []train.Group{
	{Prompt: []int32{5, 6}, Answers: [][]int32{{7, 8, 1}, {9, 1}}},
	{Prompt: []int32{5, 10}, Answers: [][]int32{{11, 1}, {12, 13, 1}}},
}

// One update on demonstrations, by hand.
func ExampleLearner() {
	withLearner(func(l *train.Learner) error {
		groups := []train.Group{{Prompt: []int32{5, 6}, Answers: [][]int32{{7, 8, 1}}}}
		method, p := train.SFT{}, batch.Pack(groups, batch.Layout{})
		first, err := l.Sums(p)
		if err != nil {
			return err
		}
		if _, _, err := l.Accumulate(p, method, nil, 1/float64(len(groups[0].Answers[0]))); err != nil {
			return err
		}
		if _, err := l.Update(train.Defaults().AdamW(), 1e-2); err != nil {
			return err
		}
		then, err := l.Sums(p)
		if err != nil {
			return err
		}
		fmt.Println("the answer became likelier:", then[0] > first[0])
		return nil
	})
	// Output: the answer became likelier: true
}

// DPO on two pairs. Nothing is written, since the trainer has no Folder.
func ExampleTrainer() {
	withLearner(func(l *train.Learner) error { return printLosses(l) })
	// Output: the loss fell below ln 2 = 0.69: true
}

// printLosses trains with DPO and says whether the loss fell.
func printLosses(l *train.Learner) error {
	o := losses.Defaults(losses.DPO)
	o.Prior = losses.None
	reference, err := train.PairSums(l, pairs, l.Layout(pairs, false, 0), nil)
	if err != nil {
		return err
	}
	set := &train.Dataset{Method: &train.Preference{Options: o}}
	for i, g := range pairs {
		set.Examples = append(set.Examples, train.Example{Group: g, Reference: reference[i]})
	}
	t := &train.Trainer{Learner: l, Source: set, Options: train.Defaults(), Seed: 1}
	t.Options.MaxSteps, t.Options.BatchSize, t.Options.LearningRate = 20, 2, 1e-2
	last := math.Inf(1)
	t.OnStep = func(_, _ int, values map[string]float64) { last = values["loss"] }
	if err := t.Run(context.Background()); err != nil {
		return err
	}
	fmt.Println("the loss fell below ln 2 = 0.69:", last < math.Ln2)
	return nil
}
