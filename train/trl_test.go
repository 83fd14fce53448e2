package train

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/tokenizer"
)

// trlRun is a whole training run recorded by scripts/oracle/trl_runs.py.
type trlRun struct {
	Model   string `json:"model"`
	Options struct {
		LearningRate   float64   `json:"learning_rate"`
		Batch          int       `json:"batch"`
		Accumulate     int       `json:"accumulate"`
		Steps          int       `json:"steps"`
		MaxGradNorm    float64   `json:"max_grad_norm"`
		WeightDecay    float64   `json:"weight_decay"`
		LossType       any       `json:"loss_type"`
		LossWeights    []float64 `json:"loss_weights"`
		Beta           float64   `json:"beta"`
		Alpha          float64   `json:"cpo_alpha"`
		Gamma          float64   `json:"simpo_gamma"`
		LabelSmoothing float64   `json:"label_smoothing"`
		CompletionOnly bool      `json:"completion_only_loss"`
		Center         float64   `json:"center_rewards_coefficient"`
		Quantize       string    `json:"quantize"`
		Desirable      *float64  `json:"desirable_weight"`
		Undesirable    *float64  `json:"undesirable_weight"`
	} `json:"options"`
	Steps   []map[string]float64 `json:"steps"`
	Tokens  []trlTokens          `json:"tokens"` // nil: the model's own; of a reward model, without prompts
	Margins []float64            `json:"margins"`

	Desirable []bool `json:"desirable"` // of kto

	Weights map[string]struct {
		Sum, Norm, Change float64
	} `json:"weights"`
}

// tokens are a pair as TRL tokenised it.
type trlTokens struct {
	Prompt   []int32 `json:"prompt_ids"`
	Chosen   []int32 `json:"chosen_ids"`
	Rejected []int32 `json:"rejected_ids"`
}

// loss gives our options for TRL's.
func (r trlRun) loss(file string) losses.Options {
	kind := map[string]string{"sigmoid": losses.DPO, "ipo": losses.IPO, "simpo": losses.SimPO, "hinge": losses.Hinge,
		"robust": losses.Robust, "[sigmoid sft]": losses.RPO}[fmt.Sprint(r.Options.LossType)]
	if strings.Contains(file, "-cpo") {
		kind = losses.CPO
	} else if strings.Contains(file, "-orpo") {
		kind = losses.ORPO
	} else if strings.Contains(file, "-kto") {
		kind = losses.KTO
	}
	o := losses.Defaults(kind)
	o.Prior, o.Beta = losses.None, r.Options.Beta
	switch kind {
	case losses.SimPO:
		*o.Gamma = r.Options.Gamma
	case losses.CPO:
		*o.Lambda = r.Options.Alpha
	case losses.RPO:
		*o.Lambda = r.Options.LossWeights[1]
	case losses.KTO:
		o.DesirableWeight, o.UndesirableWeight = r.Options.Desirable, r.Options.Undesirable
	}
	if o.LabelSmoothing != nil {
		*o.LabelSmoothing = r.Options.LabelSmoothing
	}
	return o
}

func (r trlRun) train() Options {
	return Options{MaxSteps: r.Options.Steps, BatchSize: r.Options.Batch * r.Options.Accumulate,
		MicroBatchSize: r.Options.Batch,
		LearningRate:   r.Options.LearningRate, Schedule: "constant", WeightDecay: r.Options.WeightDecay,
		AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEpsilon: 1e-8, MaxGradNorm: r.Options.MaxGradNorm, LogEvery: 1,
		CheckpointKeep: 1}
}

// TestWholeRunsEqualTRLs repeats recorded runs, pairs in file order: loss, norm, log-probs and rewards of every step
// within 1e-3 relative, with shared prompts and without.
func TestWholeRunsEqualTRLs(t *testing.T) {
	files, err := filepath.Glob("testdata/trl-*-*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recorded runs in testdata", err)
	}
	for i, file := range files {
		if strings.Contains(file, "tokens") {
			continue
		}
		var r trlRun
		expect.Decode(t, file, &r)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
				for _, share := range backendtest.Some(t, e, i, true, false) {
					t.Run(fmt.Sprintf("share=%v", share), func(t *testing.T) { repeat(t, e, file, r, share) })
				}
			})
		})
	}
}

func repeat(t *testing.T, e *backend.Engine, file string, r trlRun, share bool) {
	dir := filepath.Join("..", "model", "testdata", r.Model)
	if isReward(file) {
		dir, _ = testkit.RewardModel(t, filepath.Dir(dir), strings.TrimSuffix(r.Model, "-newer"))
	}
	m := expect.Must(model.Load(dir))(t)
	repeatOn(t, e, m, file, r, share)
}

func repeatOn(t *testing.T, e *backend.Engine, m *model.Model, file string, r trlRun, share bool) {
	l := expect.Must(NewLearner(e, m, model.GraphOptions{}))(t)
	defer l.Close()
	tokens := r.Tokens
	if tokens == nil {
		expect.Decode(t, "testdata/trl-tokens-"+r.Model+".json", &tokens)
	}
	f := expect.Must(run.Create(t.TempDir(), "test"))(t)
	defer f.Close()
	set := &Dataset{}
	switch {
	case strings.Contains(file, "-sft"):
		set = demonstrations(tokens, r.Options.CompletionOnly)
	case strings.Contains(file, "-kto"):
		set = labelled(t, l, tokens, r, share)
	case isReward(file):
		set = rewards(t, r)
	default:
		set = pairs(t, l, tokens, r.loss(file), share)
	}
	set.Share = share
	loop := &Trainer{Options: r.train(), Source: set, Learner: l, Folder: f, Export: Exporter{Model: m}}
	expect.OK(t, loop.Run(t.Context()))
	records := expect.Must(f.ReadMetrics())(t)
	compareSteps(t, file, records, r)
	compareWeights(t, l, m, r)
}

func pairs(t *testing.T, l *Learner, tokens []trlTokens, o losses.Options, share bool) *Dataset {
	d := &Dataset{Method: &Preference{Options: o, Tolerance: losses.ToleranceFloat32}}
	for _, x := range tokens {
		g := Group{Prompt: x.Prompt, Answers: [][]int32{x.Chosen, x.Rejected}}
		d.Examples = append(d.Examples, Example{Group: g, Scored: true})
	}
	if !o.ReferenceFree() {
		refer(t, l, d, Groups(d.Examples), share)
	}
	return d
}

// refer measures the reference's log-probs of groups of two answers, one for each example.
func refer(t *testing.T, l *Learner, d *Dataset, groups []Group, share bool) {
	t.Helper()
	for i, sums := range pairSums(t, l, groups, share) {
		d.Examples[i].Reference = sums
	}
}

// labelled has the chosen answers of some pairs, and the rejected ones of the others.
func labelled(t *testing.T, l *Learner, tokens []trlTokens, r trlRun, share bool) *Dataset {
	d := &Dataset{Method: &KTO{Options: r.loss("-kto"), Tolerance: losses.ToleranceFloat32}}
	for i, x := range tokens {
		answer := map[bool][]int32{true: x.Chosen, false: x.Rejected}[r.Desirable[i]]
		d.Examples = append(d.Examples, Example{Group: Group{Prompt: x.Prompt, Answers: [][]int32{answer}},
			Desirable: r.Desirable[i]})
	}
	expect.OK(t, Mismatch(d.Examples, Order(len(d.Examples), 0, 0, false), r.train().BatchSize, 0))
	refer(t, l, d, Both(d.Examples), share)
	return d
}

func isReward(file string) bool { return strings.Contains(file, "-reward") }

// rewards are the recorded pairs as our encoder makes them, whose tokens must be TRL's.
func rewards(t *testing.T, r trlRun) *Dataset {
	tok := expect.Must(tokenizer.Load(filepath.Join("..", "model", "testdata", r.Model)))(t)
	pairs, _, err := data.ReadPreferences("testdata/pairs.jsonl", data.PreferenceOptions{})
	expect.OK(t, err)
	id, _ := tok.Pad()
	pad, e := int(id), batch.Encoder{Tokenizer: tok}
	d := &Dataset{Method: &Reward{Options: losses.BradleyTerry{Center: r.Options.Center}}}
	for i, p := range pairs {
		g := expect.Must(e.Scored(p.Source, &pad, p.Prompt, p.Chosen, p.Rejected))(t)
		for k, want := range [][]int32{r.Tokens[i].Chosen, r.Tokens[i].Rejected} {
			got := slices.Concat(g.Prompt, g.Answers[k][:len(g.Answers[k])-1])
			if !slices.Equal(got, want) {
				t.Errorf("%s: text %d has the tokens %v: TRL's are %v", p.Source, k, got, want)
			}
		}
		one := Example{Group: g}
		if r.Margins != nil {
			one.Gap = r.Margins[i]
		}
		d.Examples = append(d.Examples, one)
	}
	return d
}

func demonstrations(tokens []trlTokens, completionOnly bool) *Dataset {
	var groups []batch.Group
	for _, x := range tokens {
		g := batch.Group{Prompt: x.Prompt, Answers: [][]int32{x.Chosen}}
		if !completionOnly {
			all := append(append([]int32{}, x.Prompt...), x.Chosen...)
			g = batch.Group{Prompt: all[:1], Answers: [][]int32{all[1:]}}
		}
		groups = append(groups, g)
	}
	return &Dataset{Method: SFT{}, Examples: examplesOf(groups)}
}

// meanLogps says whether TRL logs log-probs per token.
func meanLogps(file string) bool {
	return strings.Contains(file, "simpo") || strings.Contains(file, "orpo")
}

func compareSteps(t *testing.T, file string, records []run.Record, r trlRun) {
	t.Helper()
	if len(records) != len(r.Steps) {
		t.Fatalf("%d steps: want %d", len(records), len(r.Steps))
	}
	for i, want := range r.Steps {
		for name, w := range want {
			got, ok := records[i].Values[name]
			if !ok || meanLogps(file) && strings.HasPrefix(name, "logps/") {
				continue // TRL logs per-token means, and figures of its own
			}
			if r.Options.Accumulate > 1 && (name == MetricMinReward || name == MetricMaxReward) {
				continue // TRL logs the mean of the microbatches' extremes
			}
			// Implicit rewards near 0 are small differences of float32 sums around 100.
			if math.Abs(got-w) > 1e-3*math.Max(math.Abs(w), 0.05) {
				t.Errorf("step %d: %s is %v: TRL has %v", i+1, name, got, w)
			}
		}
	}
}

// compareWeights holds what the run did to every tensor against TRL's.
func compareWeights(t *testing.T, l *Learner, m *model.Model, r trlRun) {
	t.Helper()
	got, _, err := l.Read()
	expect.OK(t, err)
	for i, p := range m.Trained() {
		want, ok := r.Weights[p.Name]
		if !ok {
			continue
		}
		norm, change := 0.0, 0.0
		for k, x := range got.Weights[i] {
			d := float64(x) - float64(p.Data[k])
			norm, change = norm+float64(x)*float64(x), change+d*d
		}
		if norm = math.Sqrt(norm); math.Abs(norm-want.Norm) > 1e-4*want.Norm {
			t.Errorf("%s has norm %v: TRL %v", p.Name, norm, want.Norm)
		}
		if change = math.Sqrt(change); math.Abs(change-want.Change) > 1e-2*want.Change {
			t.Errorf("%s changed by %v: TRL's by %v", p.Name, change, want.Change)
		}
	}
}
