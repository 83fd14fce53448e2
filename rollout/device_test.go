package rollout

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// devices runs a test with the cache in the engine.
func devices(t *testing.T, test func(t *testing.T, e *backend.Engine)) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) { test(t, onDevice(e)) })
}

// TestRowsAreFilledAgain: waiting requests take over the rows of those that have ended; tokens and log-probs are the
// same as with room for all. Rings wrap: many rows begin late.
func TestRowsAreFilledAgain(t *testing.T) {
	devices(t, func(t *testing.T, e *backend.Engine) {
		m := testkit.Model(t, "mistral")
		rs := sampleGroups(8, 5, 20, func(i, k int) int { return 3 + (7*i+11*k)%32 })
		want := sample(t, first(newCached(t, e, m, Options{})), rs...)
		s, programs := newCached(t, e, m, Options{})
		s.most = 16 * (32 + 64) * s.planner().slotBytes
		equalAnswers(t, sample(t, s, rs...), want)
		prefills, steps := 0, map[string]bool{}
		for _, p := range *programs {
			if strings.HasPrefix(p, "prefill") {
				prefills++
			}
			if strings.HasPrefix(p, "step") {
				steps[p] = true
			}
		}
		if prefills < 4 || !steps["step/16x1/32+32"] || len(steps) > 3 {
			t.Errorf("%d prefills, steps %v: want one of 16 rows, filled again and again", prefills, steps)
		}
	})
}

// TestPromptsMoveWithTheirRows: a row that takes another place in a cache of the same size takes its prompt along. The
// rows of llama see their whole prompt to the end.
func TestPromptsMoveWithTheirRows(t *testing.T) {
	devices(t, func(t *testing.T, e *backend.Engine) {
		m := testkit.Model(t, "llama")
		m.Config.MaxPositions = 512
		last := map[[2]int]bool{{0, 14}: true, {0, 15}: true, {2, 15}: true, {3, 15}: true}
		groups := sampleGroups(4, 16, 40, func(i, k int) int {
			if last[[2]int{i, k}] {
				return 12
			}
			return 3
		})
		s, programs := newCached(t, e, m, Options{})
		nearTrainer(t, m, groups, sample(t, s, groups...))
		if !slices.Contains(*programs, "step/4x16/64+32") || !slices.Contains(*programs, "step/4x1/64+32") {
			t.Errorf("programs %v: want four rows of other prompts than the first four", *programs)
		}
		arrivals := sampleGroups(3, 1, 40, func(i, _ int) int { return []int{5, 200, 210}[i] })
		s, _ = newCached(t, e, m, Options{})
		_, answers := feedAll(t, s, 4, arrivals)
		nearTrainer(t, m, arrivals, answers)
	})
}

// nearTrainer compares the log-probs of answers with those that training computes.
func nearTrainer(t *testing.T, m *model.Model, rs []Request, cs []Completion) {
	t.Helper()
	for i, logps := range logProbs(t, m, rs, cs) {
		for k, want := range logps {
			if d := math.Abs(float64(cs[i].Logps[k] - want)); !(d < 2e-5) {
				t.Fatalf("request %d, token %d: log-prob %v, trainer %v", i, k, cs[i].Logps[k], want)
			}
		}
	}
}

// TestProgramsOfARun: rollouts of several steps, with a validation between, compile a dozen programs of the model at
// most, and few small ones that move rows.
func TestProgramsOfARun(t *testing.T) {
	config := testkit.Config(t, "llama")
	config.MaxPositions = 4096
	s, programs := newCached(t, onDevice(backendtest.Go(t)), model.Init(config, 1), Options{})
	s.most = 16 * (64 + 384) * s.planner().slotBytes
	for step := range 3 {
		rs := sampleGroups(3, 8, 60, func(i, k int) int { return 2 + (i*i+k)*(step+1)%9 })
		rs[3].MaxNew = 300
		sample(t, s, rs...)
	}
	sample(t, s, sampleGroups(9, 1, 50, func(i, k int) int { return 30 + i })...)
	slices.Sort(*programs)
	all := slices.Compact(*programs)
	large := slices.DeleteFunc(slices.Clone(all), func(p string) bool {
		return !strings.HasPrefix(p, "prefill") && !strings.HasPrefix(p, "step")
	})
	if len(large) > 8 || len(all) > 18 {
		t.Errorf("%d of %d programs have the model: %s", len(large), len(all), strings.Join(all, ", "))
	}
}

// TestWeightsAreConvertedOnce: a call converts the matrices to bfloat16 once, and gives the bits of a sampler that has
// them in it.
func TestWeightsAreConvertedOnce(t *testing.T) {
	for _, e := range backendtest.Engines(t) {
		if !e.Wants.BFloat16 {
			continue // it computes in float32
		}
		e, m := onDevice(e), testkit.Model(t, "qwen2")
		o := Options{Graph: model.GraphOptions{DType: dtypes.BFloat16}}
		rs := sampleGroups(3, 4, 40, func(i, k int) int { return 5 + i + k })
		s, programs := newCached(t, e, m, o)
		got := sample(t, s, rs...)
		if n := len(slices.DeleteFunc(*programs, func(p string) bool { return p != "weights" })); n != 1 {
			t.Errorf("%s: weights were converted %d times in a call", e.Name, n)
		}
		weights := expect.Must(Upload(e, m, o.Graph))(t)
		defer backend.FinalizeAll(weights...)
		s.weights = func() []compute.Buffer { return weights }
		*programs = nil
		if again := sample(t, s, rs...); !reflect.DeepEqual(again, got) || slices.Contains(*programs, "weights") {
			t.Errorf("%s: other completions of weights in bfloat16, or %v", e.Name, *programs)
		}
	}
}

// TestPlan: rows and bytes by arithmetic, at the shape of Qwen2.5-1.5B with the published prompts and completions.
func TestPlan(t *testing.T) {
	c := &model.Config{Layers: 28, KVHeads: 2, HeadDim: 128, MaxPositions: 32768}
	for _, p := range []struct {
		gb                      float64
		requests, prompt, fresh int
		rows                    int
		want                    string
	}{
		// a slot: 2 (keys, values) · 28 · 2 · 128 · 2 bytes = 28,672; a row: 512 + 2048 slots, 73.4 MB
		{20, 512, 500, 2048, 256, "512 completions, 256 at once; 73.4 MB of cache each (2560 tokens of 28.7 kB), " +
			"18.79 GB of at most 20.00 GB"},
		{40, 512, 500, 2048, 512, "512 completions, all of them at once; 73.4 MB of cache each " +
			"(2560 tokens of 28.7 kB), 37.58 GB of at most 40.00 GB"},
		{20, 16, 4000, 7000, 16, "16 completions, all of them at once; 352.3 MB of cache each " +
			"(12288 tokens of 28.7 kB), 5.64 GB of at most 20.00 GB"},
	} {
		o := Options{CacheGB: p.gb, Graph: model.GraphOptions{DType: dtypes.BFloat16}}
		s := NewCached(onDevice(backendtest.Go(t)), c, nil, o)
		plan, err := s.Plan(p.requests, p.prompt, p.fresh)
		if err != nil || plan.Rows != p.rows || plan.String() != p.want || plan.Bytes() != plan.Rows*plan.RowBytes() {
			t.Errorf("%v, %v\nwant %s", plan, err, p.want)
		}
	}
	s := NewCached(onDevice(backendtest.Go(t)), c, nil, Options{CacheGB: 0.1})
	_, err := s.Plan(1, 500, 2048)
	const want = "cache_gb: 0.1: want 0.147 or more for a completion of 2048 tokens after a prompt of 500, or a " +
		"smaller max_new_tokens"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestACacheTooSmall: one clear line that names the request, with the cache on the host and in the engine.
func TestACacheTooSmall(t *testing.T) {
	m := testkit.Model(t, "llama")
	for _, e := range []*backend.Engine{backendtest.Go(t), onDevice(backendtest.Go(t))} {
		s := setup{e, implementations[1]}.of(t, m, Options{CacheGB: 1e-6})
		_, err := s.Sample(t.Context(), requests(2, 30, 1))
		if err == nil || !strings.HasPrefix(err.Error(), "request 0: cache_gb: 1e-06: want 0.001 or more for a "+
			"completion of 30 tokens after a prompt of") {
			t.Error(err)
		}
	}
}

// TestRings: slots by hand. A ring of 4 after 6 steps holds steps 4, 5, 2, 3.
func TestRings(t *testing.T) {
	g := &graphStore{steps: 6}
	for _, c := range []struct {
		from, to int
		want     string
	}{{4, 8, "[0 1 2 3 0 1 2 3]"}, {4, 2, "[0 1]"}, {4, 3, "[3 0 1]"}, {8, 4, "[4 5 2 3]"}} {
		if got := fmt.Sprint(g.slotsOf(c.from, c.to)); got != c.want {
			t.Errorf("%d slots from %d: %s, want %s", c.to, c.from, got, c.want)
		}
	}
}
