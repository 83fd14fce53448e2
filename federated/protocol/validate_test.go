package protocol_test

import (
	"context"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// validating measures the first parameter on agent+1 items, and calls with the parameters.
type validating struct {
	protocol.Workload
	agent int
	calls *int
}

func (v validating) Validate(_ context.Context, params []float64) (*protocol.Validation, error) {
	*v.calls++
	return &protocol.Validation{Count: v.agent + 1, Means: map[string]float64{"first": params[0],
		"broken": math.NaN(), "endless": math.Inf(1)}}, nil
}

// TestValidation: an agent validates the parameters of its first batch and of each third one after it; metrics have the
// mean over the items of all agents, from the last validation of each, and no mean that is not finite. A restored server
// asks for the same ones.
func TestValidation(t *testing.T) {
	for _, method := range protocol.Methods() {
		o := options(method)
		o.ValidateEvery = 3
		q := protocol.RandomQuadratic(5, 7)
		w := &world{t: t, o: o, start: q.Begin, tasks: make([][]protocol.Task, o.Agents)}
		w.server = w.fresh()
		calls, batches, last := make([]int, o.Agents), make([]int, o.Agents), map[int]float64{}
		for i := range o.Agents {
			load := q.Of(i, 7)
			a := expect.Must(protocol.NewAgent(i, validating{load, i, &calls[i]}, o))(t)
			w.agents = append(w.agents, a)
			w.take(second(w.server.Join(i)))
		}
		for turn := 0; !w.server.Done(); turn++ {
			i := turn % o.Agents
			if len(w.tasks[i]) == 0 {
				continue
			}
			task := w.tasks[i][0]
			if task.Validate {
				last[i] = task.Params[0]
			}
			if task.Samples() {
				batches[i]++
			}
			r := w.do(i)
			if w.swap(); !r.Stepped {
				continue
			}
			sum, n := 0.0, 0.0
			for _, agent := range slices.Sorted(maps.Keys(last)) {
				sum, n = sum+last[agent]*float64(agent+1), n+float64(agent+1)
			}
			if got, ok := r.Metrics["eval_first"]; ok && (math.Abs(got-sum/n) > 1e-12 || r.Metrics["eval_count"] != n) {
				t.Errorf("%s: eval_first %v over %v, want %v over %v", method, got, r.Metrics["eval_count"], sum/n, n)
			}
			for _, name := range []string{"eval_broken", "eval_endless"} {
				if x, ok := r.Metrics[name]; ok {
					t.Errorf("%s: %s %v: a message cannot hold it", method, name, x)
				}
			}
		}
		for i, n := range calls {
			if want := (batches[i] + 2) / 3; n != want || n < 2 {
				t.Errorf("%s: agent %d validated %d times in %d batches: want %d", method, i, n, batches[i], want)
			}
		}
	}
}
