package protocol

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// The methods.
const (
	FedNPGADMM = "fednpg-admm" // natural gradients by ADMM, synchronous
	FedNPG     = "fednpg"      // natural gradients by distributed conjugate gradient: the exact baseline
	AFedPG     = "afedpg"      // asynchronous, momentum and lookahead at the server
	FedPG      = "fedpg"       // AFedPG's step on the mean gradient of all agents, synchronous
	Vanilla    = "vanilla"     // AFedPG without lookahead
	A3C        = "a3c"         // every gradient through RMSProp
	FedPPO     = "fedppo"      // local PPO, weights averaged
	FedAvg     = "fedavg"      // local training, weights averaged by samples
)

// Methods lists the methods, in the order in which messages name them.
func Methods() []string {
	return []string{FedNPGADMM, FedNPG, AFedPG, FedPG, Vanilla, A3C, FedPPO, FedAvg}
}

// groups are the methods that an option's tag "of" names together.
var groups = map[string][]string{
	"async":    {AFedPG, Vanilla, A3C},
	"sync":     {FedNPGADMM, FedNPG, FedPG, FedPPO, FedAvg},
	"trust":    {FedNPGADMM, FedNPG},
	"momentum": {AFedPG, FedPG, Vanilla},
	"local":    {FedPPO, FedAvg},
}

// Asynchronous reports whether the server steps on each update as it comes, without rounds.
func Asynchronous(method string) bool { return slices.Contains(groups["async"], method) }

// Options choose the method. An option that only some methods use is a pointer with their names in its tag "of": nil
// means "not given", and giving one to a method that does not use it is a fault. Start from Defaults.
type Options struct {
	Method string `yaml:"method" want:"fednpg-admm|fednpg|afedpg|fedpg|vanilla|a3c|fedppo|fedavg" default:"afedpg" flag:"method" help:"the method:"`
	Agents int    `yaml:"agents" want:">=1 <=4096" default:"4" flag:"agents" help:"number of agents"`
	Wire   string `yaml:"wire" want:"float32|float64" default:"float32" flag:"wire" help:"type of the numbers that travel:"`

	// The run ends at the first of these limits.
	Rounds  *int `yaml:"rounds,omitempty" want:">=0" zero:"no limit" of:"sync" default:"50" flag:"rounds" help:"end after this many rounds, of synchronous methods (50); 0: no limit"`
	Updates *int `yaml:"updates,omitempty" want:">=0" zero:"no limit" of:"async" default:"200" flag:"updates" help:"end after this many updates, of asynchronous methods; 0: no limit"`
	Samples int  `yaml:"samples" want:">=0" zero:"no limit" flag:"samples" help:"end after this many samples of all agents; 0: no limit"`

	// The step of afedpg, fedpg, vanilla, and a3c's rate.
	LR       *float64 `yaml:"lr,omitempty" want:">0" of:"momentum a3c" default:"1e-3" flag:"lr" help:"learning rate of the server's step"`
	Rate     *string  `yaml:"rate,omitempty" want:"adam|published" of:"momentum" default:"adam" paper:"published" help:"adam: the step's numbers have the root mean square lr, as an Adam step has; published: the step has the length lr"`
	Schedule *string  `yaml:"schedule,omitempty" want:"constant|global|fosp" of:"momentum" default:"constant" paper:"constant" help:"constant; global or fosp: the falling α and η of the paper's two theorems"`
	Alpha    *float64 `yaml:"alpha,omitempty" want:">0 <=1" of:"momentum" default:"0.2" paper:"0.001" help:"schedule constant: weight of a new gradient in the direction; the lookahead is (1-α)/α steps"`

	// The rule of afedpg, fedpg and vanilla: with adamw, rate, schedule and alpha have no effect.
	Rule  *string  `yaml:"rule,omitempty" want:"normalized|adamw" of:"momentum" default:"normalized" paper:"normalized" help:"normalized: AFedPG's step; adamw: the trainer's AdamW at the server, which language models have by default"`
	AdamW Adaptive `yaml:"adamw"`

	Tensors []Tensor `yaml:"-"` // the parameters in their order in θ, which rule adamw reads; nil: one tensor

	ValidateEvery int `yaml:"-"` // an agent's batches from one validation to the next; 0: no validation

	// The step of fednpg-admm and fednpg.
	Rho        *float64 `yaml:"rho,omitempty" want:">0" of:"fednpg-admm" default:"0.1" help:"ADMM's penalty, which damps each agent's solve too"`
	Damping    *float64 `yaml:"damping,omitempty" want:">=0" of:"trust" default:"0.1" paper:"0" help:"added to each agent's Fisher matrix (fednpg: 0.1; fednpg-admm: 0, as in Algorithm 1)"`
	Delta      *float64 `yaml:"delta,omitempty" want:">0" of:"trust" default:"0.01" paper:"0.01" help:"KL radius of the trust region"`
	Eta        *float64 `yaml:"eta,omitempty" want:">0" of:"trust" default:"1" help:"factor of the step"`
	Step       *string  `yaml:"step,omitempty" want:"trust|fixed" of:"trust" default:"trust" paper:"trust" help:"trust: η·sqrt(2δ/gᵀy)·y; fixed: η·y, the step that the theorem is about"`
	LineSearch *string  `yaml:"line_search,omitempty" want:"on|off" of:"trust" default:"on" paper:"off" help:"off: as in Algorithm 1; on: all agents evaluate ten steps, and the first within the radius that gains is taken"`
	Inner      *int     `yaml:"inner,omitempty" want:">=1" of:"fednpg-admm" default:"1" paper:"1" help:"ADMM steps in a round; each more sends two vectors more"`
	Absent     *string  `yaml:"absent,omitempty" want:"hold|drop" of:"fednpg-admm" default:"hold" paper:"drop" help:"agents that miss a round count with what they sent last (hold), or not at all (drop: the letter of the paper's agent selection)"`
	Forget     *int     `yaml:"forget,omitempty" want:">=1" of:"fednpg-admm" default:"10" help:"hold forgets an agent that has missed this many rounds"`
	CG         CG       `yaml:"cg"`

	Theorem federated.Theorem `yaml:"theorem"` // its step is the default of eta with step fixed

	// Rounds of synchronous methods.
	Weights  *string        `yaml:"weights,omitempty" want:"equal|samples" of:"sync" default:"equal" help:"of the agents in the mean: equal, or by samples"`
	Select   *float64       `yaml:"select,omitempty" want:">0 <=1" of:"sync" default:"1" help:"share of the agents that take part in a round, drawn from the seed"`
	Quorum   *float64       `yaml:"quorum,omitempty" want:">0 <=1" of:"sync" default:"0.5" help:"share of these that closes a round at the deadline"`
	Deadline *time.Duration `yaml:"deadline,omitempty" want:">=0" zero:"wait for all" of:"sync" default:"0s" paper:"0s" help:"time after which a round closes without the late, virtual in a simulation; 0s: it waits for all"`

	// What the server accepts.
	MaxDelay *int    `yaml:"max_delay,omitempty" want:">=0" zero:"4 for each agent" of:"async" default:"0" help:"a gradient of older parameters than this many versions is refused; 0: 4 for each agent"`
	Clip     float64 `yaml:"clip" want:">=0" zero:"off" default:"3" paper:"0" help:"a longer vector than this, times the median of the last 20, is shortened; 0: off"`

	// Secure sums of methods in rounds: the server sees sums of masked updates alone, see [federated.Sum]. Each vector is
	// first shortened to the norm Privacy.Clip, and gets its share of Gaussian noise.
	Secure  bool              `yaml:"secure" paper:"false" help:"true: the server sees sums of updates alone, which takes a method in rounds, absent drop and clip 0"`
	Privacy federated.Privacy `yaml:"privacy"`

	Local Training `yaml:"local"`
}

// Adaptive are the constants of rule adamw: the trainer's defaults, and ci-rl's weight decay.
type Adaptive struct {
	Warmup      *int     `yaml:"warmup_steps,omitempty" want:">=0" of:"momentum" default:"0" help:"linear rise of lr from 0"`
	Beta1       *float64 `yaml:"beta1,omitempty" want:">=0 <1" of:"momentum" default:"0.9" help:"decay of the first moment"`
	Beta2       *float64 `yaml:"beta2,omitempty" want:">=0 <1" of:"momentum" default:"0.999" help:"decay of the second moment"`
	Epsilon     *float64 `yaml:"epsilon,omitempty" want:">0" of:"momentum" default:"1e-8" help:"added to the root of the second moment"`
	WeightDecay *float64 `yaml:"weight_decay,omitempty" want:">=0" of:"momentum" default:"0.01" help:"decoupled; norms and biases are exempt"`
	MaxNorm     *float64 `yaml:"max_grad_norm,omitempty" want:">=0" zero:"off" of:"momentum" default:"1" help:"clip the norm of the whole gradient; 0: off"`
}

func (a Adaptive) rule() adamw.Options {
	return adamw.Options{Beta1: *a.Beta1, Beta2: *a.Beta2, Epsilon: *a.Epsilon, WeightDecay: *a.WeightDecay,
		MaxNorm: *a.MaxNorm}
}

// unusedByRule reports whether the rule does not use an option that the method has.
func (o Options) unusedByRule(key string) bool {
	if o.Rule != nil && *o.Rule == AdamW {
		return key == "rate" || key == "schedule" || key == "alpha"
	}
	return strings.HasPrefix(key, "adamw.")
}

// CG is conjugate gradient: at the agents of fednpg-admm, by all agents together in fednpg.
type CG struct {
	Iters *int     `yaml:"iters,omitempty" want:">=1" of:"trust" default:"15" help:"most products with the Fisher matrix"`
	Tol   *float64 `yaml:"tol,omitempty" want:">0" of:"trust" default:"1e-10" help:"residual over the right side at which it stops"`
	Start *string  `yaml:"start,omitempty" want:"previous|zero" of:"fednpg-admm" default:"previous" help:"at the agent's previous direction, or at zero"`
}

// Training is how agents train for themselves.
type Training struct {
	Epochs    *int     `yaml:"epochs,omitempty" want:">=1" of:"local" default:"10" help:"passes over the samples of a round"`
	Minibatch *int     `yaml:"minibatch,omitempty" want:">=1" of:"local" default:"64" help:"samples of a step"`
	LR        *float64 `yaml:"lr,omitempty" want:">0" of:"local" default:"3e-4" help:"learning rate of Adam"`
	Clip      *float64 `yaml:"clip,omitempty" want:">0" of:"local" default:"0.2" help:"bound of PPO's ratio"`
	Entropy   *float64 `yaml:"entropy,omitempty" want:">=0" of:"local" default:"0" help:"weight of the policy's entropy"`
}

// methodDefaults are the defaults in which a method differs from the tags.
var methodDefaults = map[string][]string{
	// Algorithm 1 to the letter, where nobody is absent: docs/federated.md has what options bring
	FedNPGADMM: {"damping=0", "line_search=off", "clip=0"},
	FedPG:      {"lr=2e-3"}, // a step has the gradients of all agents, and there are fewer steps
	FedAvg:     {"weights=samples"},
}

// Defaults are a method's options: the papers', and where they leave a choice open, the project's (docs/federated.md
// lists these). changes are other defaults, such as "rule=adamw". An unknown method gets only what all methods share,
// and Check names the fault.
func Defaults(method string, changes ...string) Options {
	o := config.Default[Options](slices.Concat(methodDefaults[method], changes)...)
	o.Method = method
	eachOption(reflect.ValueOf(&o).Elem(), "", func(key string, users []string, p reflect.Value) {
		if !slices.Contains(users, method) || o.unusedByRule(key) {
			p.SetZero()
		}
	})
	return o
}

// eachOption calls do with every option that only some methods use: its key, its tag "of" and its pointer.
func eachOption(v reflect.Value, prefix string, do func(key string, users []string, p reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case f.Type.Kind() == reflect.Struct:
			eachOption(v.Field(i), prefix+name+".", do)
		case f.Tag.Get("of") != "":
			do(prefix+name, methodsOf(f.Tag.Get("of")), v.Field(i))
		}
	}
}

// methodsOf are the methods of a tag, in the order of Methods.
func methodsOf(tag string) (all []string) {
	for _, m := range Methods() {
		if slices.ContainsFunc(strings.Fields(tag), func(name string) bool {
			return name == m || slices.Contains(groups[name], m)
		}) {
			all = append(all, m)
		}
	}
	return all
}

// Foreign are the keys of options that a method does not use.
func Foreign(method string) (keys []string) {
	eachOption(reflect.ValueOf(Options{}), "", func(key string, users []string, _ reflect.Value) {
		if !slices.Contains(users, method) {
			keys = append(keys, key)
		}
	})
	return keys
}

// Check names every fault of the options. An option that the method does not use is one.
func (o Options) Check() []fault.Fault {
	faults := fault.Faults(fault.Check(o))
	if !slices.Contains(Methods(), o.Method) {
		return faults
	}
	eachOption(reflect.ValueOf(o), "", func(key string, users []string, p reflect.Value) {
		switch used := slices.Contains(users, o.Method); {
		case !used && !p.IsNil():
			do := map[bool]string{true: "does", false: "do"}[len(users) == 1]
			faults.Add(key, p.Interface(), "%s does not use it, only %s %s; remove it", o.Method, fault.And(users), do)
		case used && o.unusedByRule(key):
			if !p.IsNil() {
				faults.Add(key, p.Interface(), "rule %s does not use it; remove it", *o.Rule)
			}
		case used && p.IsNil() && !(key == "alpha" && o.Schedule != nil && *o.Schedule != string(federated.Constant)):
			faults = append(faults, fault.Fault{Key: key, Value: "is missing", Problem: o.Method + " needs it"})
		}
	})
	if len(faults) == 0 {
		o.checkTogether(&faults)
	}
	return faults
}

// checkTogether looks at options that depend on each other: what secure sums cannot do, and what would not be covered
// by the privacy account, is a fault too.
func (o Options) checkTogether(faults *fault.Faults) {
	is := func(p *string, value string) bool { return p != nil && *p == value }
	p, limit, th := o.Privacy, "rounds", o.Theorem
	if Asynchronous(o.Method) {
		limit = "updates"
	}
	for _, c := range []struct {
		wrong bool
		key   string
		value any
		say   string
	}{
		{o.Alpha != nil && !is(o.Schedule, string(federated.Constant)), "alpha", o.Alpha,
			"the schedule has its own α; remove it"},
		{is(o.Step, "fixed") && is(o.LineSearch, "on"), "line_search", "on",
			"step fixed has the length that the theorem says: want off, or step trust"},
		{th != federated.Theorem{} && !is(o.Step, "fixed"), "theorem.g", th.G, "the theorem is about step fixed: want step fixed"},
		{th != federated.Theorem{} && (th.G*th.Mu*th.L == 0 || th.Mu > th.G*th.G), "theorem.mu", th.Mu,
			"want theorem.g, mu and l above 0, and mu at most g²"},
		{is(o.Absent, "drop") && *o.Forget != *Defaults(o.Method).Forget, "forget", o.Forget,
			"absent drop remembers no agent; remove it"},
		{!o.Secure && p.Clip+p.Noise > 0, "privacy.noise", p.Noise,
			fmt.Sprintf("with privacy.clip %g: one agent's share of the noise hides little: want secure true", p.Clip)},
		{o.Secure && Asynchronous(o.Method), "secure", true,
			o.Method + " steps on single updates, which the server must see: want a method in rounds, " +
				fault.Or(groups["sync"])},
		{o.Secure && o.Clip > 0, "clip", o.Clip,
			"the server sees no single update with secure: want 0, and privacy.clip for the agents' own bound"},
		{o.Secure && is(o.Absent, string(federated.Hold)), "absent", o.Absent,
			"with secure the server has no single update to hold: want drop"},
		{o.Secure && o.Select != nil && shareOf(*o.Select, o.Agents) < minSumAgents, "select", o.Select,
			fmt.Sprintf("a secure sum needs 2 agents: that share of %d is less", o.Agents)},
		{o.Secure && p.Noise > 0 && p.Clip == 0, "privacy.clip", 0,
			"privacy.noise is in units of it: want a number above 0"},
		{o.Secure && p.Noise > 0 && is(o.Weights, "samples"), "weights", o.Weights,
			"privacy.noise covers agents of one weight: want equal"},
		{o.Secure && p.Noise > 0 && is(o.LineSearch, "on"), "line_search", "on",
			"the agents' answers have no noise: want off with privacy.noise"},
		{o.Limit() == 0 && o.Samples == 0, limit, 0,
			fmt.Sprintf("the run would never end: want %s or samples above 0", limit)},
	} {
		if c.wrong {
			faults.Add(c.key, reflect.Indirect(reflect.ValueOf(c.value)).Interface(), "%s", c.say)
		}
	}
}

// Limit is the limit of rounds or updates, 0: none.
func (o Options) Limit() int {
	if Asynchronous(o.Method) {
		return *o.Updates
	}
	return *o.Rounds
}

// DelayLimit is the largest delay of an update that counts.
func (o Options) DelayLimit() int {
	switch {
	case !Asynchronous(o.Method):
		return 1
	case *o.MaxDelay == 0:
		return 4 * o.Agents
	}
	return *o.MaxDelay
}

// StepLength is η_0 of a server with d parameters.
func (o Options) StepLength(d int) float64 {
	if *o.Rate == "adam" {
		return federated.EtaOfRate(*o.LR, d)
	}
	return *o.LR
}

// schedule is AFedPG's, for d parameters.
func (o Options) schedule(d int) federated.Schedule {
	s := federated.Schedule{Kind: federated.ScheduleKind(*o.Schedule), Eta: o.StepLength(d)}
	if o.Alpha != nil {
		s.Alpha = *o.Alpha
	}
	return s
}

// shareOf is how many of the agents a share is, at least one.
func shareOf(share float64, agents int) int { return max(1, int(math.Round(share*float64(agents)))) }

// localTraining is what agents are asked to train.
func (o Options) localTraining() Local {
	t := o.Local
	return Local{Epochs: *t.Epochs, Minibatch: *t.Minibatch, LR: *t.LR, Clip: *t.Clip, Entropy: *t.Entropy}
}

// roundToWire rounds v to the type that travels. The result may share v.
func (o Options) roundToWire(v []float64) []float64 {
	if o.Wire != "float32" {
		return v
	}
	v = slices.Clone(v)
	federated.RoundFloat32(v)
	return v
}

// fitsWire reports whether the wire has these numbers: parameters that overflow on it would end every agent.
func (o Options) fitsWire(v []float64) bool { return federated.Finite(o.roundToWire(v)) }

// Width is the bytes of a number on the wire.
func (o Options) Width() int {
	if o.Wire == "float32" {
		return 4
	}
	return 8
}
