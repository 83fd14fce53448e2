package control

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/federated/protocol/workloadtest"
)

// small are options for tests: a batch ends within an episode.
func small(environment string) Options {
	o := DefaultOptions()
	o.Environment, o.Steps, o.Hidden, o.Critic.Epochs = environment, 250, []int{6, 5}, 2
	return o
}

func TestSuite(t *testing.T) {
	cases := map[string]func(*Options){
		"cartpole":            func(*Options) {},
		"cartpole, tanh":      func(o *Options) { o.Activation = "tanh" },
		"cartpole, no hidden": func(o *Options) { o.Hidden = nil },
		"cartpole, letter":    func(o *Options) { o.Returns, o.Normalize = Letter, false },
		"pendulum":            func(o *Options) { o.Environment = "pendulum" },
		"pendulum, tanh":      func(o *Options) { o.Environment, o.OutputTanh, o.LogStd = "pendulum", true, -0.5 },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			o := small("cartpole")
			change(&o)
			workloadtest.Run(t, workloadtest.Suite{Make: func(t *testing.T, agent int, seed uint64) protocol.Workload {
				w, err := New(o, agent, seed)
				if err != nil {
					t.Fatal(err)
				}
				return w
			}})
		})
	}
}

// TestNorm: by trajectories the gradient is that by time steps times the steps of a trajectory.
func TestNorm(t *testing.T) {
	o := small("cartpole")
	w, theta := started(t, o)
	o.Norm = Trajectories
	other, _ := started(t, o)
	a, err := w.Collect(t.Context(), theta, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := other.Collect(t.Context(), theta, 0)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := a.Gradient()
	h, _ := b.Gradient()
	trajectories := b.(*batch).samples.trajectories
	if trajectories < 2 || trajectories != b.Stats().Episodes+1 {
		t.Fatalf("%d trajectories, %d episodes that ended", trajectories, b.Stats().Episodes)
	}
	for i := range g {
		g[i] *= float64(o.Steps) / float64(trajectories)
	}
	nearAll(t, "gradient by trajectories", h, g, 1e-12)
}

// TestEntropy: its weight adds the entropy's gradient, which differences give.
func TestEntropy(t *testing.T) {
	for environment := range environments {
		o := small(environment)
		w, theta := started(t, o)
		theta[0] += 0.5
		o.Entropy = 0.3
		other, _ := started(t, o)
		a, _ := w.Collect(t.Context(), theta, 0)
		b, _ := other.Collect(t.Context(), theta, 0)
		g, _ := a.Gradient()
		h, _ := b.Gradient()
		for i := range g {
			g[i] += 0.3 * slopeOfEntropy(w.policy, theta, &a.(*batch).samples, i)
		}
		nearAll(t, environment+": gradient with entropy", h, g, 1e-6)
	}
}

func slopeOfEntropy(p *policy, theta []float64, s *samples, i int) (slope float64) {
	const step = 1e-5
	for _, sign := range []float64{1, -1} {
		theta[i] += sign * step
		for k := range s.n {
			p.net.forward(theta, s.row(s.observations, k), p.tape)
			slope += sign * p.head.entropy(p.outputs(p.tape), p.own(theta)) / (2 * step * float64(s.n))
		}
		theta[i] -= sign * step
	}
	return slope
}

// TestBootstrap: an episode that the batch or the limit cuts has a future, one that fell has none.
func TestBootstrap(t *testing.T) {
	o := small("pendulum")
	o.Normalize, o.Steps = false, 400
	w, theta := started(t, o)
	b, err := w.Collect(t.Context(), theta, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.Stats(), (protocol.Stats{Steps: 400, Episodes: 2}); got.Steps != 400 || got.Episodes != 2 {
		t.Errorf("%+v, want %+v: an episode has 200 steps", got, want)
	}
	advantages := b.(*batch).samples.advantages
	w.options.Gamma = 1e-300 // nothing is left of the future
	c, err := w.Collect(t.Context(), theta, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c.(*batch).samples.advantages[199] == advantages[199] {
		t.Error("the last step before the limit ignores the value of the next state")
	}
}

// TestLimit: cartpole's episodes are cut after 500 steps.
func TestLimit(t *testing.T) {
	o := small("cartpole")
	o.Steps, o.Hidden = 1100, nil
	w, theta := started(t, o)
	for i, k := range []float64{0.5, 1, 10, 4} { // logit of a push right: a controller that keeps the pole up
		theta[i], theta[4+i] = -10*k, 10*k
	}
	b, err := w.Collect(t.Context(), theta, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s := b.Stats(); s.Episodes != 2 || s.Return != 500 {
		t.Errorf("%+v, want 2 episodes of return 500", s)
	}
}

func TestRefusedOptions(t *testing.T) {
	cases := map[string]func(*Options){
		`control.environment "acrobot": want cartpole or pendulum`: func(o *Options) { o.Environment = "acrobot" },
		`control.steps 0: want a whole number, 1 or more`:          func(o *Options) { o.Steps = 0 },
		`control.hidden [4 0]: want whole numbers from 1 to 65536`: func(o *Options) { o.Hidden = []int{4, 0} },
		`control.gamma 2: want a number above 0`:                   func(o *Options) { o.Gamma = 2 },
		`control.critic.lr 0: want a number above 0`:               func(o *Options) { o.Critic.LR = 0 },
	}
	for want, change := range cases {
		o := DefaultOptions()
		change(&o)
		_, err := New(o, 0, 1)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
