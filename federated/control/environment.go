package control

import "math/rand/v2"

// Space says what an environment is: what an agent sees, what it may do, and for how long.
type Space struct {
	Observations int       // numbers of an observation
	Discrete     int       // number of actions, 0: the actions are the box between Low and High
	Low, High    []float64 // bounds of each number of an action
	Limit        int       // steps after which an episode is cut
}

// Actions are the numbers of an action: a discrete one is its index.
func (s Space) Actions() int {
	if s.Discrete > 0 {
		return 1
	}
	return len(s.Low)
}

// Environment is a task of one agent. It is not safe for concurrent use. The caller keeps the limit of its Space.
type Environment interface {
	// Reset begins an episode in a state drawn from r and writes its observation.
	Reset(r *rand.Rand, observation []float64)
	// Set begins an episode in a given state and writes its observation.
	Set(state, observation []float64)
	// Step does an action, which lies in the box, and writes the next observation. Terminated episodes have no future;
	// those that the limit cuts do.
	Step(action, observation []float64) (reward float64, terminated bool)
}

// kind is an environment that is not open yet.
type kind struct {
	space  Space
	mujoco bool // it needs MuJoCo's library
	open   func() (Environment, error)
}

var environments = map[string]kind{
	"cartpole": {space: Space{Observations: 4, Discrete: 2, Limit: 500},
		open: func() (Environment, error) { return new(cartpole), nil }},
	"pendulum": {space: Space{Observations: 3, Low: []float64{-maxTorque}, High: []float64{maxTorque}, Limit: 200},
		open: func() (Environment, error) { return new(pendulum), nil }},
	"swimmer":  swimmer.kind(8, 2, 1),
	"hopper":   hopper.kind(11, 3, 1),
	"walker2d": walker.kind(17, 6, 1),
	"humanoid": humanoid.kind(376, 17, 0.4),
}

// Open opens an environment by its name in [Options].
func Open(name string) (Environment, Space, error) {
	k := environments[name]
	e, err := k.open()
	return e, k.space, err
}

// uniform fills state with draws between -high and high.
func uniform(r *rand.Rand, state []float64, high ...float64) {
	for i := range state {
		state[i] = (2*r.Float64() - 1) * high[i]
	}
}

// round32 writes values as float32 holds them: Gymnasium's classic tasks observe so.
func round32(to []float64, values ...float64) {
	for i, v := range values {
		to[i] = float64(float32(v))
	}
}
