package losses

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// The losses.
const (
	DPO   = "dpo"
	IPO   = "ipo"
	SimPO = "simpo"
	CPO   = "cpo"

	Hinge  = "hinge"  // a margin of 1 is enough
	Robust = "robust" // dpo without the bias of labels that are wrong with a known probability
	RPO    = "rpo"    // dpo, and the chosen response's likelihood
	ORPO   = "orpo"   // the chosen response's likelihood, and the odds of both

	KTO = "kto" // single responses that are desirable or not, in the place of pairs
)

// The priors.
const (
	None  = "none"  // the plain loss: Δr = 1
	MaPPO = "mappo" // the rejected response weighs Δr, the reward gap of its pair
)

// How a response's log-probability is taken.
const (
	Sum  = "sum"
	Mean = "mean" // per token
)

// Types lists the losses, in the order in which messages name them.
func Types() []string { return []string{DPO, IPO, SimPO, CPO, Hinge, Robust, RPO, ORPO, KTO} }

// Unpaired says that the loss is of single responses (kto): UnpairedGraph and UnpairedHost compute it, and not Graph
// and Host.
func (o Options) Unpaired() bool { return o.Type == KTO }

// ofPaper says whether the paper of MaPPO has the loss.
func (o Options) ofPaper() bool { return slices.Contains(Types()[:4], o.Type) }

// Options choose the objective. An option that only some losses use is a pointer: nil means "not given", and giving one
// to a loss that does not use it is a fault. Start from Defaults.
type Options struct {
	Type  string  `yaml:"type" want:"dpo|ipo|simpo|cpo|hinge|robust|rpo|orpo|kto"`
	Prior string  `yaml:"prior" want:"mappo|none"`
	Beta  float64 `yaml:"beta" want:">0"` // β; orpo: the weight of the odds ratio
	// simpo: the target margin γ
	Gamma *float64 `yaml:"gamma,omitempty" want:">=0"`
	// cpo, rpo: the weight λ of the chosen response's NLL
	Lambda *float64 `yaml:"lambda,omitempty" want:">=0"`
	// dpo, simpo, cpo, robust: ε, the share of pairs taken as flipped
	LabelSmoothing *float64 `yaml:"label_smoothing,omitempty" want:">=0 <0.5"`
	// ipo: mean (per token) or sum (the paper's equation to the letter)
	Logps *string `yaml:"logps,omitempty" want:"mean|sum"`
	// cpo, rpo, orpo: mean (per token) or sum (the paper's equation of cpo to the letter)
	NLL *string `yaml:"nll,omitempty" want:"mean|sum"`
	// kto: the weights of the losses of desirable and undesirable responses
	DesirableWeight   *float64 `yaml:"desirable_weight,omitempty" want:">0"`
	UndesirableWeight *float64 `yaml:"undesirable_weight,omitempty" want:">0"`
}

// Defaults are the paper's options of a loss, with its prior on, where it has one; where the paper leaves a choice
// open, the project's.
// An unknown loss gets only what all losses share, and Check names the fault.
func Defaults(loss string) Options {
	o := Options{Type: loss, Prior: MaPPO, Beta: 0.1}
	switch loss {
	case DPO:
		o.LabelSmoothing = new(0.0)
	case IPO:
		o.Logps = new(Mean)
	case SimPO:
		o.Gamma, o.LabelSmoothing = new(1.0), new(0.0)
	case CPO:
		o.Lambda, o.LabelSmoothing, o.NLL = new(0.2), new(0.0), new(Mean)
	case Robust:
		o.LabelSmoothing = new(0.1)
	case RPO:
		o.Lambda, o.NLL = new(1.0), new(Mean)
	case ORPO:
		o.Prior, o.NLL = None, new(Mean)
	case KTO:
		o.Prior, o.DesirableWeight, o.UndesirableWeight = None, new(1.0), new(1.0)
	}
	return o
}

// ReferenceFree says that the loss needs no reference model (simpo, cpo, orpo).
func (o Options) ReferenceFree() bool { return o.Type == SimPO || o.Type == CPO || o.Type == ORPO }

// NeedsGap says that the loss needs the reward gap of every pair.
func (o Options) NeedsGap() bool { return o.Prior == MaPPO }

// Check names every fault of the options. An option that the loss does not use is one: peers shipped options that
// silently do nothing.
func (o Options) Check() []fault.Fault {
	faults := fault.Check(o)
	if !slices.Contains(Types(), o.Type) {
		return faults
	}
	for _, s := range o.specialOptions() {
		if s.given && !slices.Contains(s.users, o.Type) {
			do := map[bool]string{true: "does", false: "do"}[len(s.users) == 1]
			faults = append(faults, fault.Fault{Key: s.key, Value: s.value,
				Problem: fmt.Sprintf("%s does not use it, only %s %s; remove it", o.Type, fault.And(s.users), do)})
		}
	}
	if why := withoutPrior[o.Type]; why != "" && o.Prior == MaPPO {
		faults = append(faults, fault.Fault{Key: "prior", Value: o.Prior, Problem: o.Type + why + ": want none"})
	}
	return faults
}

// withoutPrior says why a loss has no prior.
var withoutPrior = map[string]string{
	ORPO: " compares odds, for which the prior is not defined",
	KTO:  " learns from single responses, and the prior is the reward gap of a pair",
}

// Key is a text that differs between two options whenever their losses differ.
func (o Options) Key() string {
	parts := []string{o.Type, "prior=" + o.Prior, "beta=" + number(o.Beta)}
	for _, s := range o.specialOptions() {
		if s.given {
			parts = append(parts, s.key+"="+s.value)
		}
	}
	return strings.Join(parts, " ")
}

// specialOption is an option that only some losses use.
type specialOption struct {
	key, value string
	given      bool
	users      []string // losses that use it
}

func (o Options) specialOptions() []specialOption {
	float := func(key string, p *float64, users ...string) specialOption {
		return specialOption{key, number(value(p)), p != nil, users}
	}
	text := func(key string, p *string, users ...string) specialOption {
		return specialOption{key, mode(p), p != nil, users}
	}
	return []specialOption{
		float("gamma", o.Gamma, SimPO),
		float("lambda", o.Lambda, CPO, RPO),
		float("label_smoothing", o.LabelSmoothing, DPO, SimPO, CPO, Robust),
		text("logps", o.Logps, IPO),
		text("nll", o.NLL, CPO, RPO, ORPO),
		float("desirable_weight", o.DesirableWeight, KTO),
		float("undesirable_weight", o.UndesirableWeight, KTO),
	}
}

func value(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

func mode(p *string) string {
	if p == nil {
		return Mean
	}
	return *p
}

// perToken reports whether log-probabilities are divided by the response's length.
func (o Options) perToken() bool {
	return o.Type == SimPO || o.Type == ORPO || o.Type == IPO && mode(o.Logps) == Mean
}

// scale is s of the package's formula before any division by the length. ipo's β is in its offset only, orpo's before
// the logistic.
func (o Options) scale() float64 {
	if o.Type == IPO || o.Type == ORPO {
		return 1
	}
	return o.Beta
}

// weights are those of the function of u and of the chosen response's NLL in the loss.
func (o Options) weights() (ofU, ofNLL float64) {
	if o.Type == ORPO {
		return o.Beta, 1
	}
	return 1, value(o.Lambda)
}

// smoothing is ε of the logistic losses. robust is the loss whose expectation over labels that are wrong with
// probability ε is dpo's of the right ones, which the same formula gives with this number.
func (o Options) smoothing() float64 {
	e := value(o.LabelSmoothing)
	if o.Type == Robust {
		return -e / (1 - 2*e)
	}
	return e
}

// offset is the offset of the package's formula.
func (o Options) offset() float64 {
	switch o.Type {
	case IPO:
		return 1 / (2 * o.Beta)
	case SimPO:
		return value(o.Gamma)
	}
	return 0
}
