package losses

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// Name is the objective's short name: "MaPPO-DPO", or "DPO" without the prior.
func (o Options) Name() string {
	if o.NeedsGap() {
		return "MaPPO-" + o.kind().name
	}
	return o.kind().name
}

// Formula is the loss of a pair with its numbers filled in, such as "-log σ(0.1·A - Δr·0.1·B)".
func (o Options) Formula() string {
	u, smoothing := o.formulaOfArgument(), value(o.LabelSmoothing)
	switch {
	case o.Type == KTO:
		desirable, undesirable := o.sideWeights()
		return fmt.Sprintf("%s·(1 - σ(%[2]s·(A - z))) if y is desirable, else %[3]s·(1 - σ(%[2]s·(z - A)))",
			number(desirable), number(o.Beta), number(undesirable))
	case o.kind().link != nil:
		return fmt.Sprintf(o.kind().link.text, u)
	case o.Type == ORPO:
		return fmt.Sprintf("-%s·log σ(%s)%s", number(o.Beta), u, o.formulaOfNLL())
	case o.Type == Robust && smoothing != 0:
		return fmt.Sprintf("(-%s·log σ(u) + %s·log σ(-u))/%s, u = %s", number(1-smoothing), number(smoothing),
			number(1-2*smoothing), u)
	case smoothing != 0:
		logistic := fmt.Sprintf("-%s·log σ(u) - %s·log σ(-u)", number(1-smoothing), number(smoothing))
		return logistic + o.formulaOfNLL() + ", u = " + u
	}
	return "-log σ(" + u + ")" + o.formulaOfNLL()
}

func (o Options) formulaOfArgument() string {
	prior := ""
	if o.NeedsGap() {
		prior = "Δr·"
	}
	chosen, rejected := o.term("A", "w"), o.term("B", "l")
	u := chosen + " - " + prior + rejected
	if offset := o.offset(); offset != 0 {
		u += " - " + number(offset)
	}
	return u
}

// term is a scaled log-ratio (A, B), or a scaled log-probability where there is no reference.
func (o Options) term(ratio, response string) string {
	switch {
	case o.Type == IPO:
		return ratio
	case o.Type == ORPO:
		return fmt.Sprintf("odds(y%s)", response)
	case o.Type == SimPO:
		return fmt.Sprintf("%s/|y%s|·logπ(y%s)", number(o.Beta), response, response)
	case o.Type == CPO:
		return fmt.Sprintf("%s·logπ(y%s)", number(o.Beta), response)
	}
	return number(o.Beta) + "·" + ratio
}

func (o Options) formulaOfNLL() string {
	_, weight := o.weights()
	if o.NLL == nil || weight == 0 {
		return ""
	}
	if mode(o.NLL) == Mean {
		return fmt.Sprintf(" - %s/|yw|·logπ(yw)", number(weight))
	}
	return fmt.Sprintf(" - %s·logπ(yw)", number(weight))
}

// Describe prints the objective in plain text. Its lines end in \n.
func (o Options) Describe() string {
	var s strings.Builder
	of := map[bool]string{true: "responses", false: "pairs"}[o.Unpaired()]
	fmt.Fprintf(&s, "objective: %s, the mean over %s of\n", o.Name(), of)
	fmt.Fprintf(&s, "  loss = %s\n", o.Formula())
	for _, line := range o.glossary() {
		fmt.Fprintf(&s, "  %s\n", line)
	}
	if loss, known := o.StepZero(); known {
		ln2 := map[bool]string{true: " (ln 2)"}[loss == math.Ln2]
		fmt.Fprintf(&s, "  as long as policy = reference every reward is 0 and the loss is %.6g%s\n", loss, ln2)
	}
	return s.String()
}

func (o Options) glossary() []string {
	if o.Unpaired() {
		return []string{"A = logπ(y) - logπref(y), logπ(y): sum of the log-probabilities of a response's tokens",
			"z = max(0, mean of A over the batch's prompts with responses to other prompts), without a gradient"}
	}
	lines := []string{"yw, yl: chosen and rejected response; |y|: its tokens; logπ(y): sum of their log-probabilities"}
	if !o.ReferenceFree() {
		per := ""
		if o.perToken() {
			per = ", each per token (divided by |yw|, |yl|)"
		}
		lines = append(lines, "A = logπ(yw) - logπref(yw), B = logπ(yl) - logπref(yl)"+per)
	}
	if o.NeedsGap() {
		lines = append(lines, "Δr = r(yw) - r(yl), the prior's reward gap; rewards in [0,1]")
	}
	if o.Type == ORPO {
		lines = append(lines, "odds(y) = log(p/(1-p)), p = exp(logπ(y)/|y|)")
	}
	if o.ReferenceFree() {
		lines = append(lines, "no reference model")
	}
	return lines
}

// Deviations lists the options that differ from the paper's, and the choices that its equations leave open.
func (o Options) Deviations() []config.Change {
	var all []config.Change
	differ := func(key, value, paper string, differs bool) {
		if differs {
			all = append(all, config.Change{Key: "loss." + key, Was: paper, Now: value})
		}
	}
	paper := Defaults(o.Type)
	differ("type", o.Type, fault.Or(words(func(k kind) bool { return k.ofPaper })), !o.kind().ofPaper)
	differFloat := func(key string, have, want *float64) {
		if have != nil && want != nil {
			differ(key, number(*have), number(*want), *have != *want)
		}
	}
	differFloat("beta", &o.Beta, &paper.Beta)
	differFloat("gamma", o.Gamma, paper.Gamma)
	differFloat("lambda", o.Lambda, paper.Lambda)
	if value(o.LabelSmoothing) != 0 && o.kind().ofPaper {
		differ("label_smoothing", number(*o.LabelSmoothing), "none", true)
	}
	// Here Defaults follows the other libraries, which use means per token; the paper's equations have sums.
	meanLogps, meanNLL := o.Type == IPO && mode(o.Logps) == Mean, o.Type == CPO && mode(o.NLL) == Mean
	differ("logps", Mean, "its equation has sums; the field's libraries use means", meanLogps)
	differ("nll", Mean, "its equation has the sum; the field's libraries use the mean", meanNLL)
	return all
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 10, 64) }
