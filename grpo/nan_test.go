package grpo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// TestBrokenWeights: a rate that blows the weights up ends the run in one line.
func TestBrokenWeights(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	l.Train.LearningRate, l.Train.MaxSteps, l.Held, l.Validation.Every = 1e38, 10, nil, 0
	wantError(t, l.Run(t.Context()), "step 2: the gradient's norm is", "lower train.learning_rate",
		"the last good checkpoint is", "step-00000001")
}

// TestSamplingFails: where the weights that a step begins with are broken, a good checkpoint is of an earlier step.
// Servers that fail are no fault of the weights, and what was learnt until then is saved.
func TestSamplingFails(t *testing.T) {
	broken := errors.New("the logit of token 3 is NaN")
	for err, step := range map[error]string{broken: "step-00000002", rollout.ServerError{Err: broken}: "step-00000003"} {
		l := tiny(t, backendtest.Go(t), newFolder(t))
		l.Options.DynamicSampling, l.Held, l.Validation.Every, l.Train.CheckpointEvery = 0, nil, 0, 2
		l.Sampler = &failing{l.Sampler, 4, err}
		wantError(t, l.Run(t.Context()), "step 4: sampling: the logit of token 3 is NaN", "the last good checkpoint is",
			step)
	}
}

// TestServersFailInAValidation: the steps before it are saved.
func TestServersFailInAValidation(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	l.Options.DynamicSampling, l.Validation.Every, l.Train.CheckpointEvery = 0, 1, 0
	l.Sampler = &failing{l.Sampler, 3, rollout.ServerError{Err: errors.New("no server answers")}}
	wantError(t, l.Run(t.Context()), "validation after step 1: sampling: no server answers",
		"the last good checkpoint is", "step-00000001")
}

// failing is a sampler whose nth call fails.
type failing struct {
	rollout.Sampler
	left int
	err  error
}

func (s *failing) Sample(ctx context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	if s.left--; s.left == 0 {
		return nil, s.err
	}
	return s.Sampler.Sample(ctx, requests)
}

// TestValidationWithoutAnAnswer: a validation that lacks an answer is no measure, and the weights are not to blame.
func TestValidationWithoutAnAnswer(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	l.Sampler = lossy{l.Sampler, func(i int) bool { return i == 0 }}
	mustStart(t, l)
	_, _, err := l.Validate(t.Context())
	if !errors.As(err, new(rollout.ServerError)) || errors.As(err, new(train.BadWeights)) {
		t.Errorf("found %v, want an error of the servers", err)
	}
}

// TestRewardsThatAreNotFinite: they end the run, in a step and in a validation, and no advantage and no best weights
// come of them.
func TestRewardsThatAreNotFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e39} {
		for calls, where := range map[int]string{1: "validation after step 0: ", 9: "step 1: "} {
			l := tiny(t, backendtest.Go(t), newFolder(t))
			l.Judge = ask.Rule(func(task *ask.Question, completion string) ask.Score {
				s := integrity(task, completion)
				if calls--; calls == 0 {
					s.Value = bad
				}
				return s
			})
			err := l.Run(t.Context())
			wantError(t, err, where+"the reward of a completion of ", fmt.Sprintf(" is %v: want a finite number", bad))
			if errors.As(err, new(train.BadWeights)) || l.Step() != 0 {
				t.Errorf("after %d steps: %v", l.Step(), err)
			}
		}
	}
}
