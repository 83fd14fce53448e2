package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestPause: a pause takes its time and ends with its context.
func TestPause(t *testing.T) {
	o := protocol.RandomQuadratic(2, 1)
	o.Pause = 5 * time.Millisecond
	w := o.Of(0, 1)
	start := time.Now()
	if _, err := w.Collect(t.Context(), w.Start(), 0); err != nil || time.Since(start) < o.Pause {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	o.Pause = time.Hour
	w = o.Of(0, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := w.Collect(ctx, w.Start(), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

type loop struct {
	Name      string
	Kind      federated.ScheduleKind
	Const     struct{ Alpha, Eta float64 }
	Lookahead bool
	Q         [][]float64
	Best      []float64
	Theta0    []float64
	Times     []float64
	Arrivals  []arrival
	Rounds    []arrival
}

type arrival struct {
	Time         float64
	Agent        int
	Theta, Tilde []float64
}

// TestOracleClosedLoopOfSteps lets agents whose gradients are this workload's train on a virtual clock.
func TestOracleClosedLoopOfSteps(t *testing.T) {
	var loops []loop
	if need.Oracle(t, "federated.json", "closed_loop", &loops); len(loops) == 0 {
		t.Fatal("no loops")
	}
	for _, l := range loops {
		l.follow(t)
	}
}

func (l loop) gradient(t *testing.T, agent int, theta []float64, version int) []float64 {
	q := protocol.Quadratic{Curvature: slices.Concat(l.Q...), Best: l.Best, Begin: l.Theta0}
	b, err := q.Of(agent, 1).Collect(t.Context(), theta, version)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := b.Gradient()
	return g
}

func (l loop) follow(t *testing.T) {
	server := federated.NewAFedPG(l.Theta0, federated.Schedule{Kind: l.Kind, Alpha: l.Const.Alpha, Eta: l.Const.Eta})
	server.Vanilla = !l.Lookahead
	if l.Rounds != nil {
		for k, want := range l.Rounds {
			var all [][]float64
			for i := range l.Times {
				all = append(all, l.gradient(t, i, server.Tilde, k))
			}
			server.Step(federated.Mean(federated.Shares([]float64{1, 1, 1}), all), k)
			compareLoop(t, fmt.Sprintf("%s, round %d", l.Name, k), server, want)
		}
		return
	}
	due, versions := slices.Clone(l.Times), make([]int, len(l.Times))
	params := slices.Repeat([][]float64{server.Tilde}, len(l.Times))
	for k, want := range l.Arrivals {
		i := slices.Index(due, slices.Min(due))
		if i != want.Agent || math.Abs(due[i]-want.Time) > 1e-9 {
			t.Fatalf("%s, arrival %d: agent %d at %v, want %d at %v", l.Name, k, i, due[i], want.Agent, want.Time)
		}
		server.Step(l.gradient(t, i, params[i], versions[i]), versions[i])
		compareLoop(t, fmt.Sprintf("%s, arrival %d", l.Name, k), server, want)
		params[i], versions[i] = slices.Clone(server.Tilde), k+1
		due[i] += l.Times[i]
	}
}

func compareLoop(t *testing.T, name string, server *federated.AFedPG, want arrival) {
	t.Helper()
	for i := range want.Theta {
		if math.Abs(server.Theta[i]-want.Theta[i]) > 1e-9 || math.Abs(server.Tilde[i]-want.Tilde[i]) > 1e-9 {
			t.Errorf("%s: θ %v, θ̃ %v, want %v, %v", name, server.Theta, server.Tilde, want.Theta, want.Tilde)
			return
		}
	}
}
