package train

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// TestLoRARunsEqualTRLs repeats runs of TRL with peft (scripts/oracle/lora.py, quantize.py) from the adapters that they began with.
func TestLoRARunsEqualTRLs(t *testing.T) {
	files, err := filepath.Glob("testdata/lora-*.json")
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
				if name == "lora-llama-ipo" && !backendtest.AllVariants(t, e) {
					return
				}
				var r trlRun
				expect.Decode(t, file, &r)
				base := expect.Must(model.Load(filepath.Join("..", "model", "testdata", r.Model)))(t)
				m := expect.Must(base.LoadAdapter(strings.TrimSuffix(file, ".json")))(t)
				m.Config.LoRA.Quantization = r.Options.Quantize
				if len(r.Weights) != len(m.Trained()) {
					t.Errorf("%d tensors: TRL trained %d", len(m.Trained()), len(r.Weights))
				}
				repeatOn(t, e, m, file, r, name == "lora-llama-dpo")
			})
		})
	}
}

// withLoRA is a model with a new adapter on all its linear layers.
func withLoRA(m *model.Model) *model.Model {
	modules, err := m.Config.AdapterModules(nil)
	if err != nil {
		panic(err)
	}
	hash, err := m.Hash()
	if err != nil {
		panic(err)
	}
	return m.Adapt(model.LoRA{Rank: 2, Alpha: 4, Modules: modules, Base: hash}, 1)
}

// TestAdapterOffIsTheReference: the log-probs of a reference equal the model's without its adapter, to the bit, at any
// time of training, from a copy of the adapter alone; the frozen weights stay as they were.
func TestAdapterOffIsTheReference(t *testing.T) {
	groups := testkit.Groups(3, 4, 2)
	method, p := mappo(), batch.Pack(groups, batch.Layout{Pad: 4})
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		plain := testkit.Model(t, "qwen2")
		want := expect.Must(learner(t, e, plain).TokenLogps(p, nil))(t)
		m := withLoRA(plain)
		hash := testkit.Hash(t, m)
		l := learner(t, e, m)
		reference := expect.Must(l.Upload(m))(t)
		defer backend.FinalizeAll(reference...)
		if len(reference) != len(m.Trained()) {
			t.Errorf("the reference has %d tensors: want the adapter's %d", len(reference), len(m.Trained()))
		}
		for range 3 {
			if _, _, err := l.Accumulate(p, method, method.Inputs(pairsOf(groups), p), 0.25); err != nil {
				t.Fatal(err)
			}
			expect.Must(l.Update(AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MaxNorm: 1}},
				1e-2))(t)
			if got, err := l.TokenLogps(p, reference); err != nil || !slices.Equal(got, want) {
				t.Errorf("the reference is another model: %v", err)
			}
			if got, err := l.TokenLogps(p, nil); err != nil || slices.Equal(got, want) {
				t.Errorf("training changes nothing: %v", err)
			}
		}
		now := &model.Model{Config: plain.Config}
		for i, b := range l.Weights()[:len(plain.Params)] {
			q := *plain.Params[i]
			q.Data = expect.Must(backend.Floats(b))(t)
			now.Params = append(now.Params, &q)
		}
		if testkit.Hash(t, now) != hash {
			t.Error("the frozen weights have changed")
		}
	})
}

// TestLoRAInBFloat16: where products are in bfloat16 the frozen matrices are kept so, and the adapter in float32.
func TestLoRAInBFloat16(t *testing.T) {
	groups := testkit.Groups(3, 4, 2)
	method, p := mappo(), batch.Pack(groups, batch.Layout{Pad: 4})
	e, m := backendtest.XLA(t), withLoRA(testkit.Model(t, "llama"))
	l := expect.Must(NewLearner(e, m, model.GraphOptions{DType: dtypes.BFloat16}))(t)
	defer l.Close()
	for i, b := range l.Weights() {
		want := dtypes.Float32
		if i < m.Config.Frozen() && len(m.Params[i].Shape) > 1 {
			want = dtypes.BFloat16
		}
		if dtype, err := dtypeOf(b); err != nil || dtype != want {
			t.Errorf("%s is in %s (%v): want %s", m.Params[i].Name, dtype, err, want)
		}
	}
	var losses []float64
	for range 8 {
		loss, _, err := l.Accumulate(p, method, method.Inputs(pairsOf(groups), p), 0.25)
		if err == nil {
			_, err = l.Update(AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MaxNorm: 1}}, 1e-2)
		}
		expect.OK(t, err)
		losses = append(losses, loss)
	}
	if losses[7] > losses[0]-0.01 {
		t.Errorf("the losses are %v: want less and less", losses)
	}
	vectors := 0
	for _, p := range m.Params[:m.Config.Frozen()] {
		if len(p.Shape) == 1 {
			vectors += p.Size()
		}
	}
	if f := l.Footprint(AdamW{}); f.FrozenBytes != 2*(f.Frozen+vectors) || f.Weights != 4 {
		t.Errorf("%s", f)
	}
}

// TestLoRACheckpoints: checkpoints hold the adapter and its moments alone; a run that is killed over and over ends in
// the same bits; another base is refused.
func TestLoRACheckpoints(t *testing.T) {
	dirs := t.TempDir()
	whole, broken := filepath.Join(dirs, "whole"), filepath.Join(dirs, "broken")
	testkit.Child(t, 0, 0, "go", whole, "lora")
	r := rand.New(rand.NewPCG(2, 11))
	kills := testkit.UntilDone(t, 400, func() (killed bool) {
		_, killed = testkit.Child(t, 1+r.IntN(40), time.Duration(r.IntN(9000))*time.Microsecond, "go", broken, "lora")
		return killed
	})
	if kills < 3 {
		t.Errorf("killed %d times: want at least 3", kills)
	}
	steps, _ := tinyLength("go")
	var files []string
	for _, name := range testkit.CheckpointFiles(steps) {
		files = append(files, strings.Replace(name, "model/model.safetensors", "adapter/adapter_model.safetensors", 1))
	}
	testkit.SameFiles(t, whole, broken, files...)
	testkit.SameMetrics(t, whole, broken)

	m := withLoRA(tinyModel())
	size := 0
	for _, p := range m.Trained() {
		size += 4 * p.Size()
	}
	for _, file := range files {
		if info, err := os.Stat(filepath.Join(whole, file)); err != nil || info.Size() > int64(size+8000) {
			t.Errorf("%s: %v bytes, %v: want about the adapter's %d", file, info, err, size)
		}
	}
	other := tinyModel()
	other.Params[0].Data[0]++
	f := expect.Must(run.Open(whole))(t)
	defer f.Close()
	loop := tinyLoop(learner(t, backendtest.Go(t), withLoRA(other)), withLoRA(other))
	loop.Folder = f
	const want = "trained on other weights than the model's"
	if _, err := loop.Resume(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v: want one about the base", err)
	}
}

// TestLoRABestAndMoments: the best weights of a run with an adapter are loaded as they were saved, also after the
// host's weights were released.
func TestLoRABestAndMoments(t *testing.T) {
	m := withLoRA(testkit.Model(t, "llama"))
	x := Exporter{Model: m}
	var weights [][]float32
	for i, p := range m.Trained() {
		weights = append(weights, slices.Repeat([]float32{float32(i) / 3}, p.Size()))
	}
	m.Release()
	dir := t.TempDir()
	expect.OK(t, x.writeCheckpoint(dir, Tensors{weights, weights, weights}, nil))
	got := expect.Must(readAll(x.openCheckpoint(dir)))(t)
	for _, part := range [][][]float32{got.Weights, got.First, got.Second} {
		if !slices.EqualFunc(part, weights, slices.Equal) {
			t.Error("other numbers come back")
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "adapter", "adapter_config.json"))
	if err != nil || !bytes.Contains(text, []byte(`"r": 2`)) {
		t.Error(err, string(text))
	}
	if _, err := os.Stat(filepath.Join(dir, "model")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the checkpoint has a model, too")
	}
}
