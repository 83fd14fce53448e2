package grpo

import (
	"context"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/backend/backendtest"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/fleet"
	"github.com/posttrain/posttrain/serve"
)

// serveTiny serves the model of a tiny loop until the test ends.
func serveTiny(t *testing.T, e *backend.Engine, m *model.Model) (address string) {
	t.Helper()
	weights, err := rollout.Upload(e, m)
	if err != nil {
		t.Fatal(err)
	}
	s := rollout.NewCached(e, m.Config, func() []compute.Buffer { return weights }, rollout.Options{Decoder: framed{}})
	reload := func(folder string) error {
		next, err := model.Load(folder)
		if err == nil {
			weights, err = rollout.Upload(e, next)
		}
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- serve.New(serve.Options{Name: "tiny", Sampler: s, Config: m.Config, Decoder: framed{}, Reload: reload,
			Grace: time.Millisecond}).Run(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return "http://" + l.Addr().String()
}

// learning is the policy of a loop.
type learning struct{ *Loop }

func (p learning) Version() int { return p.Learner.Version() }

func (p learning) Write(folder string) error {
	weights, err := p.Learner.ReadWeights()
	if err != nil {
		return err
	}
	return p.Export.Write(folder, weights, "float32")
}

// TestServersEqualTheSampler: a whole run whose completions two servers draw ends with the bits of a run that samples
// by itself.
func TestServersEqualTheSampler(t *testing.T) {
	e := backendtest.Go(t)
	var ends [2][][]float32
	for i := range ends {
		l := tiny(t, e, newFolder(t))
		if i == 1 {
			m := l.Export.Model
			f, err := fleet.New(fleet.Options{Engine: fleet.SGLang, Folder: t.TempDir(),
				URLs: []string{serveTiny(t, backendtest.Go(t), m), serveTiny(t, backendtest.Go(t), m)}},
				learning{l}, m.Config, framed{}, t.Logf)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			l.Sampler = f
		}
		mustRun(t, l)
		weights, err := l.Learner.ReadWeights()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = weights
	}
	if !reflect.DeepEqual(ends[0], ends[1]) {
		t.Error("the weights differ")
	}
}
