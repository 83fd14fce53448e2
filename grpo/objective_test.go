package grpo

import (
	"math"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// slots lays a batch out as the trainer does, with padding slots that hold rubbish at both ends.
type slots struct {
	logps, weight, advantage, old, reference, answer, share []float32
}

const padding = 3

func (s *slots) add(logp, weight, advantage, old, reference, answer, share float64) {
	for _, x := range []struct {
		to *[]float32
		v  float64
	}{{&s.logps, logp}, {&s.weight, weight}, {&s.advantage, advantage}, {&s.old, old}, {&s.reference, reference},
		{&s.answer, answer}, {&s.share, share}} {
		*x.to = append(*x.to, float32(x.v))
	}
}

func (s *slots) pad() {
	for range padding {
		s.add(-700, 0, 5, 600, 500, -1, 0.5)
	}
}

func layOut(o Options, b Batch) *slots {
	s := &slots{}
	s.pad()
	for i, w := range o.weights(lengths(b.Logps), b.Masked) {
		for t := range b.Logps[i] {
			old, ref := 0.0, 0.0
			if b.Old != nil {
				old = b.Old[i][t]
			}
			if b.Reference != nil {
				ref = b.Reference[i][t]
			}
			s.add(b.Logps[i][t], w, b.advantage(i, t), old, ref, float64(i), 1/float64(len(b.Logps[i])))
		}
	}
	s.pad()
	return s
}

// inGraph runs the float32 graph of the objective: loss, and gradient by answers and tokens.
func inGraph(t *testing.T, e *backend.Engine, o Options, b Batch) (loss float64, grad [][]float64) {
	t.Helper()
	s := layOut(o, b)
	n := len(s.logps)
	p, err := e.Compile("objective", func(g *graph.Graph) []*graph.Node {
		node := func(name string) *graph.Node { return graph.Parameter(g, name, shapes.Make(dtypes.Float32, n)) }
		in := Inputs{Logps: node("logps"), Weight: node("weight"), Advantage: node("advantage"), Answers: len(b.Logps)}
		old, ref := node("old"), node("reference")
		in.Answer, in.Share = node("answer"), node("share")
		if b.Old != nil {
			in.Old = old
		}
		if b.Reference != nil {
			in.Reference = ref
		}
		loss := o.Graph(in)
		return []*graph.Node{loss, graph.Gradient(loss, in.Logps)[0], graph.Add(graph.Add(old, ref),
			graph.Add(in.Answer, in.Share))}
	})
	expect.OK(t, err)
	defer p.Close()
	var in []compute.Buffer
	for _, x := range [][]float32{s.logps, s.weight, s.advantage, s.old, s.reference, s.answer, s.share} {
		buffer := expect.Must(e.Float32(x, n))(t)
		in = append(in, buffer)
	}
	out := expect.Must(p.Run(in, nil))(t)
	defer backend.FinalizeAll(append(in, out...)...)
	value := expect.Must(backend.Floats(out[0]))(t)
	flat := expect.Must(backend.Floats(out[1]))(t)
	return float64(value[0]), byAnswer(t, b, flat)
}

// byAnswer takes a gradient apart; padding's must be 0.
func byAnswer(t *testing.T, b Batch, flat []float32) (grad [][]float64) {
	t.Helper()
	for k := range padding {
		if flat[k] != 0 || flat[len(flat)-1-k] != 0 {
			t.Error("padding has a gradient")
		}
	}
	at := padding
	for _, row := range b.Logps {
		g := make([]float64, len(row))
		for k := range g {
			g[k] = float64(flat[at])
			at++
		}
		grad = append(grad, g)
	}
	return grad
}

// roundBatch returns the batch with its numbers rounded to float32.
func roundBatch(b Batch) Batch {
	round := func(rows [][]float64) (out [][]float64) {
		for _, row := range rows {
			r := make([]float64, len(row))
			for t, x := range row {
				r[t] = float64(float32(x))
			}
			out = append(out, r)
		}
		return out
	}
	advantages := round([][]float64{b.Advantages})[0]
	return Batch{Logps: round(b.Logps), Old: round(b.Old), Reference: round(b.Reference), Advantages: advantages,
		Masked: b.Masked}
}

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if !(math.Abs(got-want) <= relative*math.Abs(want)+1e-12) {
		t.Errorf("%s is %v: want %v", what, got, want)
	}
}

func nearAll(t *testing.T, what string, got, want []float64, relative float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d numbers: want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		near(t, what, got[i], want[i], relative)
	}
}

// TestObjectiveByHand: two answers of one and two tokens, ratios 1.5, 1 and 0.5, advantages 1 and -1, clipped at 0.8
// and 1.2.
func TestObjectiveByHand(t *testing.T) {
	o := DefaultOptions()
	o.KL, o.KLCoef = None, 0
	b := Batch{Logps: [][]float64{{-1}, {-2, -3}}, Old: [][]float64{{-1 - math.Log(1.5)}, {-2, -3 + math.Log(2)}},
		Advantages: []float64{1, -1}}
	out := o.Host(b)
	near(t, "loss", out.Loss, (-1.2+1+0.8)/3, 1e-12)
	nearAll(t, "gradient of the first", out.Grad[0], []float64{0}, 1e-12)
	nearAll(t, "gradient of the second", out.Grad[1], []float64{1.0 / 3, 0}, 1e-12)
	if out.Tokens != 3 || out.ClippedHigh != 1 || out.ClippedLow != 1 || out.MaxRatio != 1.5 ||
		math.Abs(out.MinRatio-0.5) > 1e-12 {
		t.Errorf("%+v", out)
	}
	o.Aggregation = SeqMeanMean
	near(t, "mean of means", o.Host(b).Loss, (-1.2+(1+0.8)/2)/2, 1e-12)
	o.Aggregation = SeqMeanSum
	near(t, "mean of sums", o.Host(b).Loss, (-1.2+1+0.8)/2, 1e-12)
	o.Aggregation, o.NormLength = SeqMeanConstant, 4
	near(t, "mean of sums over 4", o.Host(b).Loss, (-1.2+1+0.8)/8, 1e-12)
	o.Aggregation, o.RatioLevel = TokenMean, Sequence // geometric mean √0.5 of the second answer, below 0.8
	near(t, "sequence", o.Host(b).Loss, (-1.2+2*0.8)/3, 1e-12)
	b.Masked = []bool{true, false}
	near(t, "masked", o.Host(b).Loss, 0.8, 1e-12)
}

// TestImportanceByHand: the old policy finds the tokens 2 times, 0.5 times and 8 times as likely as the sampler did; at
// most 3 counts, and twice an advantage is twice a loss.
func TestImportanceByHand(t *testing.T) {
	o := DefaultOptions()
	o.KL, o.KLCoef, o.ImportanceCap = None, 0, 3
	ln2 := float32(math.Ln2)
	factors := o.importance([]float32{-1, -2, -3}, []float32{-1 - ln2, -2 + ln2, -3 - 3*ln2})
	nearAll(t, "factors", factors, []float64{2, 0.5, 3}, 1e-6)
	b := Batch{Logps: [][]float64{{-1, -2, -3}}, Old: [][]float64{{-1, -2, -3}}, Advantages: []float64{1},
		Importance: [][]float64{factors}}
	out := o.Host(b)
	near(t, "loss", out.Loss, -(2+0.5+3)/3, 1e-6)
	nearAll(t, "gradient", out.Grad[0], []float64{-2.0 / 3, -0.5 / 3, -1}, 1e-6)
	o.RatioLevel = Sequence
	root := math.Cbrt(2 * 0.5 * 8)
	nearAll(t, "of the sequence", o.importance([]float32{-1, -2, -3}, []float32{-1 - ln2, -2 + ln2, -3 - 3*ln2}),
		[]float64{root, root, root}, 1e-6)
}

// TestWholeAnswersByHand: the objective as CI-RL's paper prints it, with the ratio and the KL of whole answers and the
// mean over the answers, written out: answer 1 has log-ratio ln 1.5, is clipped at 1.2, and is ln 2 below the
// reference; answer 2 has ln 0.9, and the reference's log-prob.
func TestWholeAnswersByHand(t *testing.T) {
	o := DefaultOptions()
	o.RatioLevel, o.Aggregation, o.KL, o.KLCoef = Whole, SeqMeanMean, K3, 0.1
	ln := math.Log
	b := Batch{Logps: [][]float64{{-1, -2}, {-3, -0.5, -0.25}}, Advantages: []float64{1, -1},
		Old:       [][]float64{{-1 - ln(3), -2 + ln(2)}, {-3, -0.5 - ln(0.9), -0.25}},
		Reference: [][]float64{{-1, -2 + ln(2)}, {-3.5, -0.25, 0}}}
	kl := 2 - ln(2) - 1
	out := o.Host(b)
	near(t, "loss", out.Loss, ((-1.2+0.1*kl)+(0.9+0.1*0))/2, 1e-12)
	nearAll(t, "gradient of the first", out.Grad[0], []float64{-0.1 / 2, -0.1 / 2}, 1e-12)
	nearAll(t, "gradient of the second", out.Grad[1], []float64{0.45, 0.45, 0.45}, 1e-12)
}

// TestCISPOByHand: ratios 1.5, 1 and 0.5, clipped above at 1.2, weigh the log-probs -1, -2 and -3; every token has a
// gradient.
func TestCISPOByHand(t *testing.T) {
	o := DefaultOptions()
	o.Surrogate, o.ClipLow, o.KL, o.KLCoef = CISPO, 1, None, 0
	b := Batch{Logps: [][]float64{{-1}, {-2, -3}}, Old: [][]float64{{-1 - math.Log(1.5)}, {-2, -3 + math.Log(2)}},
		Advantages: []float64{1, -1}}
	out := o.Host(b)
	near(t, "loss", out.Loss, (1.2*1-1*2-0.5*3)/3, 1e-12)
	nearAll(t, "gradient of the first", out.Grad[0], []float64{-1.2 / 3}, 1e-12)
	nearAll(t, "gradient of the second", out.Grad[1], []float64{1.0 / 3, 0.5 / 3}, 1e-12)
	if out.ClippedHigh != 1 || out.ClippedLow != 0 {
		t.Errorf("%+v", out)
	}
	o.ClipLow = 0.2
	near(t, "clipped below", o.Host(b).Loss, (1.2*1-1*2-0.8*3)/3, 1e-12)
}

// TestGraphEqualsHost: on numbers that are rounded to float32.
func TestGraphEqualsHost(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for name, o := range objectivesOn(t, e) {
			for _, old := range []bool{true, false} {
				b := roundBatch(Batch{Logps: [][]float64{{-1, -0.5, -2}, {-3, -0.1}, {-0.7}},
					Old:       [][]float64{{-1.4, -0.45, -2.1}, {-2.7, -0.6}, {-0.75}},
					Reference: [][]float64{{-1.1, -0.9, -1.2}, {-2, -0.3}, {-1}}, Advantages: []float64{1.2, -0.7, 0}})
				if !o.NeedsReference() {
					b.Reference = nil
				}
				if !old {
					b.Old = nil
				}
				want := o.Host(b)
				loss, grad := inGraph(t, e, o, b)
				near(t, name+" loss", loss, want.Loss, 2e-5)
				for i := range grad {
					nearAll(t, name+" gradient", grad[i], want.Grad[i], 2e-5)
				}
			}
		}
	})
}

// TestHostFollowsFiniteDifferences for every option, away from the edges of clipping.
func TestHostFollowsFiniteDifferences(t *testing.T) {
	for name, o := range objectives() {
		if o.Surrogate == CISPO { // its weights are constants: TestCISPOByHand
			continue
		}
		b := Batch{Logps: [][]float64{{-1, -0.5, -2}, {-3, -0.1}, {-0.7}}, Old: [][]float64{{-1.4, -0.45, -2.1},
			{-2.7, -0.6}, {-0.75}},
			Reference: [][]float64{{-1.1, -0.9, -1.2}, {-2, -0.3}, {-1}}, Advantages: []float64{1.2, -0.7, 0}}
		if !o.NeedsReference() {
			b.Reference = nil
		}
		out := o.Host(b)
		for i := range b.Logps {
			for k, was := range b.Logps[i] {
				const h = 1e-6
				b.Logps[i][k] = was + h
				up := o.Host(b).Loss
				b.Logps[i][k] = was - h
				down := o.Host(b).Loss
				b.Logps[i][k] = was
				if got := (up - down) / (2 * h); math.Abs(got-out.Grad[i][k]) > 1e-8 {
					t.Errorf("%s: answer %d, token %d: differences give %v, the gradient is %v", name, i, k, got,
						out.Grad[i][k])
				}
			}
		}
	}
}

// TestExtremesStayFinite: log-probs far from the old policy's and the reference's, on the host and in the graph.
func TestExtremesStayFinite(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for name, o := range objectives() {
			b := Batch{Logps: [][]float64{{-700, 0, -300}, {0, -700}}, Old: [][]float64{{0, -700, -300}, {-700, 0}},
				Reference: [][]float64{{0, -700, -300}, {-700, 0}}, Advantages: []float64{2, -1.5}}
			if !o.NeedsReference() {
				b.Reference = nil
			}
			want := o.Host(b)
			loss, grad := inGraph(t, e, o, b)
			near(t, name+" loss", loss, want.Loss, 1e-4)
			for i := range grad {
				nearAll(t, name+" gradient", grad[i], want.Grad[i], 1e-4)
				for _, g := range want.Grad[i] {
					if !float.IsFinite(g) {
						t.Errorf("%s: gradient %v", name, want.Grad[i])
					}
				}
			}
		}
	})
}

// TestSmallDifferencesKeepTheirKL: near the reference, k3 and its gradient are d²/2 and -d to float32's accuracy.
func TestSmallDifferencesKeepTheirKL(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		o := DefaultOptions()
		o.KLCoef = 1
		for _, d := range []float64{1.0 / 1024, -1.0 / 4096, 0.125, -0.2421875, 0.265625, -0.5, 3} {
			b := roundBatch(Batch{Logps: [][]float64{{-1 - d}}, Reference: [][]float64{{-1}}, Advantages: []float64{0}})
			want := o.Host(b)
			loss, grad := inGraph(t, e, o, b)
			near(t, "k3", loss, want.Loss, 1e-5)
			nearAll(t, "its gradient", grad[0], want.Grad[0], 1e-6)
		}
	})
}
