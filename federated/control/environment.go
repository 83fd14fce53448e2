package control

import "math/rand/v2"

// space says what an agent sees, what it may do, and for how long.
type space struct {
	observations int       // numbers of an observation
	discrete     int       // number of actions, 0: the actions are the box between low and high
	low, high    []float64 // bounds of each number of an action
	limit        int       // steps after which an episode is cut
}

// actions are the numbers of an action: a discrete one is its index.
func (s space) actions() int {
	if s.discrete > 0 {
		return 1
	}
	return len(s.low)
}

// environment is a task of one agent. It is not safe for concurrent use. The caller keeps the limit of its space.
type environment interface {
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
	space
	open func() (environment, error)
}

// cartpoleName is the environment that needs no MuJoCo.
const cartpoleName = "cartpole"

var environments = map[string]kind{
	cartpoleName: {space{observations: 4, discrete: 2, limit: 500},
		func() (environment, error) { return new(cartpole), nil }},
	"swimmer":  swimmer.kind(8, 2, 1),
	"hopper":   hopper.kind(11, 3, 1),
	"walker2d": walker.kind(17, 6, 1),
	"humanoid": humanoid.kind(376, 17, 0.4),
}
