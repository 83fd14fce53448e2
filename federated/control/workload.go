// Package control is the workload of control tasks: cartpole by Gymnasium's equations, Swimmer, Hopper, Walker2D
// and Humanoid on MuJoCo, softmax and Gaussian policies as flat vectors of parameters, and a critic that stays with its
// agent. All arithmetic is float64 and written by hand, gradients and Fisher products too.
//
// A batch is made in this order: sample Steps time steps under θ; values by the critic; advantages by GAE, normalised;
// train the critic on the returns; and on request the gradient, Fisher products and the tables of the line search.
package control

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
)

// Task is what the server and the agents of a run have in common. It needs no environment.
type Task struct {
	options Options
	seed    uint64
	space   space
	policy  *policy
}

// Workload is one agent's environment, policy and critic. It implements [protocol.Workload]. Agents that work
// at the same time have one each: it is not safe for concurrent use, nor together with its batches.
type Workload struct {
	*Task
	agent        int
	env          environment
	critic       *critic
	criticBefore adam // the critic before the batch of version
	version      int  // of the last batch, -1: none
}

// NewTask makes the task of a run.
func NewTask(o Options, seed uint64) *Task {
	t := &Task{options: o, seed: seed, space: environments[o.Environment].space}
	outputs, last := t.space.actions(), linear
	var head distribution = gaussian{outputs}
	switch {
	case t.space.discrete > 0:
		outputs = t.space.discrete
		head = newCategorical(outputs)
	case o.OutputTanh:
		last = tanh
	}
	t.policy = &policy{net: newMLP(t.space.observations, o.Hidden, outputs, activation(o.Activation), last), head: head}
	return t
}

// New makes the workload of an agent. Agents of a run have the same options and seed. An error says why the environment
// cannot be opened.
func New(o Options, agent int, seed uint64) (*Workload, error) {
	w := &Workload{Task: NewTask(o, seed), agent: agent, version: -1}
	var err error
	if w.env, err = environments[o.Environment].open(); err != nil {
		return nil, err
	}
	net := newMLP(w.space.observations, o.Hidden, 1, activation(o.Activation), linear)
	w.critic = newCritic(net, w.random("critic", 0))
	return w, nil
}

// random are the agent's draws for one purpose at one version.
func (w *Workload) random(purpose string, version int) *rand.Rand {
	return randomFor(fmt.Sprint(purpose, " ", w.agent), w.seed, version)
}

func randomFor(purpose string, seed uint64, version int) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(seed^h.Sum64(), uint64(version)))
}

// Identity has a tensor for each layer's weights and biases, and one for the logarithms of the standard deviations. The
// task names the activations too, since shapes do not show them.
func (t *Task) Identity() protocol.Identity {
	id := protocol.Identity{Protocol: protocol.Version,
		Task: "control/" + t.options.Environment + "/" + t.options.Activation}
	if t.options.OutputTanh {
		id.Task += "/tanh"
	}
	add := func(name string, shape ...int) {
		id.Tensors = append(id.Tensors, protocol.Tensor{Name: name, Shape: shape, Type: "float64"})
	}
	sizes := t.policy.net.(*mlp).sizes
	for l := 1; l < len(sizes); l++ {
		add(fmt.Sprintf("layers.%d.weight", l-1), sizes[l], sizes[l-1])
		add(fmt.Sprintf("layers.%d.bias", l-1), sizes[l])
	}
	if n := t.policy.head.parameters(); n > 0 {
		add("log_std", n)
	}
	return id
}

// Start draws weights by the run's seed. The outputs' weights are small, so that the first policy favours no action.
func (t *Task) Start() []float64 {
	theta := make([]float64, t.policy.parameters())
	t.policy.net.(*mlp).start(randomFor("policy", t.seed, 0), theta, 0.01)
	for i := range t.policy.headParams(theta) {
		t.policy.headParams(theta)[i] = t.options.LogStd
	}
	return theta
}

// Collect samples a batch. A second call for the same version begins with the critic that the first one began with.
func (w *Workload) Collect(ctx context.Context, params []float64, version int) (protocol.Batch, error) {
	if err := protocol.CheckParams(params, w.policy.parameters(), math.MaxFloat64); err != nil {
		return nil, err
	}
	after := w.critic.adam
	if version == w.version {
		w.critic.adam = w.criticBefore
	}
	n, width := w.options.Steps, w.space
	if k := w.options.Trajectories; k > 0 {
		n = k * width.limit
	}
	b := &batch{workload: w, version: version, theta: slices.Clone(params), samples: samples{n: n,
		observations: make([]float64, n*width.observations), actions: make([]float64, n*width.actions()),
		advantages: make([]float64, n), logp: make([]float64, n), tapes: make([]float64, n*w.policy.net.tape())}}
	targets, err := w.sample(ctx, b)
	if err != nil {
		w.critic.adam = after
		return nil, err
	}
	w.criticBefore, w.version = w.critic.adam.clone(), version
	if w.options.Returns == GAE {
		w.critic.fit(&b.samples, targets, w.options.Critic, w.random("fit", version))
	}
	return b, nil
}

// sample fills the batch and returns the critic's targets.
func (w *Workload) sample(ctx context.Context, b *batch) (targets []float64, err error) {
	s, r := &b.samples, w.random("sample", b.version)
	rewards := make([]float64, s.n)
	var episodes []episode
	end, most := 0, w.options.Trajectories
	for end < s.n && (most == 0 || len(episodes) < most) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e := w.episode(b, end, r, rewards)
		episodes, end = append(episodes, e), e.last
	}
	s.cut(end)
	rewards = rewards[:end]
	values := make([]float64, s.n)
	for i := range values {
		values[i] = w.critic.value(s.row(s.observations, i))
	}
	for _, e := range episodes {
		future := 0.0
		if e.ending != terminated {
			future = w.critic.value(e.after)
		}
		advantages := w.options.advantages(rewards[e.first:e.last], values[e.first:e.last], future)
		copy(s.advantages[e.first:e.last], advantages)
	}
	s.trajectories, b.stats = len(episodes), statsOf(episodes, rewards)
	targets = make([]float64, s.n)
	for i, v := range values {
		targets[i] = s.advantages[i] + v
	}
	if w.options.Normalize {
		standardize(s.advantages)
	}
	return targets, nil
}

// statsOf are a batch's. An episode that the batch cuts has no return.
func statsOf(episodes []episode, rewards []float64) protocol.Stats {
	stats, total := protocol.Stats{Steps: len(rewards)}, 0.0
	for _, e := range episodes {
		if e.ending == cut {
			continue
		}
		stats.Episodes++
		for _, x := range rewards[e.first:e.last] {
			total += x
		}
	}
	if stats.Episodes > 0 {
		stats.Return = total / float64(stats.Episodes)
	}
	return stats
}

// advantages gives each step's. bootstrap is the value of the state after the last step, 0 where it terminated.
func (o Options) advantages(rewards, values []float64, bootstrap float64) []float64 {
	switch o.Returns {
	case Causal:
		return federated.Causal(rewards, o.Gamma)
	case Letter:
		return federated.Letter(rewards, o.Gamma)
	}
	return federated.GAE(rewards, values, bootstrap, o.Gamma, o.Lambda)
}

// ending says how an episode ended.
type ending int

const (
	cut ending = iota // by the end of the batch
	limited
	terminated
)

// episode are the steps from first to last of a batch, last not counted, and the observation after them.
type episode struct {
	first, last int
	ending      ending
	after       []float64
}

// episode samples one from step first on.
func (w *Workload) episode(b *batch, first int, r *rand.Rand, rewards []float64) episode {
	s, space, p := &b.samples, w.space, w.policy
	own, clipped := p.headParams(b.theta), make([]float64, space.actions())
	e := episode{first, s.n, cut, make([]float64, space.observations)}
	w.env.Reset(r, e.after)
	for i := first; i < s.n; i++ {
		x, action := s.row(s.observations, i), s.row(s.actions, i)
		copy(x, e.after)
		out := p.forward(b.theta, x, s.row(s.tapes, i))
		p.head.sample(r, out, own, action)
		s.logp[i] = p.head.logProb(out, own, action)
		copy(clipped, action)
		for k, low := range space.low {
			clipped[k] = min(max(clipped[k], low), space.high[k])
		}
		var ended bool
		rewards[i], ended = w.env.Step(clipped, e.after)
		switch {
		case ended:
			e.last, e.ending = i+1, terminated
			return e
		case i+1-first == space.limit:
			e.last, e.ending = i+1, limited
			return e
		}
	}
	return e
}

// standardize makes the mean 0 and the standard deviation 1, as Stable-Baselines3 does: divisor n-1, and 1e-8 added.
func standardize(a []float64) {
	var mean, squares float64
	for _, x := range a {
		mean += x / float64(len(a))
	}
	for _, x := range a {
		squares += (x - mean) * (x - mean)
	}
	std := math.Sqrt(squares / float64(max(len(a)-1, 1)))
	for i, x := range a {
		a[i] = (x - mean) / (std + 1e-8)
	}
}

// criticState is a snapshot: the critic now, and before the last batch.
type criticState struct {
	Now, Before adam
	Version     int // of the last batch
}

// State is the critic, and the critic before the last batch.
func (w *Workload) State() (protocol.State, error) {
	return protocol.Pack(&criticState{w.critic.adam.clone(), w.criticBefore.clone(), w.version})
}

// Restore takes back a State of a workload with the same options.
func (w *Workload) Restore(s protocol.State) error {
	var m criticState
	if err := protocol.Unpack(s, &m); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	if m.Version < -1 {
		return fmt.Errorf("control: snapshot: version %d: want -1 or more", m.Version)
	}
	if err := m.Now.check(len(w.critic.Theta)); err != nil {
		return err
	}
	if err := m.Before.check(len(w.critic.Theta)); m.Version >= 0 && err != nil {
		return err
	}
	w.critic.adam, w.criticBefore, w.version = m.Now.clone(), m.Before.clone(), m.Version
	return nil
}

// check wants n parameters.
func (l adam) check(n int) error {
	for _, v := range [][]float64{l.Theta, l.First, l.Second} {
		if len(v) != n || !federated.Finite(v) || l.Steps < 0 {
			return fmt.Errorf("control: snapshot: a critic of %d numbers after %d steps: want %d, all finite, and steps of "+
				"0 or more", len(v), l.Steps, n)
		}
	}
	return nil
}
