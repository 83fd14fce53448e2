package control

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/mujoco"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

func start(t testing.TB, o Options) (*Workload, []float64) {
	t.Helper()
	if _, err := mujoco.Find(); err != nil && o.Environment != cartpoleName {
		need.Lack(t, "mujoco", err.Error())
	}
	w := expect.Must(New(o, 0, 1))(t)
	return w, w.Start()
}

// small are options for tests: a batch ends within an episode.
func small(environment string) Options {
	o := DefaultOptions()
	o.Environment, o.Steps, o.Hidden, o.Critic.Epochs = environment, 250, []int{6, 5}, 2
	return o
}

// TestNorm: by trajectories the gradient is that by time steps times the steps of a trajectory.
func TestNorm(t *testing.T) {
	o := small("cartpole")
	w, theta := start(t, o)
	o.Norm = Trajectories
	other, _ := start(t, o)
	a := expect.Must(w.Collect(t.Context(), theta, 0))(t)
	b := expect.Must(other.Collect(t.Context(), theta, 0))(t)
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

// TestWholeEpisodes: a batch of episodes is the batch of as many steps as they have.
func TestWholeEpisodes(t *testing.T) {
	o := small("cartpole")
	o.Trajectories = 3
	w, theta := start(t, o)
	a := expect.Must(w.Collect(t.Context(), theta, 0))(t)
	o.Trajectories, o.Steps = 0, a.Stats().Steps
	other, _ := start(t, o)
	b := expect.Must(other.Collect(t.Context(), theta, 0))(t)
	if a.Stats().Episodes != 3 || a.Stats() != b.Stats() {
		t.Errorf("%+v, want 3 episodes and %+v", a.Stats(), b.Stats())
	}
	g, _ := a.Gradient()
	want, _ := b.Gradient()
	if !slices.Equal(g, want) {
		t.Error("another gradient")
	}
}

// TestEntropy: its weight adds the entropy's gradient, which differences give.
func TestEntropy(t *testing.T) {
	for _, environment := range []string{"cartpole", "swimmer"} {
		o := small(environment)
		w, theta := start(t, o)
		theta[0] += 0.5
		o.Entropy = 0.3
		other, _ := start(t, o)
		a, _ := w.Collect(t.Context(), theta, 0)
		b, _ := other.Collect(t.Context(), theta, 0)
		g, _ := a.Gradient()
		h, _ := b.Gradient()
		for i := range g {
			g[i] += 0.3 * entropySlopeByDifference(w.policy, theta, &a.(*batch).samples, i)
		}
		nearAll(t, environment+": gradient with entropy", h, g, 1e-6)
	}
}

func entropySlopeByDifference(p *policy, theta []float64, s *samples, i int) (slope float64) {
	const step = 1e-5
	for _, sign := range []float64{1, -1} {
		theta[i] += sign * step
		for k := range s.n {
			_, out := p.passAt(theta, s, k)
			slope += sign * p.head.entropy(out, p.headParams(theta)) / (2 * step * float64(s.n))
		}
		theta[i] -= sign * step
	}
	return slope
}

// TestLimit: cartpole's episodes are cut after 500 steps, and the last advantage has the value of the state after that;
// an episode whose pole falls has none there.
func TestLimit(t *testing.T) {
	for name, upright := range map[string]float64{"upright": 10, "falling": 0} {
		o := small("cartpole")
		o.Steps, o.Hidden, o.Normalize = 1100, nil, false
		w, theta := start(t, o)
		for i, k := range []float64{0.5, 1, 10, 4} { // logit of a push right: a controller that keeps the pole up
			theta[i], theta[4+i] = -upright*k, upright*k
		}
		b := expect.Must(w.Collect(t.Context(), theta, 0))(t)
		s := &b.(*batch).samples
		last, next, fell := firstEnd(s)
		stats := b.Stats()
		if name == "upright" && (stats.Episodes != 2 || stats.Return != 500 || last != 499 || fell) {
			t.Errorf("%+v, the first ends at step %d, want 2 episodes of return 500", stats, last)
		}
		if name == "falling" && (last > 400 || !fell) {
			t.Errorf("an episode ends at step %d, want one whose pole falls", last)
		}
		w.critic.adam = w.criticBefore // as it was before the batch
		future := o.Gamma * w.critic.value(next)
		if fell {
			future = 0
		} else if math.Abs(future) < 1e-4 {
			t.Fatalf("a future worth %v: want one that shows", future)
		}
		want := 1 + future - w.critic.value(s.row(s.observations, last))
		nearAll(t, name+": the last advantage", s.advantages[last:last+1], []float64{want}, 1e-6)
	}
}

// firstEnd is the last step of cartpole's first episode in a batch, with the state after it.
func firstEnd(s *samples) (last int, next []float64, fell bool) {
	e, next := new(cartpole), make([]float64, 4)
	for ; last < s.n-1; last++ {
		e.Set(s.row(s.observations, last), next)
		_, fell = e.Step(s.row(s.actions, last), next)
		for i, x := range s.row(s.observations, last+1) {
			if math.Abs(x-next[i]) > 1e-4 { // the next step is of another episode
				return last, next, fell
			}
		}
	}
	return last, next, fell
}

func TestRefusedOptions(t *testing.T) {
	cases := map[string]func(*Options){
		`environment "acrobot": want cartpole, swimmer, hopper, walker2d or humanoid`: func(o *Options) { o.Environment = "acrobot" },
		`steps 0: want a whole number from 1 to 1048576`:                              func(o *Options) { o.Steps = 0 },
		`hidden [4 0]: want whole numbers from 1 to 65536`:                            func(o *Options) { o.Hidden = []int{4, 0} },
		`gamma 2: want a number above 0`:                                              func(o *Options) { o.Gamma = 2 },
		`critic.lr 0: want a number above 0`:                                          func(o *Options) { o.Critic.LR = 0 },
	}
	for want, change := range cases {
		o := DefaultOptions()
		change(&o)
		err := fault.Err("", fault.Check(o))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
