package grpo

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// recipeOf are the options that a recipe gives, with the length that the command would add.
func recipeOf(t *testing.T, name string, set ...string) Options {
	t.Helper()
	type section struct {
		GRPO Options `yaml:"grpo"`
	}
	given := []config.Override{{Flag: "--recipe", Key: "grpo.recipe", Value: name}}
	for i := 0; i+1 < len(set); i += 2 {
		given = append(given, config.Override{Flag: "--set", Key: set[i], Value: set[i+1]})
	}
	if name == "dr-grpo" {
		given = append(given, config.Override{Flag: "--set", Key: "grpo.norm_length", Value: "16"})
	}
	spec := &config.Spec[section]{Command: "test"}
	o := expect.Must(spec.Parse("f.yaml", []byte("command: test\ngrpo:\n  kl: k3\n  clip_high: 0.3\n  group_size: 4\n"),
		config.Input{Overrides: given}))(t)
	return o.GRPO
}

// TestRecipesEqualTRLs: loss and gradient by every token of recorded updates of TRL's trainers (scripts/oracle/
// trl_recipes.py) in float64, and the advantages, in whose divisor TRL adds 1e-4.
func TestRecipesEqualTRLs(t *testing.T) {
	var recorded map[string]struct {
		Rewards   []float64   `json:"rewards"`
		Masked    []bool      `json:"masked"`
		Reference [][]float64 `json:"reference"`
		Steps     []struct {
			Loss       float64     `json:"loss"`
			Advantages []float64   `json:"advantages"`
			Logps      [][]float64 `json:"logps"`
			Old        [][]float64 `json:"old"`
			Grad       [][]float64 `json:"grad"`
		} `json:"steps"`
	}
	expect.Decode(t, "testdata/recipes-trl.json", &recorded)
	for _, name := range slices.Sorted(maps.Keys(recipes)) {
		r, has := recorded[name]
		if o := recipeOf(t, name); !has {
			if name != "reinforce++" { // TRL has none: TestReinforcePlusPlusByHand
				t.Errorf("%s: it is not recorded", name)
			}
		} else {
			for i, s := range r.Steps {
				b := Batch{Logps: s.Logps, Old: s.Old, Reference: r.Reference, Advantages: s.Advantages,
					Masked: r.Masked}
				out := o.Host(b)
				near(t, fmt.Sprintf("%s, update %d: loss", name, i+1), out.Loss, s.Loss, 1e-12)
				for k := range s.Grad {
					if !r.Masked[k] {
						nearAll(t, fmt.Sprintf("%s, update %d: gradient of answer %d", name, i+1, k), out.Grad[k],
							s.Grad[k], 1e-12)
					}
				}
			}
			rewards := [][][]float64{slices.Collect(slices.Chunk(r.Rewards, 4))}
			weights := []float64{1}
			if o.InReward() {
				g := Group{Old: narrowed(r.Steps[0].Old), Reference: narrowed(r.Reference)}
				g.Answers = make([][]int32, len(g.Old))
				rewards = append(rewards, slices.Collect(slices.Chunk(o.penalties(g), 4)))
				weights = append(weights, -1)
			}
			nearAll(t, name+", advantages", slices.Concat(o.Combined(rewards, weights)...), r.Steps[0].Advantages, 1e-3)
		}
	}
}

func narrowed(rows [][]float64) (out [][]float32) {
	for _, row := range rows {
		out = append(out, narrow([][]float64{row}))
	}
	return out
}

// TestReinforcePlusPlusByHand: KL of 0.3 and 0 nats with coefficient 0.01 is taken from the rewards of the first two of
// four answers, whose advantages are of the batch.
func TestReinforcePlusPlusByHand(t *testing.T) {
	o := recipeOf(t, "reinforce++")
	if o.Aggregation != TokenMean || o.RatioLevel != Token || !o.NeedsOld() || o.inLoss() || o.ClipHigh != 0.2 {
		t.Errorf("%+v", o)
	}
	g := Group{Old: [][]float32{{-1, -0.5}, {-2}}, Reference: [][]float32{{-1.25, -0.55}, {-2}}}
	g.Answers = make([][]int32, 2)
	nearAll(t, "penalties", o.penalties(g), []float64{0.003, 0}, 1e-6)
	got := o.Combined([][][]float64{{{1, 0}, {1, 1}}, {{0.003, 0}, {0, 0}}}, []float64{1, -1})
	const root = 0.49950008 // of the squares' sum, 0.748501…, by 3
	nearAll(t, "advantages", slices.Concat(got...), []float64{0.24775 / root, -0.74925 / root, 0.25075 / root,
		0.25075 / root}, 1e-4)
}

// TestRecipesAndKeys: what the command line gives beside a recipe counts, what a file says of its objective does not,
// and every recipe is in order.
func TestRecipesAndKeys(t *testing.T) {
	for name := range recipes {
		o := recipeOf(t, name)
		if err := fault.Err("grpo", o.Check()); err != nil || o.GroupSize != 4 || o.KL == K3 || o.ClipHigh == 0.3 {
			t.Errorf("%s: %v, %+v", name, err, o)
		}
	}
	if o := recipeOf(t, "gspo", "grpo.clip_high", "0.01", "grpo.kl", "k2"); o.ClipHigh != 0.01 || o.ClipLow != 3e-4 ||
		o.KL != K2 {
		t.Errorf("%+v", o)
	}
}
