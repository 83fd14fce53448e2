package federated

import (
	"slices"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe"
)

// Command is the command that runs this recipe.
const Command = "federated simulate"

// Simulation is a run on a virtual clock.
type Simulation struct {
	Options `yaml:",inline"`
	Clock   Clock  `yaml:"clock"`
	Seeds   int    `yaml:"seeds,omitempty" want:">=0" zero:"one" flag:"seeds" help:"runs of as many seeds, from seed on: their means, with 95% bands in curves.png; 0: one run"`
	Compare string `yaml:"compare" flag:"compare" help:"method that gets as many samples afterwards, or none"`

	CheckpointEvery int `yaml:"checkpoint_every" want:">=0" default:"100" help:"updates or rounds between checkpoints; 0: only at the end and on Ctrl-C"`
	CheckpointKeep  int `yaml:"checkpoint_keep" want:">=1" default:"2" help:"how many of the newest are kept"`

	Dir recipe.RunDir `yaml:"-"`
}

// RunDirectory is where the run's folder is.
func (s *Simulation) RunDirectory() *recipe.RunDir { return &s.Dir }

// Clock says how long agents need for a gradient, in virtual seconds.
type Clock struct {
	Times []float64 `yaml:"times" want:">0" flag:"times" help:"each agent's seconds for a gradient, such as 1,1,4; empty: from 1 to clock.ratio, by equal factors"`
	Ratio float64   `yaml:"ratio" want:">=1" default:"4" flag:"ratio" help:"longest time over the shortest, which is 1"`
}

// Spec says how a configuration becomes a simulation.
var Spec = config.Register(&config.Spec[Simulation]{
	Command: Command,
	Like:    family,
	Without: withoutKeys,
})

// Idle is one of the two that say how long agents need.
func (c *Clock) Idle(*config.Given) config.Idle {
	if len(c.Times) > 0 {
		return config.Idle{"ratio": ""}
	}
	return config.Idle{"times": ""}
}

// Resolve gives the options that depend on others their defaults.
func (s *Simulation) Resolve(g *config.Given) {
	switch {
	case g.Has("compare"):
	case s.ofModels():
		s.Compare = none // it takes minutes
	case s.Method == protocol.FedNPGADMM:
		s.Compare = protocol.FedNPG
	case s.Method == protocol.FedPG:
		s.Compare = protocol.AFedPG
	default:
		s.Compare = protocol.FedPG
	}
}

// Validate looks across the keys. Times on the command line win over a ratio in the file.
func (s *Simulation) Validate(g *config.Given) {
	if n := len(s.Clock.Times); n > 0 && n != s.Agents {
		g.Fault("clock.times", "clock.times %v: %d times for %d agents: want one for each", s.Clock.Times, n, s.Agents)
	}
	wins := g.FromCommandLine("clock.times") && !g.FromCommandLine("clock.ratio")
	if len(s.Clock.Times) > 0 && g.Has("clock.ratio") && !wins {
		g.Refuse("clock.ratio", g.Show("clock.ratio"), "clock.times says how long each agent needs; remove one of the two")
	}
	switch methods := append(protocol.Methods(), none); {
	case !slices.Contains(methods, s.Compare):
		g.Fault("compare", "compare %q: want %s", s.Compare, fault.Or(methods))
	case s.Compare == s.Method:
		g.Fault("compare", "compare %q: it is the method itself; want another, or none", s.Compare)
	case s.Workload == MaPPOName && s.Compare != none && !slices.Contains(pairMethods, s.Compare):
		g.Fault("compare", "compare %s: it needs samples of the policy, and workload mappo has pairs: want %s, or none",
			s.Compare, fault.Or(pairMethods))
	}
}

// times are the seconds that each agent needs for a gradient.
func (s *Simulation) times() []float64 {
	if len(s.Clock.Times) > 0 {
		return s.Clock.Times
	}
	return federated.Times(s.Agents, s.Clock.Ratio)
}
