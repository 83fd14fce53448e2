package grpo

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/losses"
)

// What an advantage is divided by.
const (
	Sample     = "sample"     // the standard deviation with divisor G-1
	Population = "population" // with divisor G
)

// None is no division of advantages, and no KL.
const None = "none"

// The levels of the ratio.
const (
	Token    = "token"
	Sequence = "sequence"
)

// The aggregations; package grpo has their weights.
const (
	TokenMean       = "token-mean"
	SeqMeanMean     = "seq-mean-token-mean"
	SeqMeanSum      = "seq-mean-token-sum"
	SeqMeanConstant = "seq-mean-token-sum-norm"
)

// The estimators of KL.
const (
	K1 = "k1"
	K2 = "k2"
	K3 = "k3"
)

// Options are the settings of the method. Start from DefaultOptions.
type Options struct {
	Prompts         int     `yaml:"prompts_per_step"`      // prompts of a rollout batch
	GroupSize       int     `yaml:"group_size"`            // answers per prompt, G
	Updates         int     `yaml:"updates_per_rollout"`   // optimiser updates per rollout batch, each on prompts/updates groups
	Std             string  `yaml:"std"`                   // sample|population|none: what rewards less their mean are divided by
	RatioLevel      string  `yaml:"ratio_level"`           // token|sequence
	Aggregation     string  `yaml:"aggregation"`           // token-mean|seq-mean-token-mean|seq-mean-token-sum|seq-mean-token-sum-norm
	NormLength      int     `yaml:"norm_length,omitempty"` // seq-mean-token-sum-norm: the constant length in tokens
	ClipLow         float64 `yaml:"clip_low"`              // the ratio is clipped to 1-clip_low …
	ClipHigh        float64 `yaml:"clip_high"`             // … and 1+clip_high
	KL              string  `yaml:"kl"`                    // none|k1|k2|k3
	KLCoef          float64 `yaml:"kl_coef"`               // β, the weight of KL
	DynamicSampling int     `yaml:"dynamic_sampling"`      // rounds in which groups of equal rewards are sampled anew; 0: off
	MaskTruncated   bool    `yaml:"mask_truncated"`        // answers cut by the length limit do not train
}

// DefaultOptions are the released settings of CI-RL.
func DefaultOptions() Options {
	return Options{Prompts: 32, GroupSize: 16, Updates: 4, Std: Sample, RatioLevel: Token, Aggregation: TokenMean,
		ClipLow: 0.2, ClipHigh: 0.2, KL: K3, KLCoef: 0.001}
}

// Stds, RatioLevels, Aggregations and KLs are the words that the options accept, in the order in which messages name them.
func Stds() []string         { return []string{Sample, Population, None} }
func RatioLevels() []string  { return []string{Token, Sequence} }
func Aggregations() []string { return []string{TokenMean, SeqMeanMean, SeqMeanSum, SeqMeanConstant} }
func KLs() []string          { return []string{None, K1, K2, K3} }

// A Fault is one thing that is wrong with options: the YAML key, the value found, what is accepted.
type Fault = losses.Fault

// NeedsReference says that the objective needs the reference's log-probs.
func (o Options) NeedsReference() bool { return o.KL != None && o.KLCoef != 0 }

// NeedsOld says that the old policy's log-probs must be measured before the first update of a rollout batch.
func (o Options) NeedsOld() bool { return o.Updates > 1 }

// Check returns every fault of the options, none if they are in order.
func (o Options) Check() []Fault {
	var v faults
	v.atLeast("prompts_per_step", o.Prompts, 1)
	v.check("group_size", strconv.Itoa(o.GroupSize), o.GroupSize >= 2,
		"want 2 or more: an answer's advantage is measured against the other answers to its prompt")
	v.updates(o)
	v.oneOf("std", o.Std, Stds())
	v.oneOf("ratio_level", o.RatioLevel, RatioLevels())
	v.oneOf("aggregation", o.Aggregation, Aggregations())
	v.normLength(o)
	v.check("clip_low", number(o.ClipLow), o.ClipLow > 0 && o.ClipLow < 1, "want a number above 0 and below 1")
	v.check("clip_high", number(o.ClipHigh), o.ClipHigh > 0 && !math.IsInf(o.ClipHigh, 0), "want a number above 0")
	v.oneOf("kl", o.KL, KLs())
	v.klCoef(o)
	v.atLeast("dynamic_sampling", o.DynamicSampling, 0)
	return v
}

// Err joins what Check returns into one error of one line, nil if there is none.
func (o Options) Err() error {
	var all []string
	for _, f := range o.Check() {
		all = append(all, "grpo."+f.Error())
	}
	if all == nil {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

type faults []Fault

func (v *faults) check(key, value string, ok bool, problem string) {
	if !ok {
		*v = append(*v, Fault{Key: key, Value: value, Problem: problem})
	}
}

func (v *faults) atLeast(key string, value, least int) {
	v.check(key, strconv.Itoa(value), value >= least, fmt.Sprintf("want %d or more", least))
}

func (v *faults) oneOf(key, value string, accepted []string) {
	n := len(accepted) - 1
	v.check(key, strconv.Quote(value), slices.Contains(accepted, value),
		"want "+strings.Join(accepted[:n], ", ")+" or "+accepted[n])
}

func (v *faults) updates(o Options) {
	v.atLeast("updates_per_rollout", o.Updates, 1)
	if o.Updates >= 1 && o.Prompts >= 1 {
		v.check("updates_per_rollout", strconv.Itoa(o.Updates), o.Prompts%o.Updates == 0,
			fmt.Sprintf("want a divisor of prompts_per_step %d", o.Prompts))
	}
}

func (v *faults) normLength(o Options) {
	value := strconv.Itoa(o.NormLength)
	if o.Aggregation == SeqMeanConstant {
		v.check("norm_length", value, o.NormLength >= 1, "want a length of 1 or more tokens for aggregation "+SeqMeanConstant)
		return
	}
	v.check("norm_length", value, o.NormLength == 0,
		fmt.Sprintf("aggregation %s does not use it, only %s does; remove it", o.Aggregation, SeqMeanConstant))
}

// klCoef lets the default be where there is no KL: a resolved configuration names it.
func (v *faults) klCoef(o Options) {
	value := number(o.KLCoef)
	if o.KL == None {
		v.check("kl_coef", value, o.KLCoef == 0 || o.KLCoef == DefaultOptions().KLCoef, "kl none does not use it; remove it")
		return
	}
	v.check("kl_coef", value, o.KLCoef > 0 && !math.IsInf(o.KLCoef, 0), "want a number above 0, or kl none")
}

// number writes a float as a configuration would.
func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
