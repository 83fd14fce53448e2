package train

import (
	"fmt"
	"math"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestMismatch: each example gets the answer before it in its batch, as TRL has it, but none to its own prompt.
func TestMismatch(t *testing.T) {
	groups := func(prompts ...int32) (all []Example) {
		for i, p := range prompts {
			all = append(all, Example{Group: Group{Prompt: []int32{p}, Answers: [][]int32{{10, int32(i), 12}}}})
		}
		return all
	}
	for _, c := range []struct {
		name    string
		groups  []Example
		order   []int
		size    int
		most    int
		answers string // of which example
	}{
		{"two batches and a rest", groups(1, 2, 3, 4, 5), []int{0, 1, 2, 3, 4}, 2, 0, "[1 0 3 2 3]"},
		{"shuffled", groups(1, 2, 3, 4), []int{2, 0, 3, 1}, 4, 0, "[2 3 1 0]"},
		{"repeated prompts", groups(1, 1, 2, 2), []int{0, 1, 2, 3}, 4, 0, "[3 3 1 1]"},
		{"a batch of one prompt", groups(1, 1, 2, 3), []int{0, 1, 2, 3}, 2, 0, "[3 3 3 2]"},
		{"cut", groups(1, 2), []int{0, 1}, 2, 3, "[1 0]"},
	} {
		expect.OK(t, Mismatch(c.groups, c.order, c.size, c.most))
		var from []int32
		for _, x := range c.groups {
			from = append(from, x.Mismatched[1])
			if c.most > 0 && len(x.Mismatched) != c.most-1 {
				t.Errorf("%s: %v", c.name, x)
			}
		}
		if fmt.Sprint(from) != c.answers {
			t.Errorf("%s: answers of %v, want %s", c.name, from, c.answers)
		}
	}
	if err := Mismatch(groups(1, 1), []int{0, 1}, 2, 0); err == nil {
		t.Error("one prompt alone is accepted")
	}
}

// TestReferencePoint: it is the mean log-ratio of the mismatched answers alone, and never below 0.
func TestReferencePoint(t *testing.T) {
	l := learner(t, backendtest.Go(t), tinyModel())
	examples := examplesOf([]Group{{Prompt: []int32{5, 6}, Answers: [][]int32{{7, 8}}},
		{Prompt: []int32{9, 4}, Answers: [][]int32{{3, 2, 1}}}})
	examples[0].Desirable = true
	expect.OK(t, Mismatch(examples, []int{0, 1}, 2, 0))
	m := &KTO{}
	sums := expect.Must(l.Sums(batch.Pack(m.others(examples), batch.Layout{})))(t)
	for below, want := range map[float32]float64{0.5: 0.5, -0.5: 0} {
		for i, sum := range sums {
			examples[i].Reference = [2]float32{1000, sum - below}
		}
		if err := m.prepare(l, examples, batch.Layout{}); err != nil || math.Abs(m.now.z-want) > 1e-4 {
			t.Errorf("a mean of %v: z is %v, %v, want %v", below, m.now.z, err, want)
		}
	}
}
