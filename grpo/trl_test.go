package grpo

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// trlRun is several updates on given rollouts, recorded by scripts/oracle/trl_grpo.py.
type trlRun struct {
	Model   string `json:"model"`
	Options struct {
		LearningRate float64 `json:"learning_rate"`
		Prompts      int     `json:"prompts"`
		Group        int     `json:"group"`
		Updates      int     `json:"updates"`
		Beta         float64 `json:"beta"`
		Epsilon      float64 `json:"epsilon"`
		EpsilonHigh  float64 `json:"epsilon_high"`
		MaxGradNorm  float64 `json:"max_grad_norm"`
		ScaleRewards string  `json:"scale_rewards"`
		Level        string  `json:"importance_sampling_level"`
		MaxLength    int     `json:"max_completion_length"`
		LossType     string  `json:"loss_type"`
	} `json:"options"`
	Prompts     [][]int32            `json:"prompts"`
	Completions [][]int32            `json:"completions"`
	Rewards     []float64            `json:"rewards"`
	Others      []float64            `json:"others"` // a second reward with weight 0.5; nil: none
	Masked      []bool               `json:"masked"`
	Steps       []map[string]float64 `json:"steps"`
}

// options gives our options for TRL's.
func (r trlRun) options() Options {
	o := DefaultOptions()
	o.Prompts, o.GroupSize, o.Updates = r.Options.Prompts*r.Options.Updates, r.Options.Group, r.Options.Updates
	o.Std = map[string]string{"group": Sample, "none": None}[r.Options.ScaleRewards]
	o.RatioLevel, o.ClipLow, o.ClipHigh = r.Options.Level, r.Options.Epsilon, r.Options.EpsilonHigh
	o.Aggregation = map[string]string{"bnpo": TokenMean, "grpo": SeqMeanMean,
		"dr_grpo": SeqMeanConstant, "cispo": TokenMean, "rloo": SeqMeanMean}[r.Options.LossType]
	switch r.Options.LossType {
	case "cispo": // TRL's bound is on the ratio itself
		o.Surrogate, o.ClipLow, o.ClipHigh = CISPO, 1, r.Options.EpsilonHigh-1
	case "rloo":
		o.Baseline = LeaveOneOut
	}
	if r.Others != nil {
		o.Combine = EachReward
	}
	if o.Aggregation == SeqMeanConstant {
		o.NormLength = r.Options.MaxLength
	}
	if o.KLCoef = r.Options.Beta; o.KLCoef == 0 {
		o.KL = None
	}
	return o
}

// groups are the rollouts with the advantages that we compute.
func (r trlRun) groups(o Options) []Group {
	n := r.Options.Group
	rewards, weights := [][][]float64{slices.Collect(slices.Chunk(r.Rewards, n))}, []float64{1}
	if r.Others != nil {
		rewards, weights = append(rewards, slices.Collect(slices.Chunk(r.Others, n))), []float64{1, 0.5}
	}
	var groups []Group
	for i, a := range o.Combined(rewards, weights) {
		groups = append(groups, Group{Group: batch.Group{Prompt: r.Prompts[i], Answers: r.Completions[i*n : (i+1)*n]},
			Advantages: a, Masked: r.Masked[i*n : (i+1)*n]})
	}
	return groups
}

// TestUpdatesEqualTRLs repeats recorded updates, each on the same rollouts, so that from the second on ratios are
// clipped and the policy is away from the reference: loss, norm, KL, shares of clipped ratios and how far the weights
// have moved.
func TestUpdatesEqualTRLs(t *testing.T) {
	files, err := filepath.Glob("testdata/trl-*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recorded runs in testdata", err)
	}
	for _, file := range files {
		var r trlRun
		expect.Decode(t, file, &r)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			backendtest.Each(t, func(t *testing.T, e *backend.Engine) { repeatTRL(t, e, r) })
		})
	}
}

func repeatTRL(t *testing.T, e *backend.Engine, r trlRun) {
	m := expect.Must(model.Load(filepath.Join("..", "model", "testdata", r.Model)))(t)
	tr := trainer(t, e, m, r.options())
	groups := r.groups(tr.Options)
	logps := expect.Must(tr.Measure(groups, nil))(t)
	for i := range groups {
		groups[i].Old, groups[i].Reference = logps[i], logps[i]
	}
	rule := train.AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MaxNorm: r.Options.MaxGradNorm}}
	for i, want := range r.Steps {
		values := train.NewMetrics()
		norm := expect.Must(tr.Update(groups, rule, r.Options.LearningRate, values))(t)
		got := values.Means("")
		got["grad_norm"], got["weight_change"] = norm, distance(t, tr, m)
		for name, w := range want {
			if r.Options.Level != Token && strings.HasPrefix(name, "clip_ratio/") {
				continue // TRL counts answers there, not tokens
			}
			if d := math.Abs(got[name] - w); d > 1e-3*math.Abs(w)+2e-5 {
				t.Errorf("update %d: %s is %v: TRL has %v", i+1, name, got[name], w)
			}
		}
	}
}

// distance is the distance of all weights from where they began.
func distance(t *testing.T, tr *Trainer, m *model.Model) float64 {
	t.Helper()
	now, _, err := tr.Learner.Read()
	expect.OK(t, err)
	sum := 0.0
	for i, p := range m.Params {
		for k, x := range now.Weights[i] {
			d := float64(x) - float64(p.Data[k])
			sum += d * d
		}
	}
	return math.Sqrt(sum)
}
