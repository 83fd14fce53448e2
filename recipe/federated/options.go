// Package federated is the recipe of the commands posttrain federated: agents with an environment or data of their own
// train one policy, simulated on a virtual clock or as processes on a network.
package federated

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/control"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
)

// The workloads.
const (
	Control   = "control"   // an environment for each agent
	Quadratic = "quadratic" // a quadratic function, for dry runs of servers and networks
	CIRLName  = "ci-rl"     // CI-RL of a language model, on items of each agent's own
	MaPPOName = "mappo"     // preference optimisation of a language model, on pairs of each agent's own
)

// ofModels reports whether the workload is one of language models.
func (o *Options) ofModels() bool { return o.Workload == CIRLName || o.Workload == MaPPOName }

// family are the commands that take each other's files: one config describes a run, wherever its agents are. The last
// two are gone, and their files stay.
var family = []string{Command, ServerCommand, "federated run", "federated step"}

// Options are what the server and the agents of a run share.
type Options struct {
	protocol.Options `yaml:",inline"`
	Workload         string          `yaml:"workload" want:"control|ci-rl|mappo|quadratic" flag:"workload" help:"what agents learn; quadratic is for dry runs"`
	Seed             uint64          `yaml:"seed" flag:"seed" help:"seed of every random choice"`
	Control          control.Options `yaml:"control"`
	Quadratic        Bowl            `yaml:"quadratic"`
	CIRL             CIRL            `yaml:"ci_rl" flags:"-"`
	MaPPO            MaPPO           `yaml:"mappo" flags:"-"`

	heard run.Reporter `yaml:"-"` // hears of the engine; nil: nobody does
	world world        `yaml:"-"` // of a workload of language models, made at its first use
	items string       `yaml:"-"` // a file with the data of this process's only agent; "": it has what it is dealt

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
	o := defaultsOn(g.Text("workload"), method, g.Text("rule"))
	o.MaPPO = defaultMaPPO(cmp.Or(g.Text("mappo.loss.type"), losses.DPO))
	return o
}

// defaultsOn are the defaults of a method on a workload, with a rule of its server's step; "" is the rule by default.
func defaultsOn(workload, method, rule string) Options {
	o := Defaults(method)
	language := workload == CIRLName || workload == MaPPOName
	if o.Rule != nil && (rule == protocol.AdamW || language && rule == "") {
		o.UseAdamW()
		o.Clip = 0 // the rule has max_grad_norm
	}
	switch workload {
	case CIRLName:
		o.forLanguageModels()
	case MaPPOName:
		o.forPairs()
	}
	return o
}

// forLanguageModels lowers the rates, and makes local training short.
func (o *Options) forLanguageModels() {
	if o.LR != nil {
		*o.LR /= 5 // 2e-4, as ci-rl has it for the embedded model, and 4e-4 of fedpg
	}
	switch {
	case o.Rule == nil:
	case *o.Rule == protocol.AdamW:
		o.AdamW.Warmup = new(5)
	default:
		*o.LR /= 10 // longer than AdamW's step at the same rate: docs/federated.md has the measurements
	}
	if o.Local.LR != nil {
		o.Local.LR, o.Local.Epochs, o.Local.Minibatch = new(2e-4), new(2), new(16)
	}
}

// Defaults are a method's options on cartpole.
func Defaults(method string) Options {
	c := control.DefaultOptions()
	if method == protocol.A3C {
		c.Entropy = 0.01
	}
	return Options{Options: protocol.Defaults(method), Workload: Control, Control: c,
		Quadratic: Bowl{Size: 100, Noise: 0.1, Ratio: 1}, CIRL: defaultCIRL(), MaPPO: defaultMaPPO(losses.DPO)}
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
	o.CIRL.settle(g)
	o.MaPPO.settle(g)
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
	for _, key := range g.Keys() {
		if section, _, _ := strings.Cut(key, "."); g.Has(key) && slices.Contains(o.foreign(), section) {
			g.Fault(key, "%s %s: it is about the workload %s, and workload is %s; remove one of the two", key,
				g.Show(key), strings.ReplaceAll(section, "_", "-"), o.Workload)
		}
	}
	switch o.Workload {
	case CIRLName:
		o.CIRL.check(g, o)
	case MaPPOName:
		o.MaPPO.check(g, o)
	}
}

// IdleKeys are those that have no effect, and sections without any.
func (o *Options) IdleKeys() []string {
	keys := o.foreign()
	switch o.Workload {
	case CIRLName:
		keys = append(keys, o.CIRL.idle(o.Method)...)
	case MaPPOName:
		keys = append(keys, o.MaPPO.idle(o)...)
	}
	return keys
}

// foreign are the sections of the other workloads.
func (o *Options) foreign() []string {
	return slices.DeleteFunc([]string{"ci_rl", "control", "mappo", "quadratic"}, func(section string) bool {
		return strings.ReplaceAll(section, "_", "-") == o.Workload
	})
}

// NewWorkload makes the workload of an agent.
func (o *Options) NewWorkload(agent int) (protocol.Workload, error) {
	if agent < 0 || agent >= o.Agents {
		return nil, fmt.Errorf("agent %d: want 0 to %d, as agents is %d", agent, o.Agents-1, o.Agents)
	}
	switch o.Workload {
	case Quadratic:
		q := protocol.RandomQuadratic(o.Quadratic.Size, o.Seed)
		q.Noise, q.Pause = o.Quadratic.Noise, o.Quadratic.pauseOf(agent, o.Agents)
		return q.Of(agent, o.Seed), nil
	case CIRLName, MaPPOName:
		if err := o.openWorld(); err != nil {
			return nil, err
		}
		return o.world.agent(agent)
	}
	return control.New(o.Control, agent, o.Seed)
}

// openWorld makes what the agents share, once.
func (o *Options) openWorld() error {
	if o.world != nil {
		return nil
	}
	open := openItems
	if o.Workload == MaPPOName {
		open = openPairs
	}
	w, err := open(o)
	if err == nil {
		o.world = w
	}
	return err
}

// Close gives back what the workloads of this process share.
func (o *Options) Close() {
	if o.world != nil {
		o.world.close()
		o.world = nil
	}
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

// task is what the server and the agents have in common. Unlike a workload it needs no simulator.
func (o *Options) task() (interface {
	Identity() protocol.Identity
	Start() []float64
}, error) {
	if o.Workload == Control {
		return control.NewTask(o.Control, o.Seed)
	}
	if !o.ofModels() {
		return o.NewWorkload(0)
	}
	if err := o.openWorld(); err != nil {
		return nil, err
	}
	return o.world.modelTask(), nil
}

// NewServer makes the server at θ_0, and the identity that its agents must have.
func (o *Options) NewServer() (protocol.Server, protocol.Identity, error) {
	t, err := o.task()
	if err != nil {
		return nil, protocol.Identity{}, err
	}
	shared := o.Options
	shared.Tensors = t.Identity().Tensors
	switch o.Workload {
	case CIRLName:
		shared.ValidateEvery = o.CIRL.Validation.Every
	case MaPPOName:
		shared.ValidateEvery = o.MaPPO.Validation.Every
	}
	s, err := protocol.NewServer(shared, t.Start(), o.Seed)
	return s, t.Identity(), err
}
