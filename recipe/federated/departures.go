package federated

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/federated/control"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
)

// experiment is what a paper's tables have for an environment.
type experiment struct {
	hidden    []int
	steps     int     // of a batch; 0: one trajectory
	length    int     // rounds, or gradients of an agent
	rho, rate float64 // ADMM's penalty and the learning rate, which we take for the critic's; AFedPG's η is its rate
}

// The experiments of arXiv 2310.19807 (FedNPG-ADMM and its baselines, in rounds) and of arXiv 2404.08003 (AFedPG).
var (
	inRounds = map[string]experiment{
		"swimmer":  {[]int{64, 64}, 2048, 1000, 0.1, 3e-4},
		"hopper":   {[]int{128, 128}, 1024, 2000, 0.1, 3e-4},
		"humanoid": {[]int{512, 512, 512}, 512, 3000, 0.01, 1e-5},
	}
	withoutRounds = map[string]experiment{
		"swimmer":  {[]int{64, 64}, 0, 1000, 0, 3e-4},
		"hopper":   {[]int{256, 256}, 0, 2000, 0, 1e-4},
		"walker2d": {[]int{512, 512}, 0, 5000, 0, 5e-5},
		"humanoid": {[]int{512, 512, 512}, 0, 15000, 0, 1e-5},
	}

	// timesteps are AFedPG's row Timesteps T. Its text has a trajectory for a gradient, which they may cut.
	timesteps = map[string]int{"swimmer": 2048, "hopper": 1024, "walker2d": 1024, "humanoid": 512}
)

// departing collects what a run does in another way than its paper.
type departing []string

func (d *departing) add(applies bool, what string, now, paper any) {
	if a, b := fmt.Sprint(now), fmt.Sprint(paper); applies && a != b {
		*d = append(*d, fmt.Sprintf("%s: %s (paper: %s)", what, a, b))
	}
}

// departures say where the run is not its paper's, algorithm and experiments: by what it does, whether a key was given
// or not. [Options.open] has the values that the paper leaves open.
func (o *Options) departures() string {
	var all departing
	ours := o.natural() || o.Rule != nil || o.Method == protocol.FedPPO // in one of the two papers' experiments
	for _, c := range new(config.Spec[protocol.Options]).Departures(&o.Options) {
		all.add(c.Now != "not given", c.Key, c.Now, c.Was)
	}
	all.add(o.natural() && *o.Step == "trust" && value(o.Eta) >= 1, "eta", value(o.Eta), "in (0, 1)")
	all.add(o.Method == protocol.FedNPG, "H", "products of all agents", "matrices of d² numbers")
	all.add(o.Weights != nil && ours, "weights", value(o.Weights), "equal")
	papers, type_ := withoutRounds, "float32"
	if !protocol.Asynchronous(o.Method) && o.Method != protocol.FedPG {
		papers, type_ = inRounds, "float64"
	}
	all.add(!o.Secure, "messages", o.Wire, type_)
	bounded := protocol.Asynchronous(o.Method) && (o.Limit() == 0 || o.DelayLimit() < o.Limit())
	all.add(bounded, "delay", fmt.Sprintf("at most %d versions", o.DelayLimit()), "any")
	if o.Workload != Control {
		all.add(true, "workload", o.Workload, "control tasks")
	} else {
		o.departInControl(&all, papers)
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, "; ")
}

// departInControl compares environment, network, batch and advantages.
func (o *Options) departInControl(all *departing, papers map[string]experiment) {
	c := o.Control
	p, known := papers[c.Environment]
	if !known {
		names := []string{"swimmer", "hopper", "walker2d", "humanoid"}
		names = slices.DeleteFunc(names, func(name string) bool { _, has := papers[name]; return !has })
		all.add(true, "environment", c.Environment, strings.Join(names, ", "))
	}
	all.add(known, "hidden layers", c.Hidden, p.hidden)
	for _, d := range new(config.Spec[control.Options]).Departures(&c) {
		continuous := c.Environment != "cartpole"
		gae := d.Key != "lambda" || c.Returns == control.GAE
		all.add((continuous || d.Key != "output_tanh") && gae, "control."+d.Key, d.Now, d.Was)
	}
	entropy := c.Entropy
	if o.Local.LR != nil {
		entropy = value(o.Local.Entropy)
	}
	all.add(o.Method != protocol.A3C, "entropy", entropy, 0)
	batch, want := fmt.Sprintf("%d steps", c.Steps), fmt.Sprintf("%d steps", p.steps)
	if c.Trajectories > 0 {
		batch = fmt.Sprintf("%d episodes", c.Trajectories)
	}
	if p.steps == 0 {
		want = "1 episodes"
	}
	all.add(c.Trajectories > 0 || o.Step != nil && *o.Step == "fixed", "norm", c.Norm, control.Trajectories)
	rounds := papers["walker2d"].hidden == nil
	all.add(known || !rounds, "batch", strings.Replace(batch, "1 episodes", "1 episode", 1),
		strings.Replace(want, "1 episodes", "1 episode", 1))
	length, limit := o.Limit(), p.length
	if protocol.Asynchronous(o.Method) {
		limit *= o.Agents
	}
	all.add(known, o.unit()+"s", length, limit)
	all.add(known && o.Rho != nil, "rho", value(o.Rho), p.rho)
	all.add(known && rounds && c.Returns == control.GAE, "critic's rate", c.Critic.LR, p.rate)
	all.add(known && o.Rate != nil && *o.Rate == "published", "lr", value(o.LR), p.rate)
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// natural says that the method steps along natural gradients.
func (o *Options) natural() bool { return o.Step != nil }

// open is what the papers leave open, with what the run does.
func (o *Options) open() string {
	var all []string
	if o.natural() {
		all = append(all, "a round with gᵀy ≤ 0 has no step")
		if o.Method == protocol.FedNPGADMM {
			all[0] += ", and three of them begin ADMM again"
		}
		if o.Workload == Control {
			all = append(all, fmt.Sprintf("at most %d products of conjugate gradient, to %v of the residual", *o.CG.Iters,
				*o.CG.Tol))
		}
	}
	if c := o.Control; o.Workload == Control {
		if c.Normalize {
			all = append(all, "advantages have mean 0 and deviation 1 in a batch")
		}
		if c.Returns == control.GAE {
			all = append(all, fmt.Sprintf("the critic takes %d epochs of minibatches of %d", c.Critic.Epochs,
				c.Critic.Minibatch))
		}
		if t := timesteps[c.Environment]; t > 0 && protocol.Asynchronous(o.Method) && c.Trajectories > 0 {
			all = append(all, fmt.Sprintf("episodes are whole, whatever the table's row Timesteps T (%d) is", t))
		}
		if c.Environment != "cartpole" {
			all = append(all, fmt.Sprintf("deviations begin at e^%v", c.LogStd))
		}
	}
	return strings.Join(all, "; ")
}
