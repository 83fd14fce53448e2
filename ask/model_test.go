package ask

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
)

func TestMain(m *testing.M) { os.Exit(expect.NoLeaks(m)) }

// counting is a sampler that notes how many requests each call has.
type counting struct{ calls []int }

func (c *counting) Sample(_ context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	c.calls = append(c.calls, len(requests))
	return make([]rollout.Completion, len(requests)), nil
}

func local(t *testing.T) (*Local, *counting) {
	t.Helper()
	tok, err := tokenizer.Load("../model/testdata/qwen2-newer")
	if err != nil {
		t.Fatal(err)
	}
	s := &counting{}
	return &Local{Sampler: s, Encoder: &batch.Encoder{Tokenizer: tok}}, s
}

func talk(text string) Question {
	return Question{Prompt: data.Text{Messages: []data.Message{{Role: "user", Content: text}}},
		Sampling: rollout.Sampling{MaxNew: 1}}
}

// TestLocalBatches: calls have the expected sizes, and progress is reported.
func TestLocalBatches(t *testing.T) {
	l, s := local(t)
	var ticks []int
	l.Tick = func(done int) { ticks = append(ticks, done) }
	q, big := talk("a"), talk("b")
	q.Samples, big.Samples = 60, 200
	if _, err := l.Answer(t.Context(), []Question{q, q, q, big, q}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(s.calls, ticks) != "[120 60 200 60] [2 3 4 5]" {
		t.Error(s.calls, ticks)
	}
}

// TestPrefill: a local model continues the given beginning.
func TestPrefill(t *testing.T) {
	l, _ := local(t)
	q := talk("hi")
	q.Prefill = ci.ThinkPrefill
	ids, err := l.Prompt(&q)
	if text := l.Encoder.Tokenizer.Decode(ids, false); err != nil || !strings.HasSuffix(text, "<think>\n") {
		t.Errorf("%q, %v", text, err)
	}
}
