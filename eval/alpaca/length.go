package alpaca

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// The regression is of a win's probability,
//
//	σ(w_length·tanh((|y_baseline| - |y|)/s) + w_difficulty·d(x) + w_model)
//
// where |y| is a length in characters and s the standard deviation of the differences. The length-controlled win rate is
// the mean over instructions with the first term 0.
//
// Two of the benchmark's ingredients are not released: the difficulties d(x), and the judgements of two baselines with
// other lengths, which hold w_length where a model's own judgements say little. In their place, the difficulties are
// fitted to the judgements of other models whose weights are published, and w_length and w_difficulty are drawn towards
// the mean of these models' weights.
const (
	spreadOfDifficulty = 0.3 // 1/variance of the difficulties, as a penalty of their squares
	drawOfWeights      = 20  // the same of the first two weights around the mean
)

// Reference is another model, with its published weights.
type Reference struct {
	Judgements []Judgement
	Weights    Weights
}

// Controlled is a length-controlled win rate.
type Controlled struct {
	WinRate    float64 `json:"length_controlled_winrate"` // in hundredths
	Weights    Weights `json:"weights"`
	References int     `json:"references"` // models that gave the difficulties; 0: without difficulties
}

// ControlLength gives the length-controlled win rate. The error names an instruction that the baseline lacks.
func ControlLength(all []Judgement, b *Outputs, others []Reference) (c Controlled, err error) {
	own, err := featuresOf(all, b)
	if err != nil {
		return c, err
	}
	difficulty, err := difficulties(b, others)
	if err != nil {
		return c, err
	}
	middle := meanWeights(others)
	terms := []term{{weight: middle.Length, middle: middle.Length, draw: drawOfWeights},
		{weight: middle.Difficulty, middle: middle.Difficulty, draw: drawOfWeights}, {}}
	if len(others) == 0 {
		terms[0].draw = 0
	}
	var wins []float64
	for _, f := range own {
		wins = append(wins, f.win)
		for k, x := range []float64{f.length, difficulty[f.instruction], 1} {
			terms[k].x = append(terms[k].x, x)
		}
	}
	fit(terms, wins)
	sum := 0.0
	for i := range wins {
		sum += sigmoid(terms[1].weight*terms[1].x[i] + terms[2].weight)
	}
	return Controlled{100 * sum / float64(len(wins)), Weights{Length: terms[0].weight,
		Difficulty: terms[1].weight, Model: terms[2].weight}, len(others)}, nil
}

// feature is what the regression knows of a judgement.
type feature struct {
	instruction string
	length, win float64
}

// featuresOf lists the features of judgements with a preference.
func featuresOf(all []Judgement, b *Outputs) (features []feature, err error) {
	sum, squares := 0.0, 0.0
	for _, j := range all {
		output, found := b.Of[j.Instruction]
		if !found {
			return nil, fmt.Errorf("%s: the baseline has no output for the instruction %.60q", j.Source, j.Instruction)
		}
		if j.Judged {
			d := float64(utf8.RuneCountInString(output) - utf8.RuneCountInString(j.Output))
			sum, squares = sum+d, squares+d*d
			features = append(features, feature{j.Instruction, d, win(j)})
		}
	}
	n := float64(len(features))
	s := math.Sqrt((squares - sum*sum/n) / (n - 1))
	if !(s > 0) {
		return nil, errors.New("all outputs differ from the baseline's by the same length: there is nothing to control")
	}
	for i := range features {
		features[i].length = math.Tanh(features[i].length / s)
	}
	return features, nil
}

func meanWeights(others []Reference) (w Weights) {
	n := float64(len(others))
	for _, o := range others {
		w.Length += o.Weights.Length / n
		w.Difficulty += o.Weights.Difficulty / n
	}
	return w
}

// difficulties fits the difficulty of each instruction to the references' judgements, under their published weights.
func difficulties(b *Outputs, others []Reference) (map[string]float64, error) {
	type point struct{ known, weight, win float64 }
	points := map[string][]point{}
	for _, o := range others {
		features, err := featuresOf(o.Judgements, b)
		if err != nil {
			return nil, err
		}
		for _, f := range features {
			points[f.instruction] = append(points[f.instruction],
				point{o.Weights.Length*f.length + o.Weights.Model, o.Weights.Difficulty, f.win})
		}
	}
	all := map[string]float64{}
	for _, instruction := range slices.Sorted(maps.Keys(points)) {
		d := 0.0
		for range newtonSteps {
			slope, curve := -spreadOfDifficulty*d, spreadOfDifficulty
			for _, q := range points[instruction] {
				p := sigmoid(q.known + q.weight*d)
				slope, curve = slope+q.weight*(q.win-p), curve+q.weight*q.weight*p*(1-p)
			}
			d += slope / curve
		}
		all[instruction] = d
	}
	return all, nil
}

const newtonSteps = 50

// term is a weight of a logistic regression and the values that it multiplies.
type term struct {
	x              []float64
	weight, middle float64
	draw           float64 // how strongly the weight is drawn to the middle
}

// fit finds the weights, one after the other, until none moves.
func fit(terms []term, wins []float64) {
	u := make([]float64, len(wins))
	for _, t := range terms {
		for i, x := range t.x {
			u[i] += t.weight * x
		}
	}
	for round, moved := 0, 1.0; round < 10000 && moved > 1e-12; round++ {
		moved = 0
		for k := range terms {
			t := &terms[k]
			slope, curve := t.draw*(t.middle-t.weight), t.draw
			for i, x := range t.x {
				p := sigmoid(u[i])
				slope, curve = slope+x*(wins[i]-p), curve+x*x*p*(1-p)
			}
			if curve == 0 { // a term of zeros
				continue
			}
			step := min(max(slope/curve, -2), 2)
			for i, x := range t.x {
				u[i] += step * x
			}
			t.weight, moved = t.weight+step, max(moved, math.Abs(step))
		}
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
