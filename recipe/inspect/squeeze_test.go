package inspect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/train"
)

// TestCompare: cosine and rise by hand.
func TestCompare(t *testing.T) {
	s := compare(1, []float32{3, -4, 0}, []float32{4, 3, 5})
	if s.Alignment != 0 || math.Abs(s.Rise-(-3.0+4)/7) > 1e-12 {
		t.Errorf("%+v", s)
	}
	if s := compare(1, []float32{1, 1}, []float32{2, 2}); math.Abs(s.Alignment-1) > 1e-12 || s.Rise != -1 {
		t.Errorf("%+v", s)
	}
	if s := compare(1, []float32{0}, []float32{1}); s.Alignment != 0 || s.Rise != 0 {
		t.Errorf("%+v", s)
	}
}

const fixture = "../../model/testdata/qwen2-newer"

// TestRise: a small step along sign(gc - gr) changes the sum of log p(chosen) as the forecast says.
// Ctrl-C between two gradients is an interruption.
func TestRise(t *testing.T) {
	m, tok, err := local.Load(fixture)
	if err != nil {
		t.Fatal(err)
	}
	l, err := train.NewLearner(backendtest.Go(t), m, model.GraphOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var pairs []data.Preference
	for i := range 4 {
		pairs = append(pairs, data.Preference{Prompt: data.Text{Plain: fmt.Sprintf("What is %d?", i)},
			Chosen: data.Text{Plain: fmt.Sprintf(" It is %d.", i)}, Rejected: data.Text{Plain: " I do not know."}})
	}
	groups, err := encodeSome(t.Context(), &batch.Encoder{Tokenizer: tok}, pairs, m.Config.MaxPositions)
	if err != nil {
		t.Fatal(err)
	}
	chosen, rejected := answersAt(groups, 0), answersAt(groups, 1)
	gc, err := ascent(t.Context(), l, chosen)
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := ascent(ended, l, chosen); !errors.Is(err, recipe.ErrInterrupted) {
		t.Errorf("Ctrl-C gives %v", err)
	}
	gr, err := ascent(t.Context(), l, rejected)
	if err != nil {
		t.Fatal(err)
	}
	start, err := l.Flat()
	if err != nil {
		t.Fatal(err)
	}
	const h = 1e-4
	most, at := 0.0, [2]float64{}
	for _, g := range gc {
		most += math.Abs(float64(g))
	}
	for side, sign := range []float32{h, -h} {
		moved := append([]float32(nil), start...)
		for i := range moved {
			if gc[i] != gr[i] {
				moved[i] += sign * float32(math.Copysign(1, float64(gc[i]-gr[i])))
			}
		}
		if err := l.WriteFlat(moved); err != nil {
			t.Fatal(err)
		}
		sums, err := l.Sums(batch.Pack(chosen, batch.Layout{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sums[:len(chosen)] {
			at[side] += float64(s)
		}
	}
	got, want := (at[0]-at[1])/(2*h)/most, compare(4, gc, gr).Rise
	if math.Abs(got-want) > 0.02 {
		t.Errorf("log p(chosen) changes by %.4f of the most, forecast %.4f", got, want)
	}
}

// TestSqueeze: pairs whose rejected answers are nearly the chosen ones pull the weights the same way.
func TestSqueeze(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	text := ""
	for i := range 12 {
		text += fmt.Sprintf(`{"prompt":"Q%d","chosen":"it is %d, I think","rejected":"it is %d, I guess"}`+"\n", i, i, i)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Model, o.Squeeze, o.Backend = fixture, true, "go"
	r, err := Run(t.Context(), []string{path}, o)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Files[0].Squeeze
	if s == nil || s.Pairs != 12 || s.Alignment < 0.3 || math.Abs(s.Rise) > 1 ||
		!strings.Contains(strings.Join(r.Lines(), "\n"), "squeeze: the gradients of chosen and rejected answers") {
		t.Errorf("%+v\n%s", s, strings.Join(r.Lines(), "\n"))
	}
	_, err = Run(t.Context(), []string{path}, Options{Squeeze: true})
	expect.Error(t, err, "squeeze true: only a model has gradients; add a model")
	_, err = Run(t.Context(), []string{path}, Options{Backend: "go"})
	expect.Error(t, err, "only the squeeze forecast needs an engine; add squeeze")
	if err := os.WriteFile(path, []byte(`{"prompt":"Q","completion":"A"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = Run(t.Context(), []string{path}, o)
	expect.Error(t, err, "holds demonstrations; only preference pairs are learnt against one another")
}
