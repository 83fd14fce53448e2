package rl

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/train"
)

// Draws makes the draws of a test other ones than those of the same seed elsewhere.
const Draws = 0x74657374

// Test measures a test split before and after training; T is an answer with its score. The draws follow from the seed
// and the prompt's place alone, so before and after differ by the weights, not by luck.
type Test[T any] struct {
	Loop *Loop
	Size int                                                             // prompts; 0: no test
	Ask  func(ctx context.Context, tick func(done int)) ([]T, error)     // all prompts, of the present weights
	Row  func(T) any                                                     // an answer's line in the run folder
	Read func(i int, line []byte) (answer T, ofThisTest bool, err error) // the answer to prompt i of a line
}

// Around measures, trains to the last step, and measures with the best model.
func (t Test[T]) Around(ctx context.Context, trainer *train.Trainer) (before, after []T, best *run.Best, err error) {
	if before, err = t.before(ctx); err == nil {
		best, err = t.Loop.Learn(ctx, trainer)
	}
	if err == nil {
		kind := t.Loop.Kind()
		done := fmt.Sprintf("the %s is in %s", kind, t.Loop.Folder.Path(kind))
		after, err = t.measure(ctx, run.TestAfterName, "after", done)
	}
	return before, after, best, err
}

// before measures with the model before training, or takes the measurement from the folder of a run that is continued.
func (t Test[T]) before(ctx context.Context) ([]T, error) {
	answers, err := t.stored(run.TestBeforeName)
	if err != nil {
		return nil, err
	}
	if len(answers) > 0 {
		t.Loop.Say("test before training: taken from %s", t.Loop.Folder.Path(run.TestBeforeName))
		return answers, nil
	}
	return t.measure(ctx, run.TestBeforeName, "before", "nothing was trained yet")
}

// stored reads a measurement of this very test split; it is empty where there is no file.
func (t Test[T]) stored(name string) (answers []T, err error) {
	same := true
	err = t.Loop.Folder.ReadLines(name, func(text []byte) error {
		if same = same && len(answers) < t.Size; !same {
			return nil
		}
		answer, ofThisTest, err := t.Read(len(answers), text)
		answers, same = append(answers, answer), ofThisTest
		return err
	})
	if err != nil || same && len(answers) == 0 {
		return nil, err
	}
	if !same || len(answers) != t.Size {
		return nil, fmt.Errorf("%s: the test data is not what the run was started with: start a new run with --out DIR",
			t.Loop.Folder.Path(name))
	}
	return answers, nil
}

func (t Test[T]) measure(ctx context.Context, name, when, done string) ([]T, error) {
	if t.Size == 0 {
		return nil, nil
	}
	t.Loop.Say("test of %d prompts %s training", t.Size, when)
	bar := t.Loop.Progress("prompt", 0, t.Size)
	defer bar.Close()
	answers, err := t.Ask(ctx, func(done int) { bar.Step(done, nil) })
	if err != nil && ctx.Err() != nil {
		return nil, t.Loop.StopError("during the test %s training; %s", when, done)
	}
	if err != nil {
		return nil, t.Loop.sayResume(fmt.Errorf("test %s training: %w", when, err))
	}
	rows := make([]any, len(answers))
	for i, a := range answers {
		rows[i] = t.Row(a)
	}
	return answers, t.Loop.Folder.WriteLines(name, rows...)
}
