package rollout

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/backend/backendtest"
	"github.com/posttrain/posttrain/model"
)

// TestRealGreedy holds greedy continuations of real prompts by a real model to transformers'. The go engine has the
// shortest two.
func TestRealGreedy(t *testing.T) {
	folder, from := os.Getenv("POSTTRAIN_REAL_MODEL"), os.Getenv("POSTTRAIN_REAL_ANSWERS")
	if folder == "" || from == "" {
		t.Skip("set POSTTRAIN_REAL_MODEL and POSTTRAIN_REAL_ANSWERS: scripts/models/answers.py says how")
	}
	var answers struct {
		Prompts []struct{ IDs, Greedy []int32 }
	}
	raw, err := os.ReadFile(filepath.Join(from, "answers.json"))
	if err == nil {
		err = json.Unmarshal(raw, &answers)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		prompts := answers.Prompts
		if e.Name == "go" {
			prompts = prompts[:2]
		}
		var rs []Request
		for _, p := range prompts {
			rs = append(rs, Request{Prompt: p.IDs, Sampling: Sampling{MaxNew: len(p.Greedy)}, StopTokens: []int32{}})
		}
		weights, err := Upload(e, m)
		if err != nil {
			t.Fatal(err)
		}
		defer backend.FinalizeAll(weights...)
		s := NewCached(e, m.Config, func() []compute.Buffer { return weights }, Options{})
		defer s.Close()
		cs, err := s.Sample(t.Context(), rs)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range cs {
			if !slices.Equal(c.Tokens, prompts[i].Greedy) {
				t.Errorf("prompt %d of %d tokens: %v, transformers has %v", i, len(rs[i].Prompt), c.Tokens, prompts[i].Greedy)
			}
		}
		t.Logf("%d prompts", len(prompts))
	})
}
