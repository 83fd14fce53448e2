package rollout

import (
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// newOnMesh makes a sampler of a model on all devices of a mesh.
func newOnMesh(t *testing.T, e *backend.Engine, m *model.Model) *Cached {
	t.Helper()
	weights := expect.Must(Upload(e, m, model.GraphOptions{}))(t)
	s := NewCached(e, m.Config, func() []compute.Buffer { return weights }, Options{})
	t.Cleanup(func() {
		s.Close()
		backend.FinalizeAll(weights...)
	})
	return s
}

// TestDrawsDoNotDependOnTheMesh: the tokens of 1, 2 and 4 devices are the same, and each device holds its prompts' part
// of the cache.
func TestDrawsDoNotDependOnTheMesh(t *testing.T) {
	m := testkit.Model(t, "qwen3")
	rs := sampleGroups(4, 2, 12, func(i, k int) int { return 6 + (i+k)%3 })
	var want []Completion
	for _, devices := range []int{1, 2, 4} {
		s := newOnMesh(t, backendtest.Mesh(t, backend.Mesh{Data: devices}), m)
		checkCutCache(t, s, devices)
		got := sample(t, s, rs...)
		if want == nil {
			want = got
		}
		equalAnswers(t, got, want)
		if again := sample(t, s, rs...); !reflect.DeepEqual(got, again) {
			t.Errorf("%d devices: two calls differ", devices)
		}
	}
}

// checkCutCache: each device holds its share of the prompts' keys and values, where the devices divide them.
func checkCutCache(t *testing.T, s *Cached, devices int) {
	t.Helper()
	for _, prompts := range []int{4, 1} {
		g := &graphStore{Cached: s}
		expect.OK(t, g.open(layout{shape: model.StepShape{Prompts: prompts, Samples: 1, Suffix: 32, InGraph: true}}))
		part, err := backend.Part(g.ring[0], devices-1).Shape()
		want := []int{max(1, prompts/devices), s.config.KVHeads, 1, 32, s.config.HeadDim}
		if err != nil || !slices.Equal(part.Dimensions, want) {
			t.Errorf("a device holds %v of the keys, %v: want %v", part, err, want)
		}
		g.close()
	}
}
