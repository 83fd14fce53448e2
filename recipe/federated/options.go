// Package federated is the recipe of the commands posttrain federated: agents with an environment or data of their own
// train one policy, simulated on a virtual clock or as processes on a network.
package federated

import (
	"crypto/sha256"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/control"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/federated/quadratic"
	"github.com/posttrain/posttrain/internal/config"
)

// The workloads.
const (
	Control   = "control"   // an environment for each agent
	Quadratic = "quadratic" // a quadratic function, for dry runs of servers and networks
)

// family are the commands that take each other's files: one config describes a run, wherever its agents are.
var family = []string{Command, "federated server", "federated run", StepCommand}

// Options are what the server and the agents of a run share.
type Options struct {
	protocol.Options `yaml:",inline"`
	Workload         string          `yaml:"workload" want:"control|quadratic"`
	Seed             uint64          `yaml:"seed"`
	Control          control.Options `yaml:"control"`
	Quadratic        Bowl            `yaml:"quadratic"`
}

// Bowl is the workload quadratic. Its curvature, best point and start are drawn from the seed.
type Bowl struct {
	// parameters
	Size  int           `yaml:"size" want:">=1 <=16777216" words:"a whole number from 1 to 16777216"`
	Noise float64       `yaml:"noise" want:">=0"` // standard deviation of that in each number of a gradient
	Pause time.Duration `yaml:"pause" want:">=0"` // that a gradient takes agent 0
	Ratio float64       `yaml:"ratio" want:">=1"` // of the last agent's pause to it; geometric between
}

// DefaultsOf are the defaults of the method that is given, or of AFedPG. Commands that share Options begin with them.
func DefaultsOf(g *config.Given) Options {
	method := protocol.AFedPG
	if text := g.Text("method"); text != "" {
		method = text
	}
	return Defaults(method)
}

// Defaults are a method's options on cartpole.
func Defaults(method string) Options {
	c := control.DefaultOptions()
	if method == protocol.A3C {
		c.Entropy = 0.01
	}
	return Options{Options: protocol.Defaults(method), Workload: Control, Control: c,
		Quadratic: Bowl{Size: 100, Noise: 0.1, Ratio: 1}}
}

// Settle gives the options that depend on others their defaults.
func (o *Options) Settle(g *config.Given) {
	if o.Schedule != nil && *o.Schedule != string(federated.Constant) && !g.Has("alpha") {
		o.Alpha = nil
	}
	if o.Step != nil && *o.Step == string(federated.Fixed) && !g.Has("line_search") {
		o.LineSearch = new("off")
	}
	o.settleSecure(g)
}

// settleSecure gives up what needs single updates, unless it was asked for.
func (o *Options) settleSecure(g *config.Given) {
	if !o.Secure {
		return
	}
	if !g.Has("clip") {
		o.Clip = 0
	}
	if o.Absent != nil && !g.Has("absent") {
		o.Absent = new(string(federated.Drop))
	}
	if o.LineSearch != nil && o.Privacy.Noise > 0 && !g.Has("line_search") {
		o.LineSearch = new("off")
	}
	if o.Weights != nil && o.Privacy.Noise > 0 && !g.Has("weights") {
		o.Weights = new("equal")
	}
}

// CheckGiven refuses the keys of a workload that is not this run's.
func (o *Options) CheckGiven(g *config.Given) {
	for _, key := range o.IdleKeys() {
		if g.Has(key) {
			section, _, _ := strings.Cut(key, ".")
			g.Fault(key, "%s %s: it is about the workload %s, and workload is %s; remove one of the two", key,
				g.Show(key), section, o.Workload)
		}
	}
}

// IdleKeys are those of the other workload, which have no effect.
func (o *Options) IdleKeys() []string {
	if o.Workload == Control {
		return keysOf(Quadratic, reflect.TypeFor[Bowl]())
	}
	return keysOf(Control, reflect.TypeFor[control.Options]())
}

// keysOf are the keys of a section.
func keysOf(section string, t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		key := section + "." + t.Field(i).Tag.Get("yaml")
		if t.Field(i).Type.Kind() == reflect.Struct {
			keys = append(keys, keysOf(key, t.Field(i).Type)...)
		} else {
			keys = append(keys, key)
		}
	}
	return keys
}

// NewWorkload makes the workload of an agent.
func (o *Options) NewWorkload(agent int) (protocol.Workload, error) {
	if agent < 0 || agent >= o.Agents {
		return nil, fmt.Errorf("agent %d: want 0 to %d, as agents is %d", agent, o.Agents-1, o.Agents)
	}
	if o.Workload == Quadratic {
		q := quadratic.Random(o.Quadratic.Size, o.Seed)
		q.Noise, q.Pause = o.Quadratic.Noise, o.Quadratic.pauseOf(agent, o.Agents)
		return quadratic.New(q, agent, o.Seed)
	}
	return control.New(o.Control, agent, o.Seed)
}

// pauseOf is how long an agent works at a gradient.
func (b Bowl) pauseOf(agent, agents int) time.Duration {
	share := float64(agent) / float64(max(1, agents-1))
	return time.Duration(float64(b.Pause) * math.Pow(b.Ratio, share))
}

// NewAgent makes an agent of a simulation, with its workload. One process plays all parties there, so the agent's
// secret of secure sums comes from the seed, and equal runs have equal noise. A real agent has a random secret.
func (o *Options) NewAgent(agent int) (*protocol.Agent, error) {
	w, err := o.NewWorkload(agent)
	if err != nil {
		return nil, err
	}
	a, err := protocol.NewAgent(agent, w, o.Options)
	if err != nil {
		return nil, err
	}
	secret := sha256.Sum256(fmt.Appendf(nil, "agent %d, seed %d", agent, o.Seed))
	a.Secure(secret[:], "simulation")
	return a, nil
}

// NewServer makes the server at θ_0, and the identity that its agents must have.
func (o *Options) NewServer() (protocol.Server, protocol.Identity, error) {
	w, err := o.NewWorkload(0)
	if err != nil {
		return nil, protocol.Identity{}, err
	}
	s, err := protocol.NewServer(o.Options, w.Start(), o.Seed)
	return s, w.Identity(), err
}
