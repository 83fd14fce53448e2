package preference

import (
	"context"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// This file is what kto has in the place of pairs: single answers with labels, each beside a mismatched one.

// loadAnswers loads the training answers and the held-out ones, and gives each a mismatched one.
func (t *training) loadAnswers(ctx context.Context) (err error) {
	t.set.Examples, t.set.Held, err = recipe.Load(ctx, t.Run, t.o.Data.Source, recipe.Encoding[data.Labelled]{
		Prompts: true, Limit: t.limitPairs,
		Read: func(path string) ([]data.Labelled, error) {
			rows, report, err := t.o.Data.readAnswers(path)
			if err == nil {
				t.Say("%s", report)
			}
			return rows, err
		},
		Encode: func(e *batch.Encoder, r data.Labelled) (train.Example, error) {
			g, err := e.Demonstration(r.Demonstration, batch.Turns)
			return train.Example{Group: g, Desirable: r.Desirable, Source: r.Source}, err
		},
	})
	if err != nil {
		return err
	}
	desirable := 0
	for _, x := range t.set.Examples {
		if x.Desirable {
			desirable++
		}
	}
	if advice := t.o.Loss.AdviseWeights(desirable, len(t.set.Examples)-desirable); advice != "" {
		t.Warn("%s", advice)
	}
	if err = t.mismatch(t.set.Examples, nil, t.Train.Shuffle); err == nil && t.set.Held != nil {
		err = t.mismatch(t.set.Held, t.set.Examples, false)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.o.Data.TrainFiles, err)
	}
	return nil
}

func (d *Data) readAnswers(path string) ([]data.Labelled, *data.Report, error) {
	if path == embedded.Name {
		return data.ReadLabelled(embedded.Files, embedded.Pairs)
	}
	return data.ReadLabelled(nil, path, d.Files.Columns...)
}

// readDesirable reads the answers whose label is true.
func (d *Data) readDesirable(path string) (rows []data.Demonstration, err error) {
	all, _, err := d.readAnswers(path)
	for _, r := range all {
		if r.Desirable {
			rows = append(rows, r.Demonstration)
		}
	}
	return rows, err
}

// mismatch gives each example the answer of another one of its batch in the first epoch, or of more examples.
func (t *training) mismatch(examples, more []train.Example, shuffle bool) error {
	most := t.o.Data.MaxTokens
	if positions := t.Model.Config.MaxPositions; positions > 0 && (most == 0 || most > positions+1) {
		most = positions + 1 // the last token is not fed
	}
	all := slices.Concat(examples, more)
	err := train.Mismatch(all, train.Order(len(all), t.Seed, 0, shuffle), t.Train.BatchSize, most)
	copy(examples, all)
	return err
}
