package train

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// readAll copies an open checkpoint, or its weights alone, to the host.
func readAll(s *saved, err error) (t Tensors, _ error) {
	if err != nil {
		return t, err
	}
	defer s.close()
	for p, to := range []*[][]float32{&t.Weights, &t.First, &t.Second}[:1+len(s.moments)] {
		for i := range s.params {
			x, err := s.tensor(storedPart(p), i)
			if err != nil {
				return t, err
			}
			*to = append(*to, slices.Clone(x))
		}
	}
	return t, nil
}

// bigModel has 6.3 million weights, of which the largest tensor has 0.26 million: 25 MB and 1 MB.
func bigModel(t *testing.T) *model.Model {
	c := testkit.Config(t, "llama")
	c.Layers, c.HiddenSize, c.IntermediateSize, c.Heads, c.KVHeads, c.HeadDim = 6, 256, 1024, 4, 4, 64
	return model.Init(c, 3)
}

// allocated is how many bytes of Go's heap f takes, freed ones too, so that the collector's timing does not matter.
func allocated(t *testing.T, f func() error) int {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := f()
	runtime.ReadMemStats(&after)
	expect.OK(t, err)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestLoadingTakesOneTensor: opening a model for training, its copy as a reference, and a checkpoint with its moments
// take at most 1.2 times the largest tensor of the host's memory, beside the engine's own, which is on Go's heap for
// the engine go alone. The constant is for headers and the memory of a piece that is read.
func TestLoadingTakesOneTensor(t *testing.T) {
	m, dir := bigModel(t), t.TempDir()
	total, largest := 4*m.Config.ParamCount(), 4*m.Largest()
	most := largest*6/5 + 1<<21
	expect.OK(t, m.Save(filepath.Join(dir, "m"), "bfloat16"))
	if 3*most > total {
		t.Fatalf("a model of %d bytes with a largest tensor of %d shows nothing", total, largest)
	}
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		own := 0
		if e.Name == "go" {
			own = total
		}
		var l *Learner
		opened := allocated(t, func() (err error) {
			m, err := model.Open(filepath.Join(dir, "m"))
			if err == nil {
				l, err = NewLearner(e, m, model.GraphOptions{})
			}
			return err
		})
		t.Cleanup(l.Close)
		reference := allocated(t, func() error {
			weights, err := l.Upload(l.model)
			backend.FinalizeAll(weights...)
			return err
		})
		x, saved := Exporter{Model: l.model}, t.TempDir()
		expect.OK(t, x.writeCheckpoint(saved, l.store, nil))
		resumed := allocated(t, func() error {
			from, err := x.openCheckpoint(saved)
			if err != nil {
				return err
			}
			defer from.close()
			return l.replace(from, 0)
		})
		t.Logf("of %d bytes, %d of the largest tensor: opened %d, reference %d, resumed %d", total, largest, opened,
			reference, resumed)
		for what, found := range map[string]int{"opening": opened, "a reference": reference} {
			if found > own+most {
				t.Errorf("%s takes %d bytes: want at most %d, the engine's %d among them", what, found, own+most, own)
			}
		}
		if resumed > most {
			t.Errorf("resuming takes %d bytes: want at most %d", resumed, most)
		}
	})
}

// TestFilesThatChange: a model's file that is cut, longer or written again after it was opened is named; one that was
// replaced is still the old one.
func TestFilesThatChange(t *testing.T) {
	m := testkit.Model(t, "llama")
	for name, c := range map[string]struct {
		change func(path string) error
		want   string
	}{
		"cut": {func(path string) error { return os.Truncate(path, 2000) },
			"model.safetensors: tensor model.embed_tokens.weight: the file has changed since it was opened"},
		"longer": {add, "the file has changed since it was opened"},
		"written again": {func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)) },
			"the file has changed since it was opened"},
		"removed": {os.Remove, ""},
		"replaced": {func(path string) error {
			return os.Rename(filepath.Join(filepath.Dir(path), "config.json"), path)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			expect.OK(t, m.Save(dir, ""))
			opened, err := model.Open(dir)
			if err == nil {
				err = c.change(filepath.Join(dir, "model.safetensors"))
			}
			expect.OK(t, err)
			l, err := NewLearner(backendtest.Go(t), opened, model.GraphOptions{})
			if c.want != "" {
				expect.Error(t, err, c.want)
				return
			}
			expect.OK(t, err)
			defer l.Close()
			got, err := l.ReadWeights()
			if err != nil || !slices.Equal(got[0], m.Params[0].Data) {
				t.Errorf("other weights, %v", err)
			}
		})
	}
}

func add(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, fs.ModePerm)
	if err != nil {
		return err
	}
	_, err = f.WriteString("more")
	return errors.Join(err, f.Close())
}
