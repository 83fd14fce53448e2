package train

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// cutModel is a model of one layer whose sizes divide by 4 devices, and its hidden size by 8.
func cutModel(t *testing.T) *model.Model {
	c := testkit.Config(t, "qwen2")
	c.KVHeads, c.Layers = 4, 1
	return model.Init(c, 7)
}

// tenUpdates are the losses of ten updates, of two microbatches each, and the weights behind them.
type tenUpdates struct {
	losses  []float64
	weights [][]float32
}

func updateTenTimes(t *testing.T, l *Learner, sft bool) (u tenUpdates) {
	t.Helper()
	groups := testkit.Groups(3, 16, 2)
	method, all := Method(mappo()), pairsOf(groups)
	switch {
	case sft:
		all, method = examplesOf(single(groups)), SFT{}
	case l.Config().Reward:
		all, method = examplesOf(groups), &Reward{}
	}
	layout := batch.Layout{Pad: 8, Blocks: l.Blocks()}
	for range 10 {
		loss := 0.0
		for at := 0; at < 16; at += 8 {
			p := batch.Pack(Groups(all[at:at+8]), layout)
			part, _, err := l.Accumulate(p, method, method.Inputs(all[at:at+8], p), 1/method.Weight(all))
			expect.OK(t, err)
			loss += part
		}
		u.losses = append(u.losses, loss)
		optimizer := AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MaxNorm: 1,
			WeightDecay: 0.01}}
		expect.Must(l.Update(optimizer, 1e-3))(t)
	}
	u.weights = expect.Must(l.ReadWeights())(t)
	return u
}

// TestMeshesTrainAsOneDevice: ten updates on 4 and on 8 devices have the losses of one device, here of the engine go,
// and end in its weights.
func TestMeshesTrainAsOneDevice(t *testing.T) {
	full := cutModel(t)
	adapter := withLoRA(full)
	half := model.GraphOptions{DType: dtypes.BFloat16}
	moments := backend.ShardMoments
	four := backend.Mesh{Data: 4, Shard: moments}
	for _, c := range []struct {
		name          string
		m             *model.Model
		o             model.GraphOptions
		sft           bool
		mesh          backend.Mesh
		loss, weights float64 // largest differences
		always        bool
	}{
		{"data", full, model.GraphOptions{}, false, backend.Mesh{Data: 4}, 1e-5, 1e-5, false},
		{"moments", full, model.GraphOptions{}, false, backend.Mesh{Data: 4, Shard: moments}, 1e-5, 1e-5, true},
		{"sft", full, model.GraphOptions{}, true, four, 1e-5, 1e-5, false},
		{"reward model", full.ToReward(7), model.GraphOptions{}, false, four, 1e-5, 1e-5, true},
		{"adapter", adapter, model.GraphOptions{}, false, four, 1e-5, 2e-5, true},
		{"bfloat16", full, half, true, backend.Mesh{Data: 8, Shard: moments}, 2e-2, 1e-2, true},
		// In bfloat16 some gradients of A are of the size of rounding, whose sign decides a step of AdamW: each weight may
		// go the other way ten times. The losses hold.
		{"adapter in bfloat16", adapter, half, false, four, 2e-2, 2.1e-2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := backendtest.Mesh(t, c.mesh)
			if !c.always && !backendtest.AllVariants(t, e) {
				return
			}
			l := expect.Must(NewLearner(e, c.m, c.o))(t)
			defer l.Close()
			got := updateTenTimes(t, l, c.sft)
			want := updateTenTimes(t, learner(t, backendtest.Go(t), c.m), c.sft)
			checkNear(t, "loss", got.losses, want.losses, c.loss)
			for i, p := range c.m.Trained() {
				checkNear(t, p.Name, got.weights[i], want.weights[i], c.weights)
			}
			checkShares(t, l)
		})
	}
}

func checkNear[T float32 | float64](t *testing.T, name string, got, want []T, most float64) {
	t.Helper()
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); !(d <= most) {
			t.Errorf("%s %d: %v, on one device %v", name, i, got[i], want[i])
			return
		}
	}
}

// checkShares compares what the learner says that each device holds with the sizes of its buffers.
func checkShares(t *testing.T, l *Learner) {
	t.Helper()
	s, e := l.store.(*graphStore), l.engine
	sizes := func(device int, buffers ...[]compute.Buffer) (bytes int) {
		for _, list := range buffers {
			for _, b := range list {
				shape := expect.Must(backend.Part(b, device).Shape())(t)
				bytes += int(shape.Memory())
			}
		}
		return bytes
	}
	for d := range e.Devices() {
		have := DeviceBytes{Weights: sizes(d, s.p, s.copies), Frozen: sizes(d, l.frozen), Moments: sizes(d, s.m, s.v),
			Gradients: sizes(d, s.grads)}
		said := *l.Footprint(AdamW{}).Device
		if l.BFloat16() { // norms and biases below an adapter stay float32
			said.Frozen, have.Frozen = 0, 0
		}
		if said.Mesh, said.trained = "", 0; have != said {
			t.Errorf("device %d holds %+v, said are %+v", d, have, said)
		}
	}
}

// TestMomentsAreCut: each device has its share of moments and gradients, and of the weights no more than its share
// beside the weights that it computes with.
func TestMomentsAreCut(t *testing.T) {
	m := cutModel(t)
	m.Config.TieEmbeddings = true
	n := sizeOf(m.Params)
	for _, c := range []struct {
		mesh   backend.Mesh
		shares int
		said   string
	}{
		{backend.Mesh{Data: 8}, 1, "weights 0.013 MB, moments 0.026 MB, gradients 0.013 MB"},
		{backend.Mesh{Data: 8, Shard: backend.ShardMoments}, 8,
			"weights 0.015 MB, moments 0.003 MB, gradients 0.002 MB"},
	} {
		l := learner(t, backendtest.Mesh(t, c.mesh), m)
		f := l.Footprint(AdamW{})
		if f.Device.Moments != 8*n/c.shares || f.Device.Gradients != 4*n/c.shares {
			t.Errorf("%v: moments %d, gradients %d: want 1/%d of %d and %d", c.mesh, f.Device.Moments,
				f.Device.Gradients, c.shares, 8*n, 4*n)
		}
		want := "memory of each device (8 devices): "
		if text := f.String(); !strings.HasPrefix(text, want) || !strings.Contains(text, c.said) {
			t.Errorf("%s\nwant %s", text, c.said)
		}
	}
}

// TestARunResumesOnAnotherMesh: checkpoints are whole. A run that changes its mesh has the losses of one device.
func TestARunResumesOnAnotherMesh(t *testing.T) {
	m := cutModel(t)
	dir, whole := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "whole")
	follow := func(e *backend.Engine, dir string, until int) (*Loop, error) {
		f := expect.Must(testkit.Folder(dir))(t)
		defer f.Close()
		l := tinyLoop(learner(t, e, m), m)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l.Folder, l.Held, l.Options.EvalEvery, l.Options.EvalMetric = f, nil, 0, ""
		l.Options.MicroBatchSize, l.Options.MaxSteps, l.Options.LogEvery = 4, 6, 1
		l.OnStep = func(step, _ int, _ map[string]float64) {
			if step == until {
				cancel()
			}
		}
		if _, err := l.Resume(); err != nil && !errors.Is(err, run.ErrNoCheckpoint) {
			t.Fatal(err)
		}
		return l, l.Run(ctx)
	}
	first := backendtest.Mesh(t, backend.Mesh{Data: 2})
	if _, err := follow(first, dir, 3); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	got := expect.Must(follow(backendtest.Mesh(t, backend.Mesh{Data: 4, Shard: backend.ShardMoments}), dir, 0))(t)
	want := expect.Must(follow(backendtest.Go(t), whole, 0))(t)
	a, b := records(t, dir), records(t, whole)
	checkNear(t, "loss", a, b, 1e-4)
	if len(a) != len(b) {
		t.Errorf("%d steps, want %d", len(a), len(b))
	}
	x := expect.Must(got.Learner.ReadWeights())(t)
	y := expect.Must(want.Learner.ReadWeights())(t)
	for i, p := range m.Params {
		checkNear(t, p.Name, x[i], y[i], 1e-4)
	}
}

func records(t *testing.T, dir string) (losses []float64) {
	t.Helper()
	f := expect.Must(run.Open(dir))(t)
	defer f.Close()
	all := expect.Must(f.ReadMetrics())(t)
	for _, r := range all {
		losses = append(losses, r.Values["loss"])
	}
	return losses
}

// TestAReferenceOutlivesItsMesh: log-probs that were measured on one mesh serve a run on another, and on one device.
func TestAReferenceOutlivesItsMesh(t *testing.T) {
	groups, keys := testkit.Groups(3, 40, 2), map[string]bool{}
	for _, e := range []*backend.Engine{backendtest.XLA(t), backendtest.Mesh(t, backend.Mesh{Data: 4}),
		backendtest.Mesh(t, backend.Mesh{Data: 2, Shard: backend.ShardMoments})} {
		l := learner(t, e, cutModel(t))
		key := expect.Must(l.fingerprint(groups, l.Layout(groups, false, 8)))(t)
		keys[key] = true
	}
	if len(keys) != 1 {
		t.Errorf("%d keys of one reference", len(keys))
	}
}

// TestMeshesThatDoNotDivide: each is a line that names what does not divide, before anything is compiled.
func TestMeshesThatDoNotDivide(t *testing.T) {
	three := backend.Mesh{Data: 3, Shard: backend.ShardMoments}
	_, err := NewLearner(backendtest.Mesh(t, three), model.Init(cutModel(t).Config, 1), model.GraphOptions{})
	const divide = "engine.devices: 3: the model's hidden_size is 16: want a divisor of it"
	if err == nil || err.Error() != divide {
		t.Errorf("%v\nwant %s", err, divide)
	}
	l := learner(t, backendtest.Mesh(t, backend.Mesh{Data: 2}), cutModel(t))
	p := batch.Pack(testkit.Groups(3, 1, 1), batch.Layout{})
	const want = "a batch of 1 rows and 32 slots: want multiples of engine.devices, 2"
	if _, err = l.Sums(p); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// greedy is SFT with an output that no machine has room for.
type greedy struct{ SFT }

func (g greedy) Loss(lp LogProbs, inputs []*graph.Node) (*graph.Node, []*graph.Node) {
	loss, outputs := g.SFT.Loss(lp, inputs)
	return loss, append(outputs, graph.BroadcastToDims(graph.Reshape(loss, 1), 1<<21, 1<<21))
}

const failingRun = "POSTTRAIN_TEST_RUN_FAILS"

// TestAFailedRunOnAMeshEnds: a program that fails on several devices ends the run with its error, and the learner and
// the engine close without waiting for a device.
func TestAFailedRunOnAMeshEnds(t *testing.T) {
	e := backendtest.Mesh(t, backend.Mesh{Data: 4})
	if os.Getenv(failingRun) == "" {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		child := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), failingRun+"=1")
		if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v, %v\n%s", err, ctx.Err(), out)
		}
		return
	}
	m := cutModel(t)
	f := expect.Must(testkit.Folder(t.TempDir()))(t)
	defer f.Close()
	l := tinyLoop(learner(t, e, m), m)
	l.Method, l.Examples, l.Held = greedy{SFT{}}, examplesOf(single(testkit.Groups(9, 8, 2))), nil
	l.Folder, l.Options.EvalEvery, l.Options.EvalMetric = f, 0, ""
	err := l.Run(t.Context())
	if !errors.Is(err, backend.ErrDevices) || !errors.Is(err, backend.ErrMemory) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("%v: want a line of a device out of memory", err)
	}
	t.Log(err)
}
