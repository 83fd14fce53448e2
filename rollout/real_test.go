package rollout

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/model"
)

// realPrompt is a prompt with the greedy continuation of transformers, from scripts/models/answers.py.
type realPrompt struct {
	IDs, Greedy []int32
	Margins     []float64 // the logit of each of its tokens less the second best
}

// near is a margin that rounding may turn: model's TestRealLogits allows half of it to each logit.
const near = 1e-3

// TestRealGreedy holds greedy continuations of real prompts by a real model to transformers'. The go engine has the
// first tokens of the shortest one.
func TestRealGreedy(t *testing.T) {
	m, prompts := loadReal(t)
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		prompts := prompts
		if e.Name == "go" {
			prompts = []realPrompt{{prompts[0].IDs, prompts[0].Greedy[:8], prompts[0].Margins[:8]}}
		}
		tokens, found := 0, greedy(t, e, m, prompts)
		for i, p := range prompts {
			n := p.agree(found[i])
			if tokens += n; n < len(p.Greedy) && p.Margins[n] >= near {
				t.Errorf("prompt %d of %d tokens: %v, transformers has %v", i, len(p.IDs), found[i], p.Greedy)
			} else if n < len(p.Greedy) {
				t.Logf("prompt %d leaves transformers' way at token %d of %d, where two logits differ by %.1g", i, n,
					len(p.Greedy), p.Margins[n])
			}
		}
		t.Logf("%d prompts: %d tokens are transformers'", len(prompts), tokens)
	})
}

func loadReal(t *testing.T) (*model.Model, []realPrompt) {
	t.Helper()
	m, err := model.Load(need.Path(t, "model"))
	var answers struct{ Prompts []realPrompt }
	var raw []byte
	if err == nil {
		raw, err = os.ReadFile("../model/testdata/smollm2/answers.json")
	}
	if err == nil {
		err = json.Unmarshal(raw, &answers)
	}
	expect.OK(t, err)
	return m, answers.Prompts
}

// greedy continues prompts with as many tokens as transformers'.
func greedy(t *testing.T, e *backend.Engine, m *model.Model, prompts []realPrompt) (tokens [][]int32) {
	t.Helper()
	var rs []Request
	for _, p := range prompts {
		rs = append(rs, Request{Prompt: p.IDs, Sampling: Sampling{MaxNew: len(p.Greedy)}, StopTokens: []int32{}})
	}
	weights := expect.Must(Upload(e, m, model.GraphOptions{}))(t)
	defer backend.FinalizeAll(weights...)
	s := NewCached(e, m.Config, func() []compute.Buffer { return weights }, Options{})
	defer s.Close()
	cs := expect.Must(s.Sample(t.Context(), rs))(t)
	for _, c := range cs {
		tokens = append(tokens, c.Tokens)
	}
	return tokens
}

// agree is the number of tokens before the first that transformers does not have.
func (p realPrompt) agree(tokens []int32) int {
	for i, id := range p.Greedy {
		if i == len(tokens) || tokens[i] != id {
			return i
		}
	}
	return len(p.Greedy)
}
