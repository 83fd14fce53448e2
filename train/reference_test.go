package train

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/posttrain/posttrain/backend/backendtest"
	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/run"
)

// TestReferencePassContinues: an interrupted pass keeps what is measured, measures only the rest, and ends in the same
// bits.
func TestReferencePassContinues(t *testing.T) {
	m, groups := testkit.Model(t, "llama"), testkit.Groups(9, 11, 2)
	l, layout := learner(t, backendtest.Go(t), m), batch.Layout{Pad: 2}
	dir := t.TempDir()
	measure := func(name string, every time.Duration, tick func(int) error) ([][2]float32, error) {
		sums, _, err := CachedPairSums(filepath.Join(dir, name), l, groups, layout, every, tick)
		return sums, err
	}
	never := func(int) error { return nil }
	whole, err := measure("whole.safetensors", 0, never)
	if err != nil {
		t.Fatal(err)
	}
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
	key, err := l.fingerprint(groups, layout)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := readSums(part, key, len(groups))
	if err != nil {
		t.Fatal(err)
	}
	var marked []int
	for i := range kept {
		if kept[i] == whole[i] {
			marked, kept[i][0] = append(marked, i), 7 // shows that it is not measured again
		}
	}
	if len(marked) < 6 || len(marked) == len(groups) {
		t.Fatalf("%d of %d pairs are kept", len(marked), len(groups))
	}
	if err := writeSums(part, key, kept); err != nil {
		t.Fatal(err)
	}
	got, err := measure("broken.safetensors", time.Nanosecond, never)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := writeSums(run.PartOf(path), "another", unmeasured(2)); err != nil {
		t.Fatal(err)
	}
	_, _, err := CachedPairSums(path, l, testkit.Groups(2, 11, 2), batch.Layout{}, 0, func(int) error { return nil })
	if err == nil {
		t.Error("no error")
	}
}
