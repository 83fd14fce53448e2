package rl

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/run"
)

// testDraws makes the draws of a test other ones than the same seed gives elsewhere.
const testDraws = 0x74657374

// testBefore measures the test split with the model before training, or takes the measurement from the folder of a run
// that is continued. The draws follow from the seed and the prompt's place alone, so before and after differ by the
// weights, not by luck.
func (l *loop) testBefore(ctx context.Context) ([]eval.Row, error) {
	rows, err := l.stored(run.TestBeforeName)
	if err != nil || len(rows) > 0 {
		return rows, err
	}
	return l.test(ctx, run.TestBeforeName, "before", "", "nothing was trained yet")
}

// testAfter measures the test split with the best model.
func (l *loop) testAfter(ctx context.Context, best *run.Best) ([]eval.Row, error) {
	weights := "the last step"
	if best != nil {
		weights = fmt.Sprintf("step %d", best.Step)
	}
	return l.test(ctx, run.TestAfterName, "after", weights, fmt.Sprintf("the %s is in %s", l.Kind(), l.Folder.Path(l.Kind())))
}

// stored reads a measurement of this very test split; it is empty where there is no file.
func (l *loop) stored(name string) (rows []eval.Row, err error) {
	test, same := l.questions[ci.Test], true
	err = l.Folder.ReadLines(name, func(text []byte) error {
		var row eval.Row
		if same = same && len(rows) < len(test); !same {
			return nil
		}
		err := json.Unmarshal(text, &row)
		q := &test[len(rows)]
		same = row.Item == q.Source && row.Prompt.Equal(promptOf(q))
		rows = append(rows, row)
		return err
	})
	if err != nil || same && len(rows) == 0 {
		return nil, err
	}
	if !same || len(rows) != len(test) {
		return nil, fmt.Errorf("%s: the test data is not what the run was started with: start a new run with --out DIR",
			l.Folder.Path(name))
	}
	l.Say("test before training: taken from %s", l.Folder.Path(name))
	return rows, nil
}

// promptOf is a question's prompt as rows have it: an item's as plain text, without the chat template.
func promptOf(q *ask.Question) data.Text {
	if n := len(q.Prompt.Messages); q.Item != nil && n > 0 {
		return data.Text{Plain: q.Prompt.Messages[n-1].Content}
	}
	return q.Prompt
}

// test answers the test split with the present weights, and writes the rows. What an interrupted run has answered with
// these weights is kept, and continues; done says what the run has come to.
func (l *loop) test(ctx context.Context, name, when, weights, done string) ([]eval.Row, error) {
	test := l.questions[ci.Test]
	if len(test) == 0 {
		return nil, nil
	}
	l.Say("test of %d prompts %s training", len(test), when)
	rs := l.rollouts()
	questions := rs.ForTest(test, l.Seed^testDraws)
	l.task.seedDraws(questions, l.Seed^testDraws)
	path := l.Folder.Path("answers-" + name)
	kept, err := ask.Keep[eval.Row](path, identify(questions, weights), len(questions), "")
	if err != nil {
		return nil, err
	}
	err = kept.Fill(ctx, l, "prompt", ask.AtOnce(1), func(ctx context.Context, from, to int) (rows []eval.Row, err error) {
		answers, err := rs.Answer(ctx, questions[from:to])
		for i := range answers {
			rows = append(rows, l.task.row(&answers[i]))
		}
		return rows, err
	})
	if err != nil && ctx.Err() != nil {
		return nil, l.StopError("during the test %s training; %s", when, done)
	}
	if err != nil {
		return nil, l.sayResume(fmt.Errorf("test %s training: %w", when, err))
	}
	lines := make([]any, len(kept.Done))
	for i, row := range kept.Done {
		lines[i] = row
	}
	return kept.Done, errors.Join(l.Folder.WriteLines(name, lines...), kept.Remove())
}

// identify is a hash of what the answers of a test depend on.
func identify(questions []ask.Question, weights string) string {
	h := sha256.New()
	fmt.Fprintln(h, weights)
	for _, q := range questions {
		fmt.Fprintln(h, q.Tokens, q.Target, q.Seed, q.Sampling)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}
