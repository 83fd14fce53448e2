package control

import (
	"math"
	"math/rand/v2"
)

// pendulum is Gymnasium's Pendulum-v1: a pendulum that a torque swings up. It never terminates. Arithmetic is float64,
// as Gymnasium's is when it gets float64 actions.
type pendulum struct {
	angle, speed float64 // rad from upright, rad/s
}

const (
	maxTorque    = 2.0
	maxSpeed     = 8.0
	pendulumTime = 0.05
	pendulumG    = 10.0
)

func (p *pendulum) Reset(r *rand.Rand, observation []float64) {
	var state [2]float64
	uniform(r, state[:], math.Pi, 1)
	p.Set(state[:], observation)
}

func (p *pendulum) Set(state, observation []float64) {
	p.angle, p.speed = state[0], state[1]
	p.observe(observation)
}

func (p *pendulum) Step(action, observation []float64) (reward float64, terminated bool) {
	torque := min(max(action[0], -maxTorque), maxTorque)
	off := math.Mod(p.angle+math.Pi, 2*math.Pi)
	if off < 0 {
		off += 2 * math.Pi
	}
	off -= math.Pi
	cost := off*off + 0.1*p.speed*p.speed + 0.001*torque*torque
	speed := p.speed + (3*pendulumG/2*math.Sin(p.angle)+3*torque)*pendulumTime
	p.speed = min(max(speed, -maxSpeed), maxSpeed)
	p.angle += p.speed * pendulumTime
	p.observe(observation)
	return -cost, false
}

func (p *pendulum) observe(observation []float64) {
	sin, cos := math.Sincos(p.angle)
	round32(observation, cos, sin, p.speed)
}
