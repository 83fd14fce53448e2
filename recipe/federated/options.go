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
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/rl"
)

// The workloads.
const (
	Control   = "control"   // an environment for each agent
	Quadratic = "quadratic" // a quadratic function, for dry runs of servers and networks
	CIRLName  = "ci-rl"     // CI-RL of a language model, on items of each agent's own
	MaPPOName = "mappo"     // preference optimisation of a language model, on pairs of each agent's own
)

// family are the commands that take each other's files: one config describes a run, wherever its agents are.
var family = []string{Command, ServerCommand}

// Options are what the server and the agents of a run share.
type Options struct {
	protocol.Options `yaml:",inline"`
	Workload         string          `yaml:"workload" want:"control|ci-rl|mappo|quadratic" default:"control" flag:"workload" help:"what agents learn; quadratic is for dry runs"`
	Seed             uint64          `yaml:"seed" flag:"seed" help:"seed of every random choice"`
	Control          control.Options `yaml:"control"`
	Quadratic        Bowl            `yaml:"quadratic"`
	CIRL             CIRL            `yaml:"ci_rl" flags:"-"`
	MaPPO            MaPPO           `yaml:"mappo" flags:"-"`

	ignored []string `yaml:"-"` // keys of the file without effect, as the command line changed the method

	heard run.Reporter `yaml:"-"` // hears of the engine; nil: nobody does
	world *world       `yaml:"-"` // of a workload of language models, made at its first use
	items string       `yaml:"-"` // a file with the data of this process's only agent; "": it has what it is dealt
}

// Bowl is the workload quadratic. Its curvature, best point and start are drawn from the seed.
type Bowl struct {
	Size  int           `yaml:"size" want:">=1 <=16777216" words:"a whole number from 1 to 16777216" default:"100" help:"number of parameters"`
	Noise float64       `yaml:"noise" want:">=0" default:"0.1" help:"deviation of the noise in each number of a gradient"`
	Pause time.Duration `yaml:"pause" want:">=0" help:"time that a gradient takes agent 0"`
	Ratio float64       `yaml:"ratio" want:">=1" default:"1" help:"the last agent's pause over agent 0's; geometric between"`
}

// ofModels reports whether the workload is one of language models.
func (o *Options) ofModels() bool { return o.Workload == CIRLName || o.Workload == MaPPOName }

// Defaults sets the defaults of the method that is given, or of AFedPG.
func (o *Options) Defaults(g *config.Given) {
	o.ignored = append(o.ignored, dropForeign(g)...)
	o.Options = methodOn(g.Text("workload"), cmp.Or(g.Text("method"), o.Method), g.Text("rule"))
	o.Control.Entropy = entropyOf(o.Method)
}

// dropForeign forgets what the file gives for its own method alone, where the command line names another method. What
// the command line gives, and all of a file whose method stays, must fit the method.
func dropForeign(g *config.Given) (keys []string) {
	method := g.Text("method")
	if !g.Changed("method", protocol.AFedPG) || !slices.Contains(protocol.Methods(), method) {
		return nil
	}
	foreign := protocol.Foreign(method)
	if protocol.Defaults(method).Local.LR != nil {
		foreign = append(foreign, "control.norm", "control.entropy")
	}
	if g.Text("compare") == method {
		foreign = append(foreign, "compare")
	}
	for _, key := range foreign {
		if g.Has(key) && !g.FromCommandLine(key) {
			keys = append(keys, key)
			g.Drop(key)
		}
	}
	return keys
}

// sayIgnored names the keys that [dropForeign] has dropped, in one line.
func (o *Options) sayIgnored(r run.Reporter) {
	if o.ignored != nil {
		r.Say("method %s, as the command line says: %s of the config file have no effect", o.Method,
			strings.Join(o.ignored, ", "))
	}
}

// entropyOf is the default of control.entropy.
func entropyOf(method string) float64 {
	if method == protocol.A3C {
		return 0.01
	}
	return 0
}

// onModels are defaults of all methods on language models: short local training, and the rates of the quick starts of
// ci-rl and mappo.
var onModels = map[string][]string{
	CIRLName:  {"lr=2e-4", "local.lr=2e-4", "local.epochs=2", "local.minibatch=16", "adamw.warmup_steps=5"},
	MaPPOName: {"lr=1e-4", "local.lr=1e-4", "local.epochs=1", "local.minibatch=8", "adamw.warmup_steps=5"},
}

// methodOn are the defaults of a method on a workload, "" being control, with a rule of its server's step; "" is the
// rule by default. docs/federated.md has the measurements.
func methodOn(workload, method, rule string) protocol.Options {
	changes, language := onModels[workload]
	ruled := protocol.Defaults(method).Rule != nil
	switch {
	case ruled && (rule == protocol.AdamW || language && rule == ""):
		changes = slices.Concat(changes, []string{"rule=adamw", "clip=0"}) // the rule has max_grad_norm
	case ruled && language: // a normalised step is longer than AdamW's at the same rate
		changes = slices.Concat(changes, []string{"lr=2e-5"})
	case method == protocol.FedNPGADMM && language:
		changes = slices.Concat(changes, []string{"damping=0.1", "line_search=on", "clip=3"})
	}
	o := protocol.Defaults(method, changes...)
	if method == protocol.FedPG && workload == CIRLName {
		*o.LR *= 2 // as on control
	}
	return o
}

// Resolve gives the options that depend on others their defaults. Secure sums give up what needs single updates, unless
// it was asked for.
func (o *Options) Resolve(g *config.Given) {
	if o.Schedule != nil && *o.Schedule != string(federated.Constant) && !g.Has("alpha") {
		o.Alpha = nil
	}
	noise := o.Secure && o.Privacy.Noise > 0
	if o.Secure && !g.Has("clip") {
		o.Clip = 0
	}
	if o.Secure && o.Absent != nil && !g.Has("absent") {
		o.Absent = new(string(federated.Drop))
	}
	fixed := o.Step != nil && *o.Step == string(federated.Fixed)
	if t := o.Theorem; fixed && !g.Has("eta") && t.G*t.Mu*t.L > 0 {
		o.Eta = new(t.Eta())
	}
	if o.LineSearch != nil && (fixed || noise) && !g.Has("line_search") {
		o.LineSearch = new("off")
	}
	if o.Weights != nil && noise && !g.Has("weights") {
		o.Weights = new("equal")
	}
}

// Idle are the keys and sections of other workloads and methods.
func (o *Options) Idle(*config.Given) config.Idle {
	all := config.Idle{}
	for _, section := range []string{"ci_rl", "control", "mappo", "quadratic"} {
		if name := strings.ReplaceAll(section, "_", "-"); name != o.Workload {
			all[section] = fmt.Sprintf("it is about the workload %s, and workload is %s; remove one of the two", name,
				o.Workload)
		}
	}
	if o.ofModels() {
		o.idleOfModels(all)
	}
	if o.Control.Trajectories > 0 {
		all["control.steps"] = "a batch has control.trajectories whole episodes; remove one of the two"
	}
	return all
}

// Validate refuses what has no effect, and what the workloads of language models cannot do.
func (o *Options) Validate(g *config.Given) {
	o.refuseUnused(g)
	switch o.Workload {
	case CIRLName:
		g.In("ci_rl.sampling.").Take(rl.CheckDraws(o.CIRL.Sampling)...)
		if e := o.Local.Entropy; e != nil && *e != 0 {
			g.Fault("local.entropy", "local.entropy %v: workload ci-rl has no such term; remove it", *e)
		}
	case MaPPOName:
		if !slices.Contains(pairMethods, o.Method) {
			g.Fault("method", "method %s: it needs samples of the policy, and workload mappo has pairs: want %s", o.Method,
				fault.Or(pairMethods))
		}
		o.MaPPO.check(g.In("mappo."))
	}
}

// refuseUnused refuses values that this run has no use for. Defaults may be given: a file may list all keys.
func (o *Options) refuseUnused(g *config.Given) {
	usual, local, solved := protocol.Defaults(o.Method), o.Local.LR != nil, o.Workload == CIRLName && o.Rho != nil
	ratios := grpo.DefaultOptions()
	for _, c := range []struct {
		unused     bool
		key        string
		now, usual any
		why        string
	}{
		{o.Deadline != nil && *o.Deadline == 0, "quorum", value(o.Quorum), value(usual.Quorum),
			"rounds wait for all with deadline 0s; give a deadline, or remove it"},
		{o.Step != nil && *o.Step == string(federated.Fixed), "delta", value(o.Delta), value(usual.Delta),
			"step fixed has the length of eta; remove it"},
		{solved, "cg.iters", value(o.CG.Iters), value(usual.CG.Iters), solvedAtOnce},
		{solved, "cg.tol", value(o.CG.Tol), value(usual.CG.Tol), solvedAtOnce},
		{solved, "cg.start", value(o.CG.Start), value(usual.CG.Start), solvedAtOnce},
		{local, "control.norm", o.Control.Norm, control.Timesteps, o.Method + " takes means over minibatches; remove it"},
		{local, "control.entropy", o.Control.Entropy, 0.0, o.Method + " has local.entropy; remove it"},
		{o.Workload == CIRLName, "ci_rl.grpo.clip_low", o.CIRL.GRPO.ClipLow, ratios.ClipLow, ratiosOf},
		{o.Workload == CIRLName, "ci_rl.grpo.clip_high", o.CIRL.GRPO.ClipHigh, ratios.ClipHigh, ratiosOf},
	} {
		if c.unused && c.now != c.usual {
			g.Fault(c.key, "%s %v: %s", c.key, c.now, c.why)
		}
	}
}

// Why keys have no effect in ci-rl.
const (
	solvedAtOnce = "workload ci-rl solves by an equation for each completion; remove it"
	ratiosOf     = "gradients have ratio 1, and local training has local.clip; remove it"
)

// NewWorkload makes the workload of an agent.
func (o *Options) NewWorkload(agent int) (protocol.Workload, error) {
	if agent < 0 || agent >= o.Agents {
		return nil, fmt.Errorf("agent %d: want 0 to %d, as agents is %d", agent, o.Agents-1, o.Agents)
	}
	switch o.Workload {
	case Quadratic:
		b, share := o.Quadratic, float64(agent)/float64(max(1, o.Agents-1))
		q := protocol.RandomQuadratic(b.Size, o.Seed)
		q.Noise, q.Pause = b.Noise, time.Duration(float64(b.Pause)*math.Pow(b.Ratio, share))
		return q.Of(agent, o.Seed), nil
	case Control:
		return control.New(o.Control, agent, o.Seed)
	}
	if err := o.openWorld(); err != nil {
		return nil, err
	}
	return o.world.agent(agent)
}

// Close gives back what the workloads of this process share.
func (o *Options) Close() {
	if o.world != nil {
		o.world.close()
		o.world = nil
	}
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
	switch o.Workload {
	case Control:
		return control.NewTask(o.Control, o.Seed), nil
	case Quadratic:
		return o.NewWorkload(0)
	}
	if err := o.openWorld(); err != nil {
		return nil, err
	}
	return o.world.policy, nil
}

// NewServer makes the server at θ_0, and the identity that its agents must have.
func (o *Options) NewServer() (protocol.Server, protocol.Identity, error) {
	t, err := o.task()
	if err != nil {
		return nil, protocol.Identity{}, err
	}
	shared := o.Options
	shared.Tensors = t.Identity().Tensors
	if o.ofModels() {
		shared.ValidateEvery = o.ofModel().Validation.Every
	}
	s, err := protocol.NewServer(shared, t.Start(), o.Seed)
	return s, t.Identity(), err
}
