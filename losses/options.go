package losses

import (
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/internal/config"
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
	Type  string  `yaml:"type" want:"dpo|ipo|simpo|cpo|hinge|robust|rpo|orpo|kto" default:"dpo" flag:"loss" help:"the loss:"`
	Prior string  `yaml:"prior" want:"mappo|none" default:"mappo" paper:"mappo" flag:"prior" help:"mappo: the rejected answer weighs the pair's reward gap; none: the plain loss"`
	Beta  float64 `yaml:"beta" want:">0" default:"0.1" help:"β, the strength of the implicit KL penalty; orpo: the weight of the odds ratio"`

	Gamma          *float64 `yaml:"gamma,omitempty" want:">=0" of:"simpo=1" help:"target margin γ"`
	Lambda         *float64 `yaml:"lambda,omitempty" want:">=0" of:"cpo=0.2 rpo=1" help:"λ, the weight of the chosen answer's negative log-likelihood"`
	LabelSmoothing *float64 `yaml:"label_smoothing,omitempty" want:">=0 <0.5" of:"dpo=0 simpo=0 cpo=0 robust=0.1" help:"ε, the share of pairs that are labelled the wrong way round"`
	Logps          *string  `yaml:"logps,omitempty" want:"mean|sum" of:"ipo=mean" help:"log-probs of an answer: mean (per token), or sum (the paper's equation to the letter)"`
	NLL            *string  `yaml:"nll,omitempty" want:"mean|sum" of:"cpo=mean rpo=mean orpo=mean" help:"log-likelihood: mean (per token), or sum (cpo: the paper's equation to the letter)"`

	DesirableWeight   *float64 `yaml:"desirable_weight,omitempty" want:">0" of:"kto=1" help:"weight of the loss of desirable answers"`
	UndesirableWeight *float64 `yaml:"undesirable_weight,omitempty" want:">0" of:"kto=1" help:"weight of the loss of undesirable answers"`
}

// Defaults are the paper's options of a loss, with its prior on, where it has one; where the paper leaves a choice
// open, the project's.
// An unknown loss gets only what all losses share, and Check names the fault.
func Defaults(loss string) Options {
	o := config.DefaultOf[Options](loss)
	if o.Type = loss; withoutPrior[loss] != "" {
		o.Prior = None
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
	faults = append(faults, fault.Unused(o, o.Type)...)
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
	return fmt.Sprintf("%s prior=%s beta=%s gamma=%v lambda=%v smoothing=%v logps=%s nll=%s weights=%v,%v", o.Type, o.Prior,
		number(o.Beta), value(o.Gamma), value(o.Lambda), value(o.LabelSmoothing), mode(o.Logps), mode(o.NLL),
		value(o.DesirableWeight), value(o.UndesirableWeight))
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
