package alpaca

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

func judged(preferences ...float64) (all []Judgement) {
	for i, p := range preferences {
		all = append(all, Judgement{Instruction: fmt.Sprint(i), Output: strings.Repeat("é", i), Preference: p,
			Judged: p >= 0, Source: fmt.Sprintf("a.jsonl:%d", i+1)})
	}
	return all
}

// TestCount: numbers by hand. Of probabilities 0, 1/2 (twice, one written 0) and 1 the mean is 1/2, the variance 1/6.
func TestCount(t *testing.T) {
	got, err := Count(judged(1, 0, 1.5, 2, -1))
	want := Counts{WinRate: 50, StandardError: 100 * math.Sqrt(1./6/4), Wins: 1, WinsBase: 1, Draws: 2, Total: 4,
		DiscreteWinRate: 50, AvgLength: 2}
	if err != nil || got != want {
		t.Errorf("%+v, %v: want %+v", got, err, want)
	}
	if _, err := Count(judged(1, -1)); err == nil || err.Error() != "1 judgements with a preference: want two or more" {
		t.Error(err)
	}
}

// TestCountsOfAlpacaEval: the numbers are alpaca_eval 0.6.6's where preferences are missing (null, or Python's NaN) or
// draws (scripts/oracle/alpaca_counts.py).
func TestCountsOfAlpacaEval(t *testing.T) {
	var files []struct {
		Preferences string // a list
		Counts      Counts
	}
	text, err := os.ReadFile("testdata/counts.json")
	if err == nil {
		err = json.Unmarshal(text, &files)
	}
	if err != nil || len(files) != 5 {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		var rows strings.Builder
		for i, p := range strings.Split(strings.Trim(f.Preferences, "[]"), ", ") {
			fmt.Fprintf(&rows, `{"instruction":"%d","output_2":"é","generator_2":"m","preference":%s}`+"\n", i, p)
		}
		path := expect.File(t, "annotations.jsonl", rows.String())
		all, _, err := ReadJudgements(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Count(all)
		for _, x := range []*float64{&got.WinRate, &got.StandardError, &got.DiscreteWinRate, &f.Counts.WinRate,
			&f.Counts.StandardError, &f.Counts.DiscreteWinRate} {
			*x = math.Round(1e9*(*x)) / 1e9
		}
		if f.Counts.AvgLength = 1; err != nil || got != f.Counts {
			t.Errorf("%s: %+v, %v, want %+v", f.Preferences, got, err, f.Counts)
		}
	}
}

// simulate draws judgements from the regression itself: instructions with difficulties, models with weights.
func simulate(n int, weights []Weights) (b *Outputs, models [][]Judgement, truth []float64) {
	r := rand.New(rand.NewPCG(5, 6))
	b = &Outputs{Of: map[string]string{}}
	difficulty := make([]float64, n)
	for i := range n {
		b.Of[fmt.Sprint(i)] = strings.Repeat("x", 500+r.IntN(1000))
		difficulty[i] = r.NormFloat64()
	}
	for _, w := range weights {
		all := make([]Judgement, n)
		for i := range all {
			all[i] = Judgement{Instruction: fmt.Sprint(i), Output: strings.Repeat("x", 300+r.IntN(1000)),
				Judged: true}
		}
		features, err := featuresOf(all, b)
		if err != nil {
			panic(err)
		}
		rate := 0.0
		for i, f := range features {
			all[i].Preference = 1 + sigmoid(w.Length*f.length+w.Difficulty*difficulty[i]+w.Model)
			rate += 100 / float64(n) * sigmoid(w.Difficulty*difficulty[i]+w.Model)
		}
		models, truth = append(models, all), append(truth, rate)
	}
	return b, models, truth
}

// TestControlLengthFindsTheTruth: judgements that the regression made give the rate at equal lengths, though outputs
// are shorter than the baseline's; the plain win rate does not.
func TestControlLengthFindsTheTruth(t *testing.T) {
	weights := []Weights{{Length: -1.5, Difficulty: 1, Model: -0.5}, {Length: -1.4, Difficulty: 0.9, Model: 0},
		{Length: -1.6, Difficulty: 1.1, Model: -1}, {Length: -1.5, Difficulty: 1, Model: 0.5}}
	b, models, truth := simulate(400, weights)
	var others []Reference
	for k := 1; k < len(models); k++ {
		others = append(others, Reference{models[k], weights[k]})
	}
	got, err := ControlLength(models[0], b, others)
	if err != nil || math.Abs(got.WinRate-truth[0]) > 1 || got.References != 3 {
		t.Errorf("%+v, %v: want about %.2f", got, err, truth[0])
	}
	if c, _ := Count(models[0]); math.Abs(c.WinRate-truth[0]) < 3 {
		t.Errorf("the plain win rate %.2f is as good: the test says nothing", c.WinRate)
	}
	if alone, err := ControlLength(models[0], b, nil); err != nil || alone.Weights.Difficulty != 0 {
		t.Errorf("%+v, %v", alone, err)
	}
}

// TestCertainJudgements: a regression without an optimum ends.
func TestCertainJudgements(t *testing.T) {
	b, models, _ := simulate(20, []Weights{{}})
	for i := range models[0] {
		models[0][i].Preference = 2
	}
	if c, err := ControlLength(models[0], b, nil); err != nil || !(c.WinRate > 99.9 && c.WinRate <= 100) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestControlLengthErrors(t *testing.T) {
	b, models, _ := simulate(20, []Weights{{}})
	delete(b.Of, "7")
	if _, err := ControlLength(models[0], b, nil); err == nil || !strings.Contains(err.Error(),
		"the baseline has no output for "+
			"the instruction \"7\"") {
		t.Error(err)
	}
	same := judged(1, 2, 1.5)
	for i := range same {
		b.Of[fmt.Sprint(i)] = same[i].Output
	}
	if _, err := ControlLength(same, b, nil); err == nil || !strings.HasPrefix(err.Error(), "all outputs differ") {
		t.Error(err)
	}
}

// TestReleasedModels counts the released judgements of eight models: the published win rate and standard error to 1e-6,
// and a length-controlled win rate that is near the published one.
func TestReleasedModels(t *testing.T) {
	dir := need.File(t, "data", "alpaca-eval")
	weights, err := ReadWeights(filepath.Join(dir, "lc_weights.csv"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadOutputs(filepath.Join(dir, "baseline.jsonl.gz"), 1)
	if err != nil {
		t.Fatal(err)
	}
	published := map[string][3]float64{ // win rate, standard error, length-controlled win rate
		"FuseChat-Llama-3.2-1B-Instruct": {29.92193227, 1.39345843, 25.2710},
		"OpenHermes-2.5-Mistral-7B":      {10.34041571, 0.93565539, 16.2486},
		"alpaca-7b":                      {2.59145054, 0.48708554, 5.8755},
		"claude-2":                       {17.18824036, 1.17482826, 28.1552},
		"falcon-7b-instruct":             {2.14661755, 0.45422579, 4.0369},
		"gemma-2b-it":                    {3.40197144, 0.53899813, 5.4375},
		"gpt-3.5-turbo-1106":             {9.17796456, 0.89041175, 19.3006},
		"vicuna-13b-v1.5":                {6.72212201, 0.76741740, 10.4844},
	}
	models := map[string][]Judgement{}
	for name := range published {
		if models[name], _, err = ReadJudgements(filepath.Join(dir, "annotations",
			name+".jsonl.gz")); err != nil {
			t.Fatal(err)
		}
	}
	worst, sum := 0.0, 0.0
	for name, want := range published {
		c, err := Count(models[name])
		if err != nil || math.Abs(c.WinRate-want[0]) > 1e-6 || math.Abs(c.StandardError-want[1]) > 1e-6 ||
			c.Total != 805 {
			t.Errorf("%s: %+v, %v: want %v", name, c, err, want)
		}
		var others []Reference
		for other, all := range models {
			if other != name {
				others = append(others, Reference{all, weights[other]})
			}
		}
		lc, err := ControlLength(models[name], b, others)
		if err != nil {
			t.Fatal(err)
		}
		d := math.Abs(lc.WinRate - want[2])
		worst, sum = max(worst, d), sum+d
		t.Logf("%s: win rate %.2f, length-controlled %.2f, published %.2f", name, c.WinRate, lc.WinRate, want[2])
	}
	if worst > 3.5 || sum/8 > 1.1 {
		t.Errorf("length-controlled rates differ from the published ones by %.2f at most, %.2f on average", worst,
			sum/8)
	}
}
