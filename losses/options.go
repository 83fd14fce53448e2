package losses

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
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

// Priors lists the priors.
func Priors() []string { return []string{MaPPO, None} }

// Options choose the objective. An option that only some losses use is a pointer: nil means "not given", and giving one
// to a loss that does not use it is a fault. Start from Defaults.
type Options struct {
	Type           string   `yaml:"type"`                      // dpo|ipo|simpo|cpo
	Prior          string   `yaml:"prior"`                     // mappo|none
	Beta           float64  `yaml:"beta"`                      // β > 0
	Gamma          *float64 `yaml:"gamma,omitempty"`           // simpo: target margin γ >= 0
	Lambda         *float64 `yaml:"lambda,omitempty"`          // cpo: weight λ >= 0 of the chosen response's NLL
	LabelSmoothing *float64 `yaml:"label_smoothing,omitempty"` // not ipo: ε in [0, 0.5), assumed share of swapped pairs
	Logps          *string  `yaml:"logps,omitempty"`           // ipo: mean (per token) or sum (as the paper's equation)
	NLL            *string  `yaml:"nll,omitempty"`             // cpo: mean (per token) or sum (as the paper's equation)
}

// Defaults gives the paper's options of a loss, with its prior on. Where the paper leaves a choice open, they are ours.
// An unknown loss gets only the options that all losses share.
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

// A Fault is one thing that is wrong with options.
type Fault struct {
	Key     string // YAML key, such as "beta"
	Value   string // value found
	Problem string // what is wrong with it, and the values accepted
}

func (f Fault) Error() string { return f.Key + " " + f.Value + ": " + f.Problem }

// Validate returns every fault of the options, none if they are in order.
func (o Options) Validate() []Fault {
	var v faults
	v.oneOf("type", o.Type, Types())
	v.oneOf("prior", o.Prior, Priors())
	v.check("beta", o.Beta, o.Beta > 0, "a number above 0")
	v.optional("gamma", o.Gamma, func(x float64) bool { return x >= 0 }, "0 or more")
	v.optional("lambda", o.Lambda, func(x float64) bool { return x >= 0 }, "0 or more")
	v.optional("label_smoothing", o.LabelSmoothing, func(x float64) bool { return x >= 0 && x < 0.5 }, "0 or more and below 0.5")
	v.optionalOneOf("logps", o.Logps)
	v.optionalOneOf("nll", o.NLL)
	if slices.Contains(Types(), o.Type) {
		v.unused(o)
	}
	return v
}

// Err joins what Validate returns into one error of one line, nil if there is none.
func (o Options) Err() error {
	var all []string
	for _, f := range o.Validate() {
		all = append(all, "loss."+f.Error())
	}
	if all == nil {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
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

type faults []Fault

func (v *faults) add(key, value, format string, args ...any) {
	*v = append(*v, Fault{key, value, fmt.Sprintf(format, args...)})
}

func (v *faults) oneOf(key, value string, accepted []string) {
	if !slices.Contains(accepted, value) {
		v.add(key, strconv.Quote(value), "want %s", list(accepted, "or"))
	}
}

func (v *faults) check(key string, value float64, ok bool, accepted string) {
	if !ok || math.IsInf(value, 0) {
		v.add(key, number(value), "want %s", accepted)
	}
}

func (v *faults) optional(key string, value *float64, ok func(float64) bool, accepted string) {
	if value != nil {
		v.check(key, *value, ok(*value), accepted)
	}
}

func (v *faults) optionalOneOf(key string, value *string) {
	if value != nil {
		v.oneOf(key, *value, []string{Mean, Sum})
	}
}

// unused reports options that are given but that the loss does not use, since an option must not silently do nothing.
func (v *faults) unused(o Options) {
	for _, s := range o.specialOptions() {
		if s.given && !slices.Contains(s.users, o.Type) {
			do := map[bool]string{true: "does", false: "do"}[len(s.users) == 1]
			v.add(s.key, s.value, "%s does not use it, only %s %s; remove it", o.Type, list(s.users, "and"), do)
		}
	}
}

// list joins words: "a, b or c".
func list(words []string, last string) string {
	n := len(words) - 1
	if n == 0 {
		return words[0]
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
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
