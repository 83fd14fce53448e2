package control

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/posttrain/posttrain/internal/mujoco"
)

// robot is a task of Gymnasium's v4 on MuJoCo: a body that is rewarded for moving along x.
type robot struct {
	body
	simulation   *mujoco.Simulation
	start, state []float64 // positions, then velocities: of the model, and now
}

// body is what differs between the tasks.
type body struct {
	file        string
	skip        int     // time steps of the model in one of the environment
	duration    float64 // of a step of the environment, s
	noise       float64 // most that is added to each number of a start
	hidden      int     // positions that are not observed
	maxVelocity float64 // bound of the velocities that are observed
	speedReward float64 // of a speed of 1 m/s
	aliveReward float64 // of each step, also of the last
	controlCost float64 // of the sum of the squared controls
	hasFallen   func(state []float64) bool

	// observed are further fields of an observation. With any, the speed is the centre of mass's.
	observed []mujoco.Field
}

var swimmer = body{file: "swimmer.xml", skip: 4, duration: 0.04, noise: 0.1, hidden: 2, maxVelocity: math.Inf(1),
	speedReward: 1, controlCost: 1e-4, hasFallen: func([]float64) bool { return false }}

var hopper = body{file: "hopper.xml", skip: 4, duration: 0.008, noise: 5e-3, hidden: 1, maxVelocity: 10,
	speedReward: 1, aliveReward: 1, controlCost: 1e-3, hasFallen: func(s []float64) bool {
		for _, x := range s[2:] {
			if !(math.Abs(x) < 100) {
				return true
			}
		}
		return !(s[1] > 0.7 && math.Abs(s[2]) < 0.2)
	}}

var walker = body{file: "walker2d.xml", skip: 4, duration: 0.008, noise: 5e-3, hidden: 1, maxVelocity: 10,
	speedReward: 1, aliveReward: 1, controlCost: 1e-3,
	hasFallen: func(s []float64) bool { return !(s[1] > 0.8 && s[1] < 2 && math.Abs(s[2]) < 1) }}

var humanoid = body{file: "humanoid.xml", skip: 5, duration: 0.015, noise: 1e-2, hidden: 2, maxVelocity: math.Inf(1),
	speedReward: 1.25, aliveReward: 5, controlCost: 0.1,
	hasFallen: func(s []float64) bool { return !(s[2] > 1 && s[2] < 2) },
	observed:  []mujoco.Field{mujoco.Inertias, mujoco.Velocities, mujoco.ActuatorForces, mujoco.ContactForces}}

// kind is a body's, with the numbers of an observation and of an action, which lie between -high and high.
func (b body) kind(observations, actions int, high float64) kind {
	s := space{observations: observations, low: slices.Repeat([]float64{-high}, actions),
		high: slices.Repeat([]float64{high}, actions), limit: 1000}
	return kind{s, func() (environment, error) { return b.open(s) }}
}

func (b body) open(space space) (environment, error) {
	s, err := mujoco.Load(b.file)
	if err != nil {
		return nil, err
	}
	n := s.Positions + s.Velocities
	seen := n - b.hidden
	for _, f := range b.observed {
		seen += s.Size(f)
	}
	if seen != space.observations || s.Controls != space.actions() {
		return nil, fmt.Errorf("MuJoCo: %s: %d numbers of an observation, %d controls: want %d and %d; run "+
			"scripts/install-mujoco.sh", b.file, seen, s.Controls, space.observations, space.actions())
	}
	r := &robot{b, s, make([]float64, n), make([]float64, n)}
	s.Begin(nil)
	s.State(r.start)
	return r, nil
}

func (r *robot) Reset(draws *rand.Rand, observation []float64) {
	state := make([]float64, len(r.start))
	for i, x := range r.start {
		state[i] = x + (2*draws.Float64()-1)*r.noise
	}
	r.Set(state, observation)
}

func (r *robot) Set(state, observation []float64) {
	copy(r.state, state)
	r.simulation.Begin(r.state)
	r.observe(observation)
}

func (r *robot) Step(action, observation []float64) (reward float64, terminated bool) {
	before := r.position()
	r.simulation.Step(action, r.skip)
	r.simulation.State(r.state)
	if r.observed != nil {
		r.simulation.Forces()
	}
	r.observe(observation)
	speed, squares := (r.position()-before)/r.duration, 0.0
	for _, a := range action {
		squares += a * a
	}
	return r.speedReward*speed + r.aliveReward - r.controlCost*squares, r.hasFallen(r.state)
}

// position is where along x the body is.
func (r *robot) position() float64 {
	if r.observed == nil {
		return r.state[0]
	}
	var centre [1]float64
	r.simulation.Read(mujoco.Centres, centre[:])
	return centre[0]
}

func (r *robot) observe(observation []float64) {
	n := copy(observation, r.state[r.hidden:])
	velocities := observation[r.simulation.Positions-r.hidden : n]
	for i, v := range velocities {
		velocities[i] = min(max(v, -r.maxVelocity), r.maxVelocity)
	}
	for _, f := range r.observed {
		n += r.simulation.Read(f, observation[n:])
	}
}

// Simulator says which library an environment runs on, or why it cannot: one line, "" where it needs none.
func Simulator(environment string) string {
	if environment == cartpoleName {
		return ""
	}
	path, err := mujoco.Find()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("MuJoCo %s, %s", mujoco.Version, path)
}
