package train

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestReferencePassContinues: an interrupted pass keeps what is measured, measures only the rest, and ends in the same
// bits.
func TestReferencePassContinues(t *testing.T) {
	m, groups := testkit.Model(t, "llama"), testkit.Groups(9, 11, 2)
	l := learner(t, backendtest.Go(t), m)
	layout := l.Layout(groups, false, 2)
	dir := t.TempDir()
	measure := func(name string, every time.Duration, tick func(int) error) ([][2]float32, error) {
		sums, _, err := CachedPairSums(filepath.Join(dir, name), l, groups, layout, every, tick)
		return sums, err
	}
	never := func(int) error { return nil }
	whole := expect.Must(measure("whole.safetensors", 0, never))(t)
	stop, part := errors.New("stop"), run.PartOf(filepath.Join(dir, "broken.safetensors"))
	for _, at := range []int{4, 6} {
		_, err := measure("broken.safetensors", 0, func(done int) error {
			if done >= at {
				return stop
			}
			return nil
		})
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
	}
	key := expect.Must(l.fingerprint(groups, layout))(t)
	kept := expect.Must(readSums(part, key, len(groups)))(t)
	var marked []int
	for i := range kept {
		if kept[i] == whole[i] {
			marked, kept[i][0] = append(marked, i), 7 // shows that it is not measured again
		}
	}
	if len(marked) < 6 || len(marked) == len(groups) {
		t.Fatalf("%d of %d pairs are kept", len(marked), len(groups))
	}
	expect.OK(t, writeSums(part, key, kept))
	got := expect.Must(measure("broken.safetensors", time.Nanosecond, never))(t)
	for i := range got {
		if slices.Contains(marked, i) && got[i][0] == 7 {
			got[i][0] = whole[i][0]
		}
	}
	if !slices.Equal(got, whole) {
		t.Errorf("%v, in one pass %v", got, whole)
	}
	if _, err := os.Stat(part); err == nil {
		t.Errorf("%s is still there", part)
	}
}

// TestPartOfAnotherReference: what was measured with other data is refused.
func TestPartOfAnotherReference(t *testing.T) {
	l := learner(t, backendtest.Go(t), testkit.Model(t, "llama"))
	path := filepath.Join(t.TempDir(), "reference.safetensors")
	expect.OK(t, writeSums(run.PartOf(path), "another", unmeasured(2)))
	_, _, err := CachedPairSums(path, l, testkit.Groups(2, 11, 2), batch.Layout{}, 0, func(int) error { return nil })
	if err == nil {
		t.Error("no error")
	}
}

// TestFingerprint: it does not depend on what was hashed before, and changes with weights, groups and layout.
func TestFingerprint(t *testing.T) {
	e, m := backendtest.Go(t), testkit.Model(t, "llama")
	groups := testkit.Groups(4, 11, 2)
	l, seen := learner(t, e, m), map[string]string{}
	check := func(what string, groups []batch.Group, layout batch.Layout) {
		t.Helper()
		key := expect.Must(l.fingerprint(groups, layout))(t)
		fresh := *l
		fresh.hashed = hashed{}
		if again, err := fresh.fingerprint(groups, layout); err != nil || again != key || seen[key] != "" {
			t.Errorf("%s: %s, hashed afresh %s, %v; the same as of %q", what, key, again, err, seen[key])
		}
		seen[key] = what
	}
	check("all groups", groups, batch.Layout{Pad: 2})
	check("two groups", groups[:2], batch.Layout{Pad: 2})
	check("another layout", groups, batch.Layout{Pad: 4})
	weights := expect.Must(l.ReadWeights())(t)
	weights[0][0]++
	expect.OK(t, l.WriteWeights(weights))
	check("other weights", groups, batch.Layout{Pad: 4})
	p := batch.Pack(groups[:2], batch.Layout{Pad: 2})
	method := mappo()
	if _, _, err := l.Accumulate(p, method, method.Inputs(pairsOf(groups[:2]), p), 1); err != nil {
		t.Fatal(err)
	}
	expect.Must(l.Update(AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}}, 0.1))(t)
	check("an update", groups, batch.Layout{Pad: 4})
}
