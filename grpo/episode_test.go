package grpo

import (
	"context"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
)

// TestEpisodesAreTheirMessages: an episode's gradient is the gradient of its messages as answers to all that was before
// them, with a weight for every token that the model drew; what it read trains nothing.
func TestEpisodesAreTheirMessages(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		o := DefaultOptions()
		o.KL, o.KLCoef = None, 0
		tr := trainer(t, e, testkit.Model(t, "llama"), o)
		prompt, first, read, second := []int32{2, 40, 3}, []int32{33, 7}, []int32{5, 6, 9, 4}, []int32{35, 36, 7}
		other := []int32{41, 7}
		var episode []int32
		var drawn []bool
		for i, part := range [][]int32{first, read, second} {
			for range part {
				drawn = append(drawn, i != 1)
			}
			episode = append(episode, part...)
		}
		whole := []Group{{Group: batch.Group{Prompt: prompt, Answers: [][]int32{episode, other},
			Trained: [][]bool{drawn, nil}}, Advantages: []float64{0.7, -0.7}}}
		before := append(append(append([]int32{}, prompt...), first...), read...)
		apart := []Group{
			{Group: batch.Group{Prompt: prompt, Answers: [][]int32{first, other}}, Advantages: []float64{0.7, -0.7}},
			{Group: batch.Group{Prompt: before, Answers: [][]int32{second}}, Advantages: []float64{0.7}}}
		a, _, values := gradient(t, tr, whole)
		b, _, want := gradient(t, tr, apart)
		if d := farthest(a, b); d > 3e-5 {
			t.Errorf("the gradients are apart by %.1e of their maximum", d)
		}
		if values[MetricEntropy] == 0 || !near32(values[MetricEntropy], want[MetricEntropy]) {
			t.Errorf("entropy %v, want %v", values[MetricEntropy], want[MetricEntropy])
		}
		logps, err := tr.Measure(whole, nil)
		if err != nil || len(logps[0][0]) != 5 || len(logps[0][1]) != 2 {
			t.Errorf("log-probs %v, want those of 5 and 2 tokens (%v)", logps, err)
		}
	})
}

func near32(a, b float64) bool { return a-b < 1e-5 && b-a < 1e-5 }

// polite replies to a message with three tokens, and is silent after the second.
type polite struct{ heard int }

func (w *polite) Reply(rollout.Completion) ([]int32, error) {
	if w.heard++; w.heard == 2 {
		return nil, nil
	}
	return []int32{3, 40, 4}, nil
}

// TestEpisodesTrain: the sampler's log-probs are the trainer's, rewards are of the world that an episode was with, and
// lengths count what the model drew.
func TestEpisodesTrain(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		folder := newFolder(t)
		m := model.Init(testkit.Config(t, "llama"), 7)
		l := tinyOf(t, e, m, folder)
		for i := range l.Tasks {
			l.Tasks[i].Open = func() rollout.World { return &polite{} }
		}
		l.Sampler = rollout.Episodes{Sampler: l.Sampler, Turns: 4, Tokens: m.Config.MaxPositions}
		l.Rollouts.Options.DynamicSampling, l.Train.MaxSteps, l.Train.LogEvery, l.Validation.Every = 0, 2, 1, 0
		l.Held, l.Sampling.MaxNew = nil, 5
		heard := &listener{Rule: func(_ *ask.Question, text string) ask.Score {
			return ask.Score{Value: float64(len(text)%7) / 7}
		}}
		l.Judge = heard
		mustStart(t, l)
		mustRun(t, l)
		for _, r := range metrics(t, folder) {
			if d := r.Values[MetricDifferenceMax]; d > 2e-5 {
				t.Errorf("step %d: the sampler's log-probs are %v from the trainer's", r.Step, d)
			}
			if n := r.Values["completions/max_length"]; n > 10 {
				t.Errorf("step %d: %v tokens drawn, want 10 or fewer", r.Step, n)
			}
		}
		if heard.messages == 0 {
			t.Error("no world heard a message")
		}
	})
}

// listener is a rule that counts the messages which worlds have heard.
type listener struct {
	ask.Rule
	messages int
}

func (l *listener) Score(ctx context.Context, answers []ask.Answer) ([]ask.Score, error) {
	for _, a := range answers {
		if w, ok := a.World.(*polite); ok {
			l.messages += w.heard
		}
	}
	return l.Rule.Score(ctx, answers)
}
