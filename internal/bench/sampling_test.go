package main

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/internal/backend"
)

// tinyPrompts is a world of 3 prompts of 9 tokens, each repeated, with completions of 5 tokens.
func tinyPrompts(t *testing.T, samples int) string {
	t.Helper()
	dir, err := promptWorld("tiny", 3, samples, 9, 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestSamplersOfEveryWayDrawTheSame(t *testing.T) {
	dir := tinyPrompts(t, 2)
	var first []did
	for _, s := range []sampling{{}, {apart: true}, {whole: true}, {slots: 2}} {
		s.backend = "go"
		all := ask(t, dir, &s, "draw\ngreedy 3\nsample 4\nquit\nnever read")
		if first == nil {
			first = all
		}
		if len(all) != 3 || all[0].Tokens != 6*5 || all[2].Tokens != 4*5 || all[2].IDs != nil || all[2].Seconds <= 0 {
			t.Fatalf("%+v: answers %+v", s, all)
		}
		for i := range 2 {
			if same, worst := compareTokens(first[i], all[i]); same != len(first[i].IDs) || worst > 1e-4 {
				t.Errorf("%+v, %s: %d of %d rows the same, log-probs within %.1e",
					s, all[i].Did, same, len(first[i].IDs), worst)
			}
		}
	}
	if ids := first[0].IDs; slices.Equal(ids[0], ids[1]) {
		t.Errorf("two samples of a prompt are the same: %v", ids[0])
	}
}

func TestSamplerRefusesWhatItDoesNotKnow(t *testing.T) {
	dir := tinyPrompts(t, 1)
	for line, want := range map[string]string{
		"step": "want sample N", "sample x": "want sample N", "sample 4": "4 prompts asked for: there are only 3",
	} {
		var out strings.Builder
		err := (&sampling{backend: "go"}).serve(dir, strings.NewReader(line+"\n"), &out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v: want %q in it", line, err, want)
		}
	}
}

// Shared rows and separate rows must give the same log-probs, losses and gradients' norms, or their times mean nothing.
func TestGroupsTrainTheSameInBothLayouts(t *testing.T) {
	dir := tinyPrompts(t, 1)
	var first []did
	for _, apart := range []bool{false, true} {
		l := learning{backend: "go", apart: apart, samples: 3, rate: 1e-3}
		all := ask(t, dir, &l, "measure\nupdate\nupdate\nmeasure\nquit\n")
		if first == nil {
			first = all
		}
		for i, d := range all {
			for r, row := range d.Logps {
				for k := range row {
					if math.Abs(float64(row[k]-first[i].Logps[r][k])) > 1e-4 {
						t.Fatalf("apart %v, answer %d, row %d, token %d: log-prob %v, want %v",
							apart, i, r, k, row[k], first[i].Logps[r][k])
					}
				}
			}
			if math.Abs(d.Norm-first[i].Norm) > 1e-4*first[i].Norm || math.Abs(d.Loss-first[i].Loss) > 1e-4 {
				t.Errorf("apart %v, answer %d: norm %v, loss %v: want %v, %v",
					apart, i, d.Norm, d.Loss, first[i].Norm, first[i].Loss)
			}
		}
	}
	if first[1].Norm <= 0 || first[0].Logps[0][0] == first[3].Logps[0][0] {
		t.Errorf("two updates changed nothing: %+v", first)
	}
}

// The products of a step are measured part by part.
func TestAStepMeasuresItsProducts(t *testing.T) {
	d := ask(t, tinyPrompts(t, 1), &learning{backend: "go", samples: 2}, "products\nquit\n")[0]
	if d.Rollout <= 0 || d.Scoring <= 0 || d.Training <= d.Scoring ||
		math.Abs(d.Seconds-d.Rollout-d.Scoring-d.Training) > 1e-9 {
		t.Errorf("products of a step: %+v", d)
	}
}

// An engine that wants everything in the graph, as a GPU does, takes the same whole step as one that shares its
// buffers.
func TestAStepInTheGraphIsTheStepOnTheHost(t *testing.T) {
	dir := tinyPrompts(t, 1)
	steps := func(inGraph bool) (all []did) {
		e, err := backend.Open("go")
		if err != nil {
			t.Fatal(err)
		}
		if inGraph {
			e.Wants = backend.Wants{BFloat16: true, LiveGraphs: 8}
		}
		p, err := newPupil(e, dir, learning{samples: 4, rate: 1e-3})
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		for range 2 {
			d, err := p.step(0)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		return all
	}
	host, graph := steps(false), steps(true)
	for i, h := range host {
		g := graph[i]
		far := math.Abs(g.Norm-h.Norm) > 1e-3*h.Norm || math.Abs(g.Entropy-h.Entropy) > 1e-4
		if g.Tokens != h.Tokens || g.Reward != h.Reward || far {
			t.Errorf("step %d: %+v in the graph, %+v on the host", i, g, h)
		}
	}
	h := host[0]
	if h.Reward <= 0 || h.Reward >= 1 || h.Norm <= 0 || h.KL != 0 || host[1].KL <= 0 {
		t.Errorf("steps %+v: want rewards between 0 and 1, a gradient, and KL only from the second step on", host)
	}
	if h.Rollout <= 0 || h.Scoring <= 0 || h.Training <= 0 {
		t.Errorf("step %+v: want the time of all parts", h)
	}
}

func TestAWorldOfPromptsComesBack(t *testing.T) {
	p, err := readPrompts(tinyPrompts(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	q := p.Prompts
	if len(q) != 6 || !slices.Equal(q[0], q[1]) || slices.Equal(q[1], q[2]) || p.tokens(4) != 20 {
		t.Errorf("%+v: want 3 prompts, each twice", p)
	}
	p.Lengths = []int{1, 2, 3, 4, 5, 6}
	if p.tokens(3) != 6 {
		t.Errorf("tokens of lengths 1, 2, 3: %d", p.tokens(3))
	}
	if even([]int32{0, 1, 2, 4}) != 0.75 || (words{}).Decode([]int32{5, 0}, true) != "t5" {
		t.Errorf("reward %v, text %q", even([]int32{0, 1, 2, 4}), words{}.Decode([]int32{5, 0}, true))
	}
}

func TestALongRoundShortensTheComparison(t *testing.T) {
	var r rounds
	r.few(7)
	if r.count != 7 || r.long == 0 {
		t.Errorf("%+v: want 7 rounds, fewer where they are long", r)
	}
	x := &series{side: &side{name: "x"}, seconds: []float64{1, 2, 1}}
	to := &series{side: &side{name: "y"}, seconds: []float64{3, 3, 1}}
	var out strings.Builder
	atLeast(&out, x, to, 2.5)
	atLeast(&out, to, x, 2.5)
	atLeast(&out, x, to, 0)
	want := "x against y: 3.00x, asked for at least 2.50x: reached\n" +
		"y against x: 0.33x, asked for at least 2.50x: MISSED\nx against y: 3.00x\n"
	if out.String() != want {
		t.Errorf("%q: want %q", out.String(), want)
	}
}

// A side gets back, on its command line, the options that it was started with.
func TestFlagArgsAreRead(t *testing.T) {
	want := learning{backend: "xla:/a b", bfloat16: true, samples: 3, rate: 2.5e-6}
	var got learning
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	got.register(flags)
	if err := flags.Parse(flagArgs(want.register)); err != nil || got != want {
		t.Errorf("%+v, %v: want %+v", got, err, want)
	}
}
