package losses

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"
)

// This file is the table of the losses. A loss of one's own is a row here and a word of Options.Type.

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

// kind is what a loss has of the package's formula.
type kind struct {
	word, name string                        // in configs and in titles
	ofPaper    bool                          // the paper of MaPPO has it
	free       bool                          // it has no reference
	unscaled   bool                          // β is not in the scale s
	perToken   func(o Options) bool          // log-probabilities are divided by the response's length; nil: never
	offset     func(o Options) float64       // nil: 0
	smoothing  func(epsilon float64) float64 // of the logistic, from ε; nil: ε
	link       *link                         // nil: the logistic
	plain      string                        // why it has no prior
}

// link is the function of u that a loss is.
type link struct {
	graph func(u *graph.Node) *graph.Node
	host  func(u float64) (loss, slope float64)
	text  string // with %s for u
}

var kinds = []kind{
	{word: DPO, name: "DPO", ofPaper: true},
	{word: IPO, name: "IPO", ofPaper: true, unscaled: true, link: square,
		perToken: func(o Options) bool { return mode(o.Logps) == Mean },
		offset:   func(o Options) float64 { return 1 / (2 * o.Beta) }},
	{word: SimPO, name: "SimPO", ofPaper: true, free: true, perToken: always,
		offset: func(o Options) float64 { return value(o.Gamma) }},
	{word: CPO, name: "CPO", ofPaper: true, free: true},
	{word: Hinge, name: "hinge", link: hingeLink},
	// The expectation over labels that are wrong with probability ε is dpo's of the right ones.
	{word: Robust, name: "robust DPO", smoothing: func(e float64) float64 { return -e / (1 - 2*e) }},
	{word: RPO, name: "RPO"},
	{word: ORPO, name: "ORPO", free: true, unscaled: true, perToken: always,
		plain: " compares odds, for which the prior is not defined"},
	{word: KTO, name: "KTO", plain: " learns from single responses, and the prior is the reward gap of a pair"},
}

func always(Options) bool { return true }

var square = &link{graph.Square, func(u float64) (loss, slope float64) { return u * u, 2 * u }, "(%s)²"}

var hingeLink = &link{
	func(u *graph.Node) *graph.Node { return graph.MaxScalar(graph.OneMinus(u), 0.0) },
	func(u float64) (loss, slope float64) {
		if u >= 1 {
			return 0, 0
		}
		return 1 - u, -1 // NaN is no margin that is enough
	},
	"max(0, 1 - u), u = %s",
}

// kind is the row of the options' loss; an unknown loss has a row without a word.
func (o Options) kind() kind {
	if i := slices.IndexFunc(kinds, func(k kind) bool { return k.word == o.Type }); i >= 0 {
		return kinds[i]
	}
	return kind{}
}

// Types lists the losses, in the order in which messages name them.
func Types() []string { return words(func(kind) bool { return true }) }

func words(which func(kind) bool) (all []string) {
	for _, k := range kinds {
		if which(k) {
			all = append(all, k.word)
		}
	}
	return all
}

// Unpaired says that the loss is of single responses (kto): UnpairedGraph and UnpairedHost compute it, and not Graph
// and Host.
func (o Options) Unpaired() bool { return o.Type == KTO }

// ReferenceFree says that the loss needs no reference model (simpo, cpo, orpo).
func (o Options) ReferenceFree() bool { return o.kind().free }

// perToken reports whether log-probabilities are divided by the response's length.
func (o Options) perToken() bool {
	per := o.kind().perToken
	return per != nil && per(o)
}

// scale is s of the package's formula before any division by the length. ipo's β is in its offset only, orpo's before
// the logistic.
func (o Options) scale() float64 {
	if o.kind().unscaled {
		return 1
	}
	return o.Beta
}

// weights are the factors in the loss of the function of u, and of the chosen response's NLL.
func (o Options) weights() (ofU, ofNLL float64) {
	if o.Type == ORPO {
		return o.Beta, 1
	}
	return 1, value(o.Lambda)
}

// smoothing is ε of the logistic losses.
func (o Options) smoothing() float64 {
	e := value(o.LabelSmoothing)
	if f := o.kind().smoothing; f != nil {
		return f(e)
	}
	return e
}

// offset is the offset of the package's formula.
func (o Options) offset() float64 {
	if f := o.kind().offset; f != nil {
		return f(o)
	}
	return 0
}
