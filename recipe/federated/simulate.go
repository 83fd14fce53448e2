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
	Compare string `yaml:"compare" flag:"compare" help:"method that gets as many samples afterwards, or none"`

	CheckpointEvery int `yaml:"checkpoint_every" want:">=0"` // updates or rounds; 0: at the end and on Ctrl-C
	CheckpointKeep  int `yaml:"checkpoint_keep" want:">=1"`

	Dir recipe.RunDir `yaml:"-"`
}

// RunDirectory is where the run's folder is.
func (s *Simulation) RunDirectory() *recipe.RunDir { return &s.Dir }

// Clock says how long agents need for a gradient, in virtual seconds.
type Clock struct {
	// of each agent; empty: by pattern and ratio
	Times   []float64 `yaml:"times" want:">0" flag:"times" help:"each agent's seconds for a gradient, such as 1,1,4"`
	Pattern string    `yaml:"pattern" want:"one_slow|one_fast|geometric" flag:"pattern" help:"how times are spread"`
	// of the longest time over the shortest, which is 1
	Ratio float64 `yaml:"ratio" want:">=1" flag:"ratio" help:"longest of these times over the shortest"`
}

// Spec says how a configuration becomes a simulation.
var Spec = config.Register(&config.Spec[Simulation]{
	Command: Command,
	Like:    family,
	Without: withoutKeys,
	Choose:  chooseClock,
	Defaults: func(g *config.Given) Simulation {
		return Simulation{Options: DefaultsOf(g), Clock: Clock{Pattern: string(federated.Geometric), Ratio: 4},
			CheckpointEvery: 100, CheckpointKeep: 2}
	},
	Settle: func(g *config.Given, s *Simulation) {
		s.Settle(g)
		if !g.Has("compare") {
			s.Compare = rival(s.Method)
			if s.ofModels() {
				s.Compare = none // it takes minutes
			}
		}
	},
	Check: checkSimulation,
	Idle: func(s *Simulation) []string {
		if len(s.Clock.Times) > 0 {
			return append(s.IdleKeys(), "clock.pattern", "clock.ratio")
		}
		return append(s.IdleKeys(), "clock.times")
	},
})

// chooseClock leaves one of two ways to say how long agents need: the command line wins over the file.
func chooseClock(g *config.Given) {
	const times = "clock.times"
	for _, key := range []string{"clock.pattern", "clock.ratio"} {
		switch t, k := g.FromCommandLine(times), g.FromCommandLine(key); {
		case !g.Has(times) || !g.Has(key) || t == k:
		case t:
			g.Drop(key)
		default:
			g.Drop(times)
			return
		}
	}
}

// rival is the method to compare with where the user names none.
func rival(method string) string {
	switch method {
	case protocol.FedNPGADMM:
		return protocol.FedNPG
	case protocol.FedPG:
		return protocol.AFedPG
	}
	return protocol.FedPG
}

func checkSimulation(g *config.Given, s *Simulation) {
	s.CheckGiven(g)
	if n := len(s.Clock.Times); n > 0 && n != s.Agents {
		g.Fault("clock.times", "clock.times %v: %d times for %d agents: want one for each", s.Clock.Times, n, s.Agents)
	}
	for _, key := range []string{"clock.pattern", "clock.ratio"} {
		if len(s.Clock.Times) > 0 && g.Has(key) {
			g.Fault(key, "%s %s: clock.times says how long each agent needs; remove one of the two", key, g.Show(key))
		}
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

// Resolved is everything in force as YAML, which loads to the same value.
func (s *Simulation) Resolved() []byte { return Spec.Resolve(s) }
