package federated

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/control"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/recipe"
)

// Explain says in plain text what the simulation trains, and how its clock runs. Its lines end in \n.
func (s *Simulation) Explain() string {
	text := s.Options.Explain()
	times, err := s.times()
	if err != nil {
		return text
	}
	text += fmt.Sprintf("clock: a gradient takes the agents %s virtual seconds; waiting for a gradient of any agent: "+
		"%.4g without rounds, %.4g in rounds, a factor of %.3g\n", numbers(times), federated.AsyncPerGradient(times),
		federated.SyncPerGradient(times), federated.Speedup(times))
	if s.Compare != none {
		text += fmt.Sprintf("comparison: %s with its own defaults, on as many samples\n", s.Compare)
	}
	return text
}

func numbers(values []float64) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprintf("%.4g", v)
	}
	return strings.Join(words, ", ")
}

// Explain says in plain text what the options train: the algorithm with its numbers, and what it sends.
func (o *Options) Explain() string {
	d := o.parameters()
	return fmt.Sprintf("objective: %s\n%s%s%smessages: %s\n%sworkload: %s, seed %d\n%s%s", o.title(), o.algorithm(d),
		o.rounds(), o.guard(), o.traffic(d), o.training(), o.describeWorkload(), o.Seed, o.simulator(), o.departures())
}

var titles = map[string]string{
	protocol.FedNPGADMM: "FedNPG-ADMM (arXiv 2310.19807), natural gradients without their matrices, in rounds",
	protocol.FedNPG:     "FedNPG by distributed conjugate gradient, the exact baseline of FedNPG-ADMM, in rounds",
	protocol.AFedPG:     "AFedPG (arXiv 2404.08003), asynchronous, with momentum and lookahead at the server",
	protocol.FedPG:      "FedPG, the step of AFedPG on the mean gradient of all agents, in rounds",
	protocol.Vanilla:    "asynchronous policy gradient with momentum: AFedPG without lookahead",
	protocol.A3C:        "A3C (arXiv 1602.01783), every gradient through a shared RMSProp",
	protocol.FedPPO:     "FedPPO, local PPO and the mean of the weights, in rounds",
	protocol.FedAvg:     "FedAvg (arXiv 1602.05629), local training and the mean of the weights by samples, in rounds",
}

// title names the algorithm. With AdamW at the server nothing is left of the method's own step.
func (o *Options) title() string {
	switch {
	case !o.adaptive():
		return titles[o.Method]
	case protocol.Asynchronous(o.Method):
		return o.Method + " with AdamW at the server: asynchronous policy gradient, a step for every gradient"
	default:
		return o.Method + " with AdamW at the server: a step on the mean gradient of all agents, in rounds"
	}
}

// adaptive reports whether the server steps by AdamW.
func (o *Options) adaptive() bool { return o.Rule != nil && *o.Rule == protocol.AdamW }

// parameters is d, 0 where the task cannot be made.
func (o *Options) parameters() int {
	if o.world == nil {
		defer o.Close()
	}
	t, err := o.task()
	if err != nil {
		return 0
	}
	return len(t.Start())
}

// algorithm has a line for each formula.
func (o *Options) algorithm(d int) string {
	switch o.Method {
	case protocol.AFedPG, protocol.FedPG, protocol.Vanilla:
		return o.momentumText(d)
	case protocol.FedNPGADMM:
		return o.admmText() + o.trustText()
	case protocol.FedNPG:
		return fmt.Sprintf("  agents: g_i = gradient at θ, then H_i·v for each v that the server sends\n"+
			"  server: solves (Σp_iH_i + %v·I)·y = Σp_ig_i by at most %d iterations, to %v of the residual\n",
			*o.Damping, *o.CG.Iters, *o.CG.Tol) + o.trustText()
	case protocol.A3C:
		return fmt.Sprintf("  server, for each g:  s ← 0.99·s + 0.01·g²;  θ ← θ + %v·g/(√s + 1e-05)\n", *o.LR)
	}
	return o.localText()
}

func (o *Options) momentumText(d int) string {
	from := "each gradient g, made at version k′"
	if o.Method == protocol.FedPG {
		from = "each mean gradient g = Σp_ig_i of a round"
	}
	if *o.Rule == protocol.AdamW {
		return fmt.Sprintf("  server, for %s:\n  AdamW on -g in float32, as in training: lr %v after %s of warm-up, "+
			"betas %v and %v, weight decay %v, gradient norm at most %v\n", from, *o.LR,
			recipe.Count(*o.AdamW.Warmup, "step"), *o.AdamW.Beta1, *o.AdamW.Beta2, *o.AdamW.WeightDecay,
			*o.AdamW.MaxNorm)
	}
	alpha, eta := "", fmt.Sprintf("%.4g", o.Length(d))
	switch federated.ScheduleKind(*o.Schedule) {
	case federated.Global:
		alpha, eta = "(k′+1)^(-4/5)", eta+"/(k+1)"
	case federated.FOSP:
		alpha, eta = "(k′+1)^(-4/7)", eta+"·(k+1)^(-5/7)"
	default:
		alpha = fmt.Sprint(*o.Alpha)
	}
	ahead := "θ̃ = θ, without lookahead"
	if o.Method != protocol.Vanilla {
		ahead = "θ̃ = θ + ((1-α)/α)·(last step of θ)"
	}
	how := fmt.Sprintf("lr %v·sqrt(%d)", *o.LR, d)
	if *o.Rate == "published" {
		how = "the published rate to the letter"
	}
	return fmt.Sprintf("  server, for %s:\n  d ← (1-α)·d + α·g with α = %s;  θ ← θ + η·d/‖d‖ with η = %s (%s)\n"+
		"  agents work at %s\n", from, alpha, eta, how, ahead)
}

func (o *Options) admmText() string {
	start := "from the y_i of before"
	if *o.CG.Start == "zero" {
		start = "from 0"
	}
	absent := fmt.Sprintf("who is absent counts with what it sent last, for %s", recipe.Count(*o.Forget, "round"))
	sent := fmt.Sprintf("u_i = y_i + λ_i/%v", *o.Rho)
	if *o.Absent == string(federated.Drop) {
		absent, sent = "only those present count", "u_i = y_i"
	}
	return fmt.Sprintf("  agents: λ_i ← λ_i + %v·(y_i - y);  y_i ← (H_i + (%v + %v)·I)⁻¹(g_i - λ_i + %v·y);  "+
		"send %s and g_i\n"+
		"  solved by at most %s of conjugate gradient %s, to %v of the residual; %s a round\n"+
		"  server: y ← Σp_iu_i, g ← Σp_ig_i; %s\n", *o.Rho, *o.Damping, *o.Rho, *o.Rho, sent,
		recipe.Count(*o.CG.Iters, "iteration"), start, *o.CG.Tol, recipe.Count(*o.Inner, "step"), absent)
}

// trustText is the step along y.
func (o *Options) trustText() string {
	step := fmt.Sprintf("θ ← θ + s·y with s = %v·sqrt(2·%v/gᵀy)", *o.Eta, *o.Delta)
	if *o.Step == string(federated.Fixed) {
		return fmt.Sprintf("  step: θ ← θ + %v·y\n", *o.Eta)
	}
	if *o.LineSearch == "on" {
		return fmt.Sprintf("  step: %s·%v^j, the first j of 0 to %d with mean KL at most %v and a gain\n", step,
			federated.Shrink, federated.Tries-1, *o.Delta)
	}
	return fmt.Sprintf("  step: %s, without a line search\n", step)
}

func (o *Options) localText() string {
	t := o.Local
	what := fmt.Sprintf("PPO on their samples, ratio clipped at %v", *t.Clip)
	switch o.Workload {
	case CIRLName:
		what = fmt.Sprintf("GRPO on their completions, ratio clipped at %v", *t.Clip)
	case MaPPOName:
		what = "the loss on their pairs"
	}
	return fmt.Sprintf("  agents: %s, %s of minibatches of %d, Adam at %v; send Δ_i, the change of the weights\n"+
		"  server: θ ← θ + Σp_iΔ_i\n", what, recipe.Count(*t.Epochs, "epoch"), *t.Minibatch, *t.LR)
}

// rounds says who takes part.
func (o *Options) rounds() string {
	agents := recipe.Count(o.Agents, "agent")
	if protocol.Asynchronous(o.Method) {
		return fmt.Sprintf("  %s, none waits for another\n", agents)
	}
	weights := map[string]string{"equal": "equal weights", "samples": "weights by samples"}[*o.Weights]
	wait := "a round waits for all of them"
	if *o.Deadline > 0 {
		wait = fmt.Sprintf("a round closes after %v if a share of %v of them has answered", *o.Deadline, *o.Quorum)
	}
	return fmt.Sprintf("  %s with %s, a share of %v of them in a round; %s\n", agents, weights, *o.Select, wait)
}

func (o *Options) guard() string {
	clip := "no vector is shortened"
	if o.Clip > 0 {
		clip = fmt.Sprintf("a vector longer than %v times the median of the last 20 is shortened to that", o.Clip)
	}
	if protocol.Asynchronous(o.Method) {
		clip += fmt.Sprintf("; a delay above %d is refused", o.Oldest())
	}
	return "  guard: " + clip + "\n" + o.privacy()
}

// traffic says what an agent sends and is sent.
func (o *Options) traffic(d int) string {
	t, per, matrices := federated.OneVector(d), "a round", ""
	if o.LineSearch != nil {
		matrices = fmt.Sprintf("\n  FedNPG as published sends its matrices: %d bytes up a round, %d as triangles",
			federated.FedNPGMatrices(d).Bytes(o.Width()).Up, federated.FedNPGTriangle(d).Bytes(o.Width()).Up)
	}
	switch {
	case o.Method == protocol.FedNPGADMM:
		t = federated.FedNPGADMM(d, *o.Inner, *o.LineSearch == "on")
	case o.Method == protocol.FedNPG:
		t = federated.FedNPGProducts(d, *o.CG.Iters)
		per = "a round at most, and a line search's direction and 20 numbers"
	case protocol.Asynchronous(o.Method):
		per = "an update"
	}
	bytes := t.Bytes(o.Width())
	if o.Secure {
		bytes.Up = o.maskedBytes(t)
	}
	return fmt.Sprintf("%s, %s parameters; each agent sends %d bytes and is sent %d, %s, headers apart%s", o.Wire,
		fmt.Sprint(d), bytes.Up, bytes.Down, per, matrices)
}

func (o *Options) training() string {
	var limits []string
	if most := o.Most(); most > 0 {
		limits = append(limits, o.count(most))
	}
	if o.Samples > 0 {
		limits = append(limits, fmt.Sprintf("%d samples", o.Samples))
	}
	return "training: ends after " + strings.Join(limits, " or ") + "\n"
}

func (o *Options) describeWorkload() string {
	switch o.Workload {
	case CIRLName:
		return o.CIRL.describe()
	case MaPPOName:
		return o.MaPPO.describe()
	case Quadratic:
		return fmt.Sprintf("a quadratic function of %s, noise %v", recipe.Count(o.Quadratic.Size, "parameter"),
			o.Quadratic.Noise)
	}
	c := o.Control
	advantages := map[string]string{control.GAE: fmt.Sprintf("GAE(%v, %v)", c.Gamma, c.Lambda),
		control.Causal: fmt.Sprintf("rewards from the step on, discounted by %v", c.Gamma),
		control.Letter: fmt.Sprintf("rewards from the step on, discounted by %v from the trajectory's start", c.Gamma),
	}[c.Returns]
	text := fmt.Sprintf("%s, hidden layers %v, %d steps a batch, advantages by %s, each agent with a critic of its own",
		c.Environment, c.Hidden, c.Steps, advantages)
	return text
}

// simulator is a line where the environment needs one.
func (o *Options) simulator() string {
	if s := control.Simulator(o.Control.Environment); s != "" && o.Workload == Control {
		return "simulator: " + s + "\n"
	}
	return ""
}

// departures say where the method is not its paper's to the letter.
func (o *Options) departures() string {
	var all []string
	add := func(when bool, text string) {
		if when {
			all = append(all, text)
		}
	}
	admm := o.Method == protocol.FedNPGADMM
	add(o.Rate != nil && *o.Rate == "adam",
		"rate: adam (published: η is the rate itself, which moves θ by 0.3 in a run)")
	add(o.adaptive(), "rule: adamw (paper: a normalised step, for afedpg with momentum and lookahead)")
	add(o.Method == protocol.AFedPG && o.Alpha != nil && *o.Alpha != 0.001, "alpha (published: 0.001)")
	add(admm && *o.Absent == string(federated.Hold), "absent: hold (paper: the mean of those present)")
	add(admm && *o.Damping > 0, "damping (paper: the rounds end at H⁻¹g, which ρ does not damp)")
	add(admm && *o.LineSearch == "on", "line_search: on (paper: none in Algorithm 1)")
	add(o.Clip > 0, "clip (paper: every agent is trusted)")
	add(o.Method == protocol.FedNPG, "damping and products in the place of matrices (paper: matrices are sent)")
	if len(all) == 0 {
		return "departures: none\n"
	}
	return "departures: " + strings.Join(all, "; ") + "\n"
}
