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
func Types() []string { return []string{DPO, IPO, SimPO, CPO} }

// Options choose the objective. An option that only some losses use is a pointer: nil means "not given", and giving one
// to a loss that does not use it is a fault. Start from Defaults.
type Options struct {
	Type  string  `yaml:"type" want:"dpo|ipo|simpo|cpo"`
	Prior string  `yaml:"prior" want:"mappo|none"`
	Beta  float64 `yaml:"beta" want:">0"` // β
	// simpo: the target margin γ
	Gamma *float64 `yaml:"gamma,omitempty" want:">=0"`
	// cpo: the weight λ of the chosen response's NLL
	Lambda *float64 `yaml:"lambda,omitempty" want:">=0"`
	// dpo, simpo, cpo: ε, the share of pairs taken as flipped
	LabelSmoothing *float64 `yaml:"label_smoothing,omitempty" want:">=0 <0.5"`
	// ipo: mean (per token) or sum (the paper's equation to the letter)
	Logps *string `yaml:"logps,omitempty" want:"mean|sum"`
	// cpo: mean (per token) or sum (the paper's equation to the letter)
	NLL *string `yaml:"nll,omitempty" want:"mean|sum"`
}

// Defaults are the paper's options of a loss, with its prior on; where the paper leaves a choice open, the project's.
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
	}
	return o
}

// ReferenceFree says that the loss needs no reference model (simpo, cpo).
func (o Options) ReferenceFree() bool { return o.Type == SimPO || o.Type == CPO }

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
	return faults
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
		float("lambda", o.Lambda, CPO),
		float("label_smoothing", o.LabelSmoothing, DPO, SimPO, CPO),
		text("logps", o.Logps, IPO),
		text("nll", o.NLL, CPO),
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
	return o.Type == SimPO || o.Type == IPO && mode(o.Logps) == Mean
}

// scale is s of the package's formula before any division by the length. ipo's β is in its offset only.
func (o Options) scale() float64 {
	if o.Type == IPO {
		return 1
	}
	return o.Beta
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
