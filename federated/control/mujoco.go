package control

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/posttrain/posttrain/internal/mujoco"
)

// robot is a task of Gymnasium's v4 on MuJoCo: a body that is rewarded for moving along x.
type robot struct {
	body
	simulation    *mujoco.Simulation
	start, before []float64 // positions, then velocities: of the model, and before the last step
	state         []float64
}

// body is what differs between the tasks.
type body struct {
	file     string
	duration float64 // of a step of the environment, s: four of the model's
	noise    float64 // most that is added to each number of a start
	hidden   int     // positions that are not observed
	fastest  float64 // bound of the velocities that are observed
	alive    float64 // reward of each step, also of the last
	cost     float64 // of the sum of the squared controls
	fallen   func(state []float64) bool
}

// skip are the model's time steps in one of the environment.
const skip = 4

var swimmer = body{file: "swimmer.xml", duration: 0.04, noise: 0.1, hidden: 2, fastest: math.Inf(1), cost: 1e-4,
	fallen: func([]float64) bool { return false }}

var hopper = body{file: "hopper.xml", duration: 0.008, noise: 5e-3, hidden: 1, fastest: 10, alive: 1, cost: 1e-3,
	fallen: func(s []float64) bool {
		for _, x := range s[2:] {
			if !(math.Abs(x) < 100) {
				return true
			}
		}
		return !(s[1] > 0.7 && math.Abs(s[2]) < 0.2)
	}}

var walker = body{file: "walker2d.xml", duration: 0.008, noise: 5e-3, hidden: 1, fastest: 10, alive: 1, cost: 1e-3,
	fallen: func(s []float64) bool { return !(s[1] > 0.8 && s[1] < 2 && math.Abs(s[2]) < 1) }}

// kind is a body's, with the numbers of an observation and of an action.
func (b body) kind(observations, actions int) kind {
	s := Space{Observations: observations, Low: make([]float64, actions), High: make([]float64, actions), Limit: 1000}
	for i := range actions {
		s.Low[i], s.High[i] = -1, 1
	}
	return kind{space: s, mujoco: true, open: func() (Environment, error) { return b.open(s) }}
}

func (b body) open(space Space) (Environment, error) {
	s, err := mujoco.Load(b.file)
	if err != nil {
		return nil, err
	}
	n := s.Positions + s.Velocities
	if n-b.hidden != space.Observations || s.Controls != space.Actions() {
		return nil, fmt.Errorf("MuJoCo: %s: %d positions and velocities, %d controls: want %d and %d; run "+
			"scripts/install-mujoco.sh", b.file, n, s.Controls, space.Observations+b.hidden, space.Actions())
	}
	r := &robot{b, s, make([]float64, n), make([]float64, n), make([]float64, n)}
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
	r.before, r.state = r.state, r.before
	r.simulation.Step(action, skip)
	r.simulation.State(r.state)
	r.observe(observation)
	speed, squares := (r.state[0]-r.before[0])/r.duration, 0.0
	for _, a := range action {
		squares += a * a
	}
	return speed + r.alive - r.cost*squares, r.fallen(r.state)
}

func (r *robot) observe(observation []float64) {
	copy(observation, r.state[r.hidden:])
	velocities := observation[r.simulation.Positions-r.hidden:]
	for i, v := range velocities {
		velocities[i] = min(max(v, -r.fastest), r.fastest)
	}
}

// Simulator says which library an environment runs on, or why it cannot: one line, "" where it needs none.
func Simulator(environment string) string {
	if !environments[environment].mujoco {
		return ""
	}
	path, err := mujoco.Find()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("MuJoCo %s, %s", mujoco.Version, path)
}
