package rollout

import (
	"context"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// Replicas samples on all devices of an engine's mesh at once, with a copy of the weights on each; without a mesh, on
// its one device. Which device answers a request follows from the requests alone, not from the devices' speed, so that
// a run repeats bit for bit. A request's draws do not depend on its device: its tokens are the same on any mesh, except
// if a draw is so close to the boundary of two tokens that rounding decides.
//
// Where a copy would take more than half of a device, the devices answer all requests together, over which weights and
// cache are cut.
type Replicas struct {
	engine   *backend.Engine
	config   *model.Config
	weights  func() []compute.Buffer
	samplers []*Cached        // by device; one: all devices together
	whole    *backend.Program // copies the weights to all devices; nil before it is needed
}

// NewReplicas makes samplers as [NewCached] does; weights may be cut over the mesh.
func NewReplicas(e *backend.Engine, c *model.Config, weights func() []compute.Buffer, o Options) *Replicas {
	r := &Replicas{engine: e, config: c, weights: weights}
	for _, one := range e.Replicas() {
		r.samplers = append(r.samplers, NewCached(one, c, weights, o))
	}
	if e.TensorDevices() > 1 && r.copyBytes() > r.samplers[0].engine.Memory()/2 {
		r.join()
	}
	return r
}

// join makes one sampler of all devices.
func (r *Replicas) join() {
	r.samplers = []*Cached{NewCached(r.engine, r.config, r.weights, r.samplers[0].options)}
}

// copyBytes is what a device's copy of the weights takes.
func (r *Replicas) copyBytes() (n uint64) {
	for _, s := range r.config.ParamSpecs() {
		n += uint64(shapes.Make(r.typeOf(s), s.Shape...).ByteSize())
	}
	return n
}

// typeOf is the type of a weight's copies.
func (r *Replicas) typeOf(s model.ParamSpec) dtypes.DType {
	return model.MatrixType(s.Shape, r.samplers[0].matrixType())
}

// Close frees the compiled programs and the caches; the weights stay.
func (r *Replicas) Close() {
	for _, s := range r.samplers {
		s.Close()
	}
	if r.whole != nil {
		r.whole.Close()
	}
}

// Plan is that of the device that answers most.
func (r *Replicas) Plan(requests, prompt, maxNew int) (Plan, error) {
	n := len(r.samplers)
	p, err := r.samplers[0].Plan((requests+n-1)/n, prompt, maxNew)
	p.Devices, p.Together = r.engine.Devices(), n == 1
	return p, err
}

// Sample answers the requests. On a mesh, OnToken is called in other goroutines, one call at a time.
func (r *Replicas) Sample(ctx context.Context, requests []Request) ([]Completion, error) {
	if len(r.samplers) == 1 {
		return r.samplers[0].Sample(ctx, requests)
	}
	if err := r.samplers[0].check(requests); err != nil {
		return nil, err
	}
	weights, free, err := r.copies()
	if err != nil {
		return nil, err
	}
	defer free()
	requests, completions := oneByOne(requests), make([]Completion, len(requests))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for d, own := range share(requests, len(r.samplers)) {
		wg.Go(func() {
			parts := make([]compute.Buffer, len(weights))
			for i, w := range weights {
				parts[i] = backend.Part(w, d)
			}
			if err := r.samplers[d].answer(ctx, parts, requests, own, completions); err != nil {
				stop(err) // the others end with this error, too
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return completions, nil
}

// oneByOne are the requests with calls of OnToken that wait for each other.
func oneByOne(requests []Request) []Request {
	var mu sync.Mutex
	requests = slices.Clone(requests)
	for i := range requests {
		if f := requests[i].OnToken; f != nil {
			requests[i].OnToken = func(token int32, logp float32) {
				mu.Lock()
				defer mu.Unlock()
				f(token, logp)
			}
		}
	}
	return requests
}

// share deals requests to n devices: stretches of one prompt, of an equal share at most, each to the device that has
// the fewest requests. It gives the numbers of each device's, in order.
func share(requests []Request, n int) [][]int {
	all, most := make([][]int, n), (len(requests)+n-1)/n
	for at := 0; at < len(requests); {
		end := at + 1
		for end < len(requests) && end-at < most && slices.Equal(requests[end].Prompt, requests[at].Prompt) {
			end++
		}
		least := 0
		for d := range all {
			if len(all[d]) < len(all[least]) {
				least = d
			}
		}
		for ; at < end; at++ {
			all[least] = append(all[least], at)
		}
	}
	return all
}

// copies gives the weights whole on every device, in the types of the products. free frees what was copied for it.
func (r *Replicas) copies() (weights []compute.Buffer, free func(), err error) {
	weights = r.weights()
	have, err := shapesOf(weights)
	if err != nil {
		return nil, nil, err
	}
	as := true // they are what is needed
	for i, s := range r.config.ParamSpecs() {
		spec, err := r.engine.Spec(weights[i])
		if err != nil {
			return nil, nil, err
		}
		as = as && have[i].DType == r.typeOf(s) && spec.IsReplicated()
	}
	if as {
		return weights, func() {}, nil
	}
	if r.whole == nil {
		if r.whole, err = r.compileCopies(weights, have); err != nil {
			return nil, nil, err
		}
	}
	weights, err = r.whole.Run(weights, nil)
	return weights, func() { backend.FinalizeAll(weights...) }, err
}

func (r *Replicas) compileCopies(weights []compute.Buffer, have []shapes.Shape) (*backend.Program, error) {
	return r.engine.Compile("copies of the weights", func(g *graph.Graph) (out []*graph.Node) {
		for i, s := range r.config.ParamSpecs() {
			spec, _ := r.engine.Spec(weights[i]) // which was asked for before
			x := graph.ShardedParameter(g, s.Name, have[i], spec)
			out = append(out, graph.Identity(graph.ConvertDType(x, r.typeOf(s))))
		}
		return out
	})
}
