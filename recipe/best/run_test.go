package best

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
)

// TestRejection: by hand.
func TestRejection(t *testing.T) {
	item := ci.Synthesize(1, 1)[0]
	perfect, broken := ci.Reference(item, 0), "no tags"
	silent := "<think></think><answer></answer>" // nothing required, nothing restricted: reward 0
	for _, c := range []struct {
		least float64
		keep  int
		want  []string
		good  int
	}{
		{1, 0, []string{perfect}, 2}, {0, 0, []string{perfect, silent}, 3}, {0, 1, []string{perfect}, 3},
		{-1, 0, []string{perfect, silent, broken, broken}, 6},
	} {
		k, cases, samples := rejectionOf(item, false, false, []string{broken, silent, perfect, perfect},
			[]string{broken, broken})
		k.o.MinReward, k.o.Keep = c.least, c.keep
		got := contents(k.filter(cases, samples))
		if !slices.Equal(got, c.want) || k.good != c.good || len(samples) != 6 || k.best != 1 || k.sum != -1 {
			t.Errorf("least %v, keep %d: %q, %+v", c.least, c.keep, got, k)
		}
	}
}

// rejectionOf has the answers to an item that is put to a model several times.
func rejectionOf(item ci.Item, prefill, opened bool, answers ...[]string) (*keeper, []eval.Case, []eval.Sample) {
	cases, samples := make([]eval.Case, len(answers)), []eval.Sample(nil)
	for i, texts := range answers {
		c := &cases[i]
		if c.Item, c.Opened = &item, opened; prefill {
			c.Prefill = ci.ThinkPrefill
		}
		for k, text := range texts {
			samples = append(samples, c.Score(i, k, rollout.Answer{Text: text}, reward.DefaultOptions()))
		}
	}
	return &keeper{best: math.Inf(-1)}, cases, samples
}

func contents(demos []data.Demonstration) (texts []string) {
	for _, d := range demos {
		texts = append(texts, d.Completion.Messages[0].Content)
	}
	return texts
}

// TestRejectionPrefilled: the prefill belongs to the demonstration, unless the chat template writes it.
func TestRejectionPrefilled(t *testing.T) {
	item := ci.Synthesize(1, 1)[0]
	tail := strings.TrimPrefix(ci.Reference(item, 0), "<think>")
	for _, c := range []struct {
		prefill, opens bool
		want           []string
	}{{true, false, []string{ci.ThinkPrefill + tail}}, {true, true, []string{tail}}, {false, true, []string{tail}},
		{false, false, nil}} {
		k, cases, samples := rejectionOf(item, c.prefill, c.opens, []string{tail})
		k.o.MinReward = 1
		if got := contents(k.filter(cases, samples)); !slices.Equal(got, c.want) {
			t.Errorf("prefill %v, template opens %v: %q, want %q", c.prefill, c.opens, got, c.want)
		}
	}
}
