package rollout

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
)

// newReplicas makes samplers of a model whose weights are cut over the mesh.
func newReplicas(t *testing.T, e *backend.Engine, m *model.Model) *Replicas {
	t.Helper()
	var weights []compute.Buffer
	for _, p := range m.Params {
		b, err := e.On(model.CutWeight(e.Mesh, p.Name, p.Shape)).Float32(p.Data, p.Shape...)
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, b)
	}
	r := NewReplicas(e, m.Config, func() []compute.Buffer { return weights }, Options{})
	t.Cleanup(func() {
		r.Close()
		backend.FinalizeAll(weights...)
	})
	return r
}

// TestDrawsDoNotDependOnTheMesh: the tokens of 1, 2 and 4 devices are the same, weights whole or cut, and a program is
// compiled once for all of them.
func TestDrawsDoNotDependOnTheMesh(t *testing.T) {
	m := testkit.Model(t, "qwen3")
	rs := sampleGroups(4, 2, 12, func(i, k int) int { return 6 + (i+k)%3 })
	var want []Completion
	for _, c := range []struct {
		mesh     backend.Mesh
		together bool
		samplers int
	}{{backend.Mesh{}, false, 1}, {backend.Mesh{Data: 2}, false, 2}, {backend.Mesh{Data: 2, Tensor: 2}, false, 4},
		{backend.Mesh{Data: 2, Tensor: 2}, true, 1}} {
		r := newReplicas(t, backendtest.Mesh(t, c.mesh), m)
		if c.together {
			r.join()
			checkCutCache(t, r.samplers[0])
		}
		if len(r.samplers) != c.samplers {
			t.Fatalf("%d samplers on %s, want %d", len(r.samplers), c.mesh, c.samplers)
		}
		got := sample(t, r, rs...)
		if want == nil {
			want = got
		}
		equalAnswers(t, got, want)
		if again := sample(t, r, rs...); !reflect.DeepEqual(got, again) {
			t.Errorf("%s: two calls differ", c.mesh)
		}
	}
}

// checkCutCache: each device of a mesh 2×2 holds half the prompts and half the heads of keys and values.
func checkCutCache(t *testing.T, s *Cached) {
	t.Helper()
	g := &graphStore{Cached: s}
	defer g.close()
	if err := g.open(layout{shape: model.StepShape{Prompts: 4, Samples: 1, Suffix: 32, InGraph: true}}); err != nil {
		t.Fatal(err)
	}
	part, err := backend.Part(g.ring[0], 3).Shape()
	want := []int{2, s.config.KVHeads / 2, 1, 32, s.config.HeadDim}
	if err != nil || !slices.Equal(part.Dimensions, want) {
		t.Errorf("a device holds %v of the keys, %v: want %v", part, err, want)
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
	r := newReplicas(t, e, m)
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

// TestDevicesTooSmallForACopy sample together.
func TestDevicesTooSmallForACopy(t *testing.T) {
	e, c := backendtest.Mesh(t, backend.Mesh{Tensor: 2}), *testkit.Config(t, "llama")
	c.VocabSize, c.HiddenSize = math.MaxInt32, 64*c.HiddenSize
	if r := NewReplicas(e, &c, nil, Options{}); len(r.samplers) != 1 || r.samplers[0].engine.Mesh == nil {
		t.Errorf("%d samplers, want one on all devices", len(r.samplers))
	}
}
