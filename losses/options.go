package losses

import (
	"cmp"
	"fmt"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
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
// open, the project's. An unknown loss gets only what all losses share, and Check names the fault.
func Defaults(loss string) Options {
	o := config.DefaultOf[Options](loss)
	if o.Type = loss; o.kind().plain != "" {
		o.Prior = None
	}
	return o
}

// Defaults sets the defaults of the loss that is given.
func (o *Options) Defaults(g *config.Given) { *o = Defaults(cmp.Or(g.Text("type"), o.Type)) }

// NeedsGap says that the loss needs the reward gap of every pair.
func (o Options) NeedsGap() bool { return o.Prior == MaPPO }

// Check names every fault of the options. An option that the loss does not use is one: peers shipped options that
// silently do nothing.
func (o Options) Check() []fault.Fault {
	faults := fault.Check(o)
	if o.kind().word == "" {
		return faults
	}
	faults = append(faults, fault.Unused(o, o.Type)...)
	if why := o.kind().plain; why != "" && o.Prior == MaPPO {
		faults = append(faults, fault.Fault{Key: "prior", Value: o.Prior, Problem: o.Type + why + ": want none"})
	}
	return faults
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
