package batch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// rollouts of a run whose answers become longer: 8 prompts of about this many tokens, 16 answers, at most 128 tokens.
func driftingRollouts(r *rand.Rand, prompt int, mean float64) (groups []Group) {
	for range 8 {
		g := Group{Prompt: make([]int32, prompt*9/10+r.IntN(prompt/5+1))}
		for range 16 {
			g.Answers = append(g.Answers, make([]int32, 1+min(127, int(mean*(0.5+r.ExpFloat64()/2)))))
		}
		groups = append(groups, g)
	}
	return groups
}

// TestRunsNeedFewShapes: every shape of a microbatch is compiled for, once for log-probs and once for gradients, and an
// engine keeps six programs. So a step needs one or two, and many steps need the same.
func TestRunsNeedFewShapes(t *testing.T) {
	for _, prompt := range []int{20, 64, 256, 700} {
		r, run, fed, once := rand.New(rand.NewPCG(1, 2)), map[string]bool{}, 0, 0
		for step := range 60 {
			groups, own := driftingRollouts(r, prompt, 20+float64(step)), map[string]bool{}
			for _, p := range PackGroups(groups, GroupLayout{Tokens: 1024}.Fit(groups, 256)) {
				shape := fmt.Sprintf("%dx%d/%d/%d", p.Rows, p.Len, p.Slots, p.Answers)
				run[shape], own[shape] = true, true
				fed += p.Rows * p.Len
			}
			if len(own) > 2 {
				t.Errorf("prompt %d, step %d: shapes %v: want two at most", prompt, step, own)
			}
			for _, g := range groups {
				once += len(g.Prompt) + g.AnswerTokens()
			}
		}
		t.Logf("prompt %d: %d shapes in 60 steps, %.2f times the tokens: %v", prompt, len(run),
			float64(fed)/float64(once), run)
		if len(run) > 8 {
			t.Errorf("prompt %d: %d shapes in 60 steps: want 8 at most", prompt, len(run))
		}
	}
}

// TestFewShapesHoldAllGroups: with a bound, all groups of a run have the shapes that it names at its start, whatever
// their answers, and little is added to what goes through the model.
func TestFewShapesHoldAllGroups(t *testing.T) {
	for _, few := range []int{2, 8} {
		for _, prompt := range []int{20, 256, 700} {
			r, run, fed, free := rand.New(rand.NewPCG(1, 2)), map[string]bool{}, 0, 0
			prompts := []int{prompt * 9 / 10, prompt*9/10 + prompt/5}
			s := GroupLayout{Tokens: 1024}.Few(few, prompts, 128, 128, 256)
			for step := range 10 {
				groups := driftingRollouts(r, prompt, 1+12*float64(step))
				if step == 5 {
					groups[0].Prompt = make([]int32, prompts[1]) // the longest
					groups[0].Answers[0] = make([]int32, 128)
				}
				answers := 0
				for _, p := range PackGroups(groups, s.Fit(groups, 256)) {
					run[fmt.Sprintf("%dx%d/%d/%d", p.Rows, p.Len, p.Slots, p.Answers)] = true
					fed += p.Rows * p.Len
					for _, x := range p.Sets {
						answers += len(x.Answers)
					}
					shape := fmt.Sprintf(" %d×%d,", p.Rows, p.Len)
					if !strings.Contains(s.DescribeShapes()+",", shape) {
						t.Errorf("%s is not of %s", shape, s.DescribeShapes())
					}
				}
				if answers != 8*16 {
					t.Errorf("step %d: %d answers are laid out, want 128", step, answers)
				}
				for _, p := range PackGroups(groups, GroupLayout{Tokens: 1024}.Fit(groups, 256)) {
					free += p.Rows * p.Len
				}
			}
			share := float64(fed) / float64(free)
			t.Logf("%d, prompt %d: %d shapes, %.2f times the tokens of any: %v", few, prompt, len(run), share, run)
			if len(run) > few || few == 8 && share > 1.25 {
				t.Errorf("%d, prompt %d: %d shapes, %.2f times the tokens", few, prompt, len(run), share)
			}
		}
	}
}
