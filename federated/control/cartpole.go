package control

import (
	"math"
	"math/rand/v2"

	"github.com/posttrain/posttrain/federated"
)

// cartpole is Gymnasium's CartPole-v1: a pole on a cart that is pushed left (0) or right (1), with Euler's method. The
// reward is 1 a step, 0 after the end. Observations are float32's.
type cartpole struct {
	state [4]float64 // position in m, velocity, angle in rad, angular velocity
	ended bool
}

// The cart and its pole in kg, m, N and s.
const (
	gravity    = 9.8
	poleMass   = 0.1
	totalMass  = 1 + poleMass
	halfLength = 0.5
	push       = 10.0
	cartTime   = 0.02
	cartEdge   = 2.4
	poleEdge   = 12 * 2 * math.Pi / 360
)

func (c *cartpole) Reset(r *rand.Rand, observation []float64) {
	state := make([]float64, 4)
	for i := range state {
		state[i] = (2*r.Float64() - 1) * 0.05
	}
	c.Set(state, observation)
}

func (c *cartpole) Set(state, observation []float64) {
	c.state, c.ended = [4]float64(state), false
	c.observe(observation)
}

func (c *cartpole) observe(observation []float64) {
	copy(observation, c.state[:])
	federated.RoundFloat32(observation)
}

func (c *cartpole) Step(action, observation []float64) (reward float64, terminated bool) {
	s, force := &c.state, -push
	if action[0] == 1 {
		force = push
	}
	// The order of the operations is Gymnasium's: an upright pole makes rounding errors grow.
	sin, cos := math.Sincos(s[2])
	drive := (force + poleMass*halfLength*(s[3]*s[3])*sin) / totalMass
	turn := (gravity*sin - cos*drive) / (halfLength * (4.0/3 - poleMass*(cos*cos)/totalMass))
	pull := drive - poleMass*halfLength*turn*cos/totalMass
	*s = [4]float64{s[0] + cartTime*s[1], s[1] + cartTime*pull, s[2] + cartTime*s[3], s[3] + cartTime*turn}
	c.observe(observation)
	if !c.ended {
		reward = 1
	}
	terminated = math.Abs(s[0]) > cartEdge || math.Abs(s[2]) > poleEdge
	c.ended = c.ended || terminated
	return reward, terminated
}
