package rollout

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
)

func newReplicas(t *testing.T, e *backend.Engine, m *model.Model, weights []compute.Buffer) *Replicas {
	t.Helper()
	r, err := NewReplicas(e, m.Config, func() []compute.Buffer { return weights }, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		backend.FinalizeAll(weights...)
	})
	return r
}

// cutUpload copies a model's weights to the mesh, matrices cut over an axis of it.
func cutUpload(t *testing.T, e *backend.Engine, m *model.Model, axis string) (weights []compute.Buffer) {
	t.Helper()
	for _, p := range m.Params {
		var spec *distributed.ShardingSpec
		if len(p.Shape) == 2 && p.Shape[0]%2 == 0 {
			var err error
			if spec, err = distributed.BuildSpec(e.Mesh).S(axis).R().Done(); err != nil {
				t.Fatal(err)
			}
		}
		b, err := e.On(spec).Float32(p.Data, p.Shape...)
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, b)
	}
	return weights
}

// TestDrawsDoNotDependOnTheMesh: the tokens of 1, 2 and 4 devices are the same, weights whole or cut, and a program is
// compiled once for all of them.
func TestDrawsDoNotDependOnTheMesh(t *testing.T) {
	m := testkit.Model(t, "qwen3")
	rs := sampleGroups(4, 2, 12, func(i, k int) int { return 6 + (i+k)%3 })
	var want []Completion
	for _, mesh := range []backend.Mesh{{}, {Data: 2}, {Data: 2, Tensor: 2}} {
		e := backendtest.Mesh(t, mesh)
		var weights []compute.Buffer
		var err error
		if mesh.Tensor > 1 {
			weights = cutUpload(t, e, m, backend.TensorAxis)
		} else if weights, err = Upload(e, m); err != nil {
			t.Fatal(err)
		}
		r := newReplicas(t, e, m, weights)
		if len(r.samplers) != mesh.Devices() {
			t.Fatalf("%d samplers on %s", len(r.samplers), mesh)
		}
		got := sample(t, r, rs...)
		if want == nil {
			want = got
		}
		equalAnswers(t, got, want)
		again := sample(t, r, rs...)
		for i := range got {
			if !slices.Equal(got[i].Logps, again[i].Logps) {
				t.Errorf("%s: log-probs of request %d differ between two calls", mesh, i)
			}
		}
	}
}

// TestShareOfRequests: samples of a prompt stay together as far as no device gets more than its share for it.
func TestShareOfRequests(t *testing.T) {
	for _, c := range []struct {
		prompts, samples, devices int
		want                      string
	}{
		{4, 4, 2, "[[0 1 2 3 8 9 10 11] [4 5 6 7 12 13 14 15]]"},
		{1, 6, 4, "[[0 1] [2 3] [4 5] []]"},
		{3, 1, 2, "[[0 2] [1]]"},
		{0, 1, 2, "[[] []]"},
	} {
		rs := sampleGroups(c.prompts, c.samples, 5, func(int, int) int { return 1 })
		if got := fmt.Sprint(share(rs, c.devices)); got != c.want {
			t.Errorf("%d prompts × %d over %d devices: %s, want %s", c.prompts, c.samples, c.devices, got, c.want)
		}
	}
}

// TestReplicasEndTogether: what goes wrong on one device ends the call on all, with its error; and a bad request is
// named by its number among all.
func TestReplicasEndTogether(t *testing.T) {
	e, m := backendtest.Mesh(t, backend.Mesh{Data: 2}), testkit.Model(t, "llama")
	weights, err := Upload(e, m)
	if err != nil {
		t.Fatal(err)
	}
	r := newReplicas(t, e, m, weights)
	rs := sampleGroups(4, 1, 5, func(int, int) int { return 8 })
	enough, calls := errors.New("enough"), 0
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	for i := range rs {
		rs[i].OnToken = func(int32, float32) {
			if calls++; calls == 6 {
				cancel(enough)
			}
		}
	}
	if _, err := r.Sample(ctx, rs); !errors.Is(err, enough) {
		t.Errorf("%v, want the context's cause", err)
	}
	rs[3].Prompt = nil
	if _, err := r.Sample(context.Background(), rs); err == nil || !strings.HasPrefix(err.Error(), "request 3: ") {
		t.Errorf("%v, want one that names request 3", err)
	}
}

// TestDevicesTooSmallForACopy are refused by the key that asks for them.
func TestDevicesTooSmallForACopy(t *testing.T) {
	e, c := backendtest.Mesh(t, backend.Mesh{Tensor: 2}), *testkit.Config(t, "llama")
	c.VocabSize = math.MaxInt32
	c.HiddenSize *= 64
	_, err := NewReplicas(e, &c, nil, Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "engine.mesh.tensor: a copy of the weights") {
		t.Errorf("%v, want engine.mesh.tensor refused", err)
	}
}
