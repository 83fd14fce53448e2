package grpo

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/train"
)

// onDevice is the go engine in the form of a GPU: weights are updated in a graph and replaced, rows are looked up
// there.
func onDevice(t *testing.T) *backend.Engine {
	t.Helper()
	e := *backendtest.Go(t)
	e.Wants.SharedMemory, e.Wants.HostRows, e.Wants.Tokens = false, false, 0
	return &e
}

// TestLoopOnDevice: a run whose weights live in an engine learns what one with weights on the host learns, and goes
// on after an interruption in the same bits.
func TestLoopOnDevice(t *testing.T) {
	host := tiny(t, backendtest.Go(t), newFolder(t))
	mustRun(t, host)
	e := onDevice(t)
	device := tiny(t, e, newFolder(t))
	mustRun(t, device)
	a, b := metrics(t, host.Folder), metrics(t, device.Folder)
	if len(a) != len(b) {
		t.Fatalf("%d and %d lines of metrics", len(a), len(b))
	}
	for i := range a {
		for _, name := range []string{"reward", "eval_reward", "completions/mean_length"} {
			if x, y := a[i].Values[name], b[i].Values[name]; x != y {
				t.Errorf("line %d: %s is %v on the host, %v on the device", i+1, name, x, y)
			}
		}
	}
	again := tiny(t, e, newFolder(t))
	ctx, cancel := context.WithCancel(t.Context())
	again.OnStep = func(step, _ int, _ map[string]float64) {
		if step == 2 {
			cancel()
		}
	}
	if err := again.Run(ctx); !errors.Is(err, train.ErrInterrupted) {
		t.Fatal(err)
	}
	rest := tiny(t, e, again.Folder)
	expect.Must(rest.Resume())(t)
	mustRun(t, rest)
	if x, y := readWeights(t, device), readWeights(t, rest); fmt.Sprint(x) != fmt.Sprint(y) {
		t.Error("other weights than those of the whole run")
	}
	testkit.SameMetrics(t, device.Folder.Dir, rest.Folder.Dir)
}
