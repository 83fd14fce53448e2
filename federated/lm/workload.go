// Package lm is the workload of language models: each agent has tasks of its own, and learns what rewards say by GRPO,
// or pairs of its own, and learns by a loss of preferences. An agent's batch is one rollout batch at the parameters
// that it is sent, and its gradient is the gradient of GRPO's loss with ratio 1, bit for bit. Parameters are the
// trained weights: all of a small model's, or an adapter's.
//
// A batch is made in this order: a group of completions of each task; rewards; advantages; and on request the gradient,
// Fisher products, the tables of the line search, or local training with AdamW.
package lm

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// Policy is the model of the agents of a process, which take turns with it. It is opened when the first of them
// samples.
type Policy struct {
	identity protocol.Identity
	start    []float64               // [d]
	open     func() (*Opened, error) // not called again after an error

	mu      sync.Mutex
	opened  *Opened
	openErr error
	loaded  []float64 // the weights that the learner has, nil: others
}

// Opened is a policy in an engine.
type Opened struct {
	Learner   *train.Learner
	Sampler   rollout.Sampler  // of the learner's weights
	Reference []compute.Buffer // nil without KL
	Release   func()           // gives everything back
}

// NewPolicy is the policy of a model, whose trained weights are the parameters. The task and the hash of what is not
// trained are for its identity.
func NewPolicy(m *model.Model, task, base string, open func() (*Opened, error)) (*Policy, error) {
	p := &Policy{identity: protocol.Identity{Protocol: protocol.Version, Task: task, Base: base}, open: open}
	r := model.NewReader(m.Largest())
	for _, t := range m.Trained() {
		x, err := r.Read(t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		p.start = append(p.start, federated.Widen(x)...)
		p.identity.Tensors = append(p.identity.Tensors,
			protocol.Tensor{Name: t.Name, Shape: t.Shape, Type: "float32", NoDecay: t.NoDecay})
	}
	return p, nil
}

// Identity names the model and its trained weights.
func (p *Policy) Identity() protocol.Identity { return p.identity }

// Start are its trained weights, [d].
func (p *Policy) Start() []float64 { return slices.Clone(p.start) }

// Close gives back what the engine holds.
func (p *Policy) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened != nil {
		p.opened.Release()
	}
	p.opened, p.loaded, p.openErr = nil, nil, nil
}

// withParams calls do with the policy at some parameters, in float32, for one agent at a time.
func (p *Policy) withParams(params []float64, do func(*Opened) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened == nil && p.openErr == nil {
		p.opened, p.openErr = p.open()
	}
	if p.openErr != nil {
		return p.openErr
	}
	if !slices.Equal(p.loaded, params) {
		p.loaded = nil
		if err := p.opened.Learner.WriteFlat(federated.Narrow(params)); err != nil {
			return err
		}
		p.loaded = slices.Clone(params)
	}
	return do(p.opened)
}

func (p *Policy) check(params []float64) error {
	return protocol.CheckParams(params, len(p.start), math.MaxFloat32)
}

// agent is what both workloads have.
type agent struct {
	*Policy
	trainer   train.Trainer
	optimizer adamw.Options // of local training
}

// newAgent is an agent with the draws of a training run; agent 0 has the draws of this seed. A step is the server's, so
// the learning rate is 1.
func newAgent(p *Policy, o train.Options, optimizer adamw.Options, number int, seed uint64) agent {
	if o.LearningRate = 1; number > 0 {
		h := fnv.New64a()
		fmt.Fprintf(h, "agent %d", number)
		seed ^= h.Sum64()
	}
	return agent{p, train.Trainer{Options: o, Seed: seed}, optimizer}
}

// withParams calls do with the policy at params, at a step of the trainer.
func (a *agent) withParams(ctx context.Context, params []float64, step int, do func(*Opened) error) error {
	return a.Policy.withParams(params, func(o *Opened) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		a.trainer.Learner = o.Learner
		if err := a.trainer.Start(); err != nil {
			return err
		}
		a.trainer.State.Step = step
		err := do(o)
		if cancelled := ctx.Err(); err != nil && cancelled != nil {
			return cancelled
		}
		return err
	})
}

// train makes epochs over n items of the batch of a version in minibatches of size, from theta with a fresh AdamW, and
// returns the change of the weights. gradient is the loss's gradient on items at given weights.
func (a *agent) train(theta []float64, version int, how protocol.Local, n, size int,
	gradient func(part []int, weights []float64) ([]float32, error)) ([]float64, error) {
	order := rand.New(rand.NewPCG(a.trainer.Seed, uint64(version)))
	weights, tensors := federated.Narrow(theta), a.identity.Tensors
	state := protocol.NewAdamW(weights, tensors) // it shares the weights
	for t := 1; t <= how.Epochs*((n+size-1)/size); {
		for part := range slices.Chunk(order.Perm(n), size) {
			g, err := gradient(part, federated.Widen(weights))
			if err != nil {
				return nil, err
			}
			state.Update(a.optimizer, protocol.Split(g, tensors), t, how.LR, float.InOrder)
			t++
		}
	}
	return federated.Difference(federated.Widen(weights), theta), nil
}

// Agent says what an agent learns from, and how it trains for itself.
type Agent struct {
	Options  grpo.Options
	Sampling rollout.Sampling
	Judge    ask.Judge
	Tasks    []ask.Question

	Held        []ask.Question // that it does not train on
	Temperature float64        // at which it answers them
	Optimizer   adamw.Options  // of local training
	Memory      float64        // bytes that the scores of a batch's completions may take, for natural gradients
}

// Workload implements [protocol.Workload].
type Workload struct {
	agent
	source grpo.Rollouts
	memory float64
}

// New makes the workload of an agent. Agent 0 has the draws of a training run of this seed.
func New(p *Policy, a Agent, number int, seed uint64) *Workload {
	w := &Workload{agent: newAgent(p, train.Defaults(), a.Optimizer, number, seed), memory: a.Memory,
		source: grpo.Rollouts{Options: a.Options, Sampling: a.Sampling, Judge: a.Judge, Tasks: a.Tasks, Held: a.Held,
			Validation: grpo.ValidationOptions{Temperature: a.Temperature}}}
	w.trainer.Source = &w.source
	return w
}

// withParams calls do with the policy at params, at a version.
func (w *Workload) withParams(ctx context.Context, params []float64, version int,
	do func(*grpo.Rollouts) error) error {
	return w.agent.withParams(ctx, params, version, func(o *Opened) error {
		w.source.Sampler, w.source.Reference = o.Sampler, o.Reference
		return do(&w.source)
	})
}

// Collect samples the rollout batch of step version.
func (w *Workload) Collect(ctx context.Context, params []float64, version int) (protocol.Batch, error) {
	if err := w.check(params); err != nil {
		return nil, err
	}
	b := &batch{workload: w, version: version, theta: federated.Widen(federated.Narrow(params))}
	return b, b.withParams(ctx, b.theta, func(l *grpo.Rollouts) (err error) {
		b.drawn, err = l.Draw(ctx, version)
		return err
	})
}

// measures are the means that an agent sends of what it holds out.
var measures = []string{"reward", "format", "integrity", "utility", "complete"}

// Validate implements [protocol.Validator]: one answer to each item, whose draws follow from the agent alone.
func (w *Workload) Validate(ctx context.Context, params []float64) (*protocol.Validation, error) {
	if len(w.source.Held) == 0 {
		return nil, nil
	}
	v := &protocol.Validation{Count: len(w.source.Held), Means: map[string]float64{}}
	return v, w.withParams(ctx, params, 0, func(l *grpo.Rollouts) error {
		values, _, err := l.Validate(ctx)
		for _, name := range measures {
			if x, ok := values["eval_"+name]; ok {
				v.Means[name] = x
			}
		}
		return err
	})
}
