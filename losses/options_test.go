package losses

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config/fault"
)

func TestDefaultsAreValidAndThePapers(t *testing.T) {
	for _, kind := range Types() {
		o := Defaults(kind)
		if err := fault.Err("loss", o.Check()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if o.Beta != 0.1 || (o.Prior != MaPPO) != (kind == ORPO || kind == KTO) {
			t.Errorf("%s: beta %v, prior %v, want 0.1 and mappo", kind, o.Beta, o.Prior)
		}
	}
	if g, l := *Defaults(SimPO).Gamma, *Defaults(CPO).Lambda; g != 1 || l != 0.2 {
		t.Errorf("gamma %v, lambda %v, want 1 and 0.2", g, l)
	}
}

func TestCheckNamesEveryFault(t *testing.T) {
	with := func(kind string, change func(*Options)) Options {
		o := Defaults(kind)
		change(&o)
		return o
	}
	for _, c := range []struct {
		name string
		o    Options
		want []string
	}{
		{"misspelt", with("dop", func(o *Options) { o.Prior = "map" }),
			[]string{`type "dop": want dpo, ipo, simpo, cpo, hinge, robust, rpo, orpo or kto`,
				`prior "map": want mappo or none`}},
		{"ranges", with(SimPO, func(o *Options) { o.Beta, o.Gamma, o.LabelSmoothing = 0, new(-1.0), new(0.5) }),
			[]string{"beta 0: want a number above 0", "gamma -1: want a number, 0 or more",
				"label_smoothing 0.5: want a number, 0 or more and below 0.5"}},
		{"not finite", with(CPO, func(o *Options) { o.Beta, o.Lambda = math.Inf(1), new(math.NaN()) }),
			[]string{"beta +Inf: want a number above 0", "lambda NaN: want a number, 0 or more"}},
		{"modes", with(CPO, func(o *Options) { o.NLL = new("avg") }), []string{`nll "avg": want mean or sum`}},
		{"unused, even at zero", with(DPO, func(o *Options) {
			o.Gamma, o.Lambda, o.Logps, o.NLL = new(0.0), new(0.2),
				new(Sum), new(Mean)
		}),
			[]string{"gamma 0: dpo does not use it, only simpo does; remove it",
				"lambda 0.2: dpo does not use it, only cpo and rpo do; remove it",
				"logps sum: dpo does not use it, only ipo does; remove it",
				"nll mean: dpo does not use it, only cpo, rpo and orpo do; remove it"}},
		{"smoothing of ipo", with(IPO, func(o *Options) { o.LabelSmoothing = new(0.1) }),
			[]string{"label_smoothing 0.1: ipo does not use it, only dpo, simpo, cpo and robust do; remove it"}},
		{"odds with the prior", with(ORPO, func(o *Options) { o.Prior = MaPPO }),
			[]string{"prior mappo: orpo compares odds, for which the prior is not defined: want none"}},
		{"no pair, no prior", with(KTO, func(o *Options) { o.Prior, o.DesirableWeight = MaPPO, new(0.0) }),
			[]string{"desirable_weight 0: want a number above 0", "prior mappo: kto learns from single responses, " +
				"and the prior is the reward gap of a pair: want none"}},
		{"weights of pairs", with(DPO, func(o *Options) { o.UndesirableWeight = new(1.0) }),
			[]string{"undesirable_weight 1: dpo does not use it, only kto does; remove it"}},
	} {
		var got []string
		for _, f := range c.o.Check() {
			got = append(got, f.Error())
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestDescribe(t *testing.T) {
	smooth := Defaults(CPO)
	smooth.LabelSmoothing, smooth.Beta = new(0.1), 0.25
	ipoSum := Defaults(IPO)
	ipoSum.Logps = new(Sum)
	for _, c := range []struct {
		o     Options
		has   []string
		lacks string
	}{
		{Defaults(DPO), []string{"MaPPO-DPO", "loss = -log σ(0.1·A - Δr·0.1·B)", "0.693147 (ln 2)"}, "paper: "},
		{plain(Defaults(DPO)), []string{"objective: DPO", "loss = -log σ(0.1·A - 0.1·B)"}, "Δr"},
		{Defaults(IPO), []string{"loss = (A - Δr·B - 5)²", "per token", "the loss is 25",
			"loss.logps: mean (paper: its equation has sums"}, "ln 2"},
		{ipoSum, []string{"loss = (A - Δr·B - 5)²"}, "per token"},
		{Defaults(SimPO), []string{"loss = -log σ(0.1/|yw|·logπ(yw) - Δr·0.1/|yl|·logπ(yl) - 1)", "no reference model"},
			"as long as"},
		{Defaults(CPO), []string{"loss = -log σ(0.1·logπ(yw) - Δr·0.1·logπ(yl)) - 0.2/|yw|·logπ(yw)", "loss.nll: mean"},
			"A ="},
		{smooth,
			[]string{"loss = -0.9·log σ(u) - 0.1·log σ(-u) - 0.2/|yw|·logπ(yw), u = 0.25·logπ(yw) - Δr·0.25·logπ(yl)",
				"loss.beta: 0.25 (paper: 0.1)", "loss.label_smoothing: 0.1 (paper: none)"}, "as long as"},
		{Defaults(Hinge), []string{"MaPPO-hinge", "loss = max(0, 1 - u), u = 0.1·A - Δr·0.1·B", "the loss is 1\n",
			"loss.type: hinge (paper: dpo, ipo, simpo or cpo)"}, "ln 2"},
		{Defaults(Robust), []string{"loss = (-0.9·log σ(u) + 0.1·log σ(-u))/0.8, u = 0.1·A - Δr·0.1·B",
			"0.693147 (ln 2)"}, "loss.label_smoothing"},
		{Defaults(RPO), []string{"loss = -log σ(0.1·A - Δr·0.1·B) - 1/|yw|·logπ(yw)"}, "as long as"},
		{Defaults(ORPO), []string{"objective: ORPO", "loss = -0.1·log σ(odds(yw) - odds(yl)) - 1/|yw|·logπ(yw)",
			"odds(y) = log(p/(1-p)), p = exp(logπ(y)/|y|)", "no reference model"}, "Δr ="},
		{Defaults(KTO), []string{"objective: KTO, the mean over responses of",
			"loss = 1·(1 - σ(0.1·(A - z))) if y is desirable, else 1·(1 - σ(0.1·(z - A)))", "z = max(0, mean of A"},
			"as long as"},
	} {
		text := c.o.Describe()
		for _, d := range c.o.Deviations() {
			text += fmt.Sprintf("%s: %s (paper: %s)\n", d.Key, d.Now, d.Was)
		}
		for _, part := range c.has {
			if !strings.Contains(text, part) {
				t.Errorf("want %q in\n%s", part, text)
			}
		}
		if strings.Contains(text, c.lacks) {
			t.Errorf("want no %q in\n%s", c.lacks, text)
		}
	}
}

func TestKeyTellsLossesApart(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range everyOption() {
		if seen[o.Key()] {
			t.Errorf("%s: another option has the same key %q", describe(o), o.Key())
		}
		seen[o.Key()] = true
	}
	with := Defaults(SimPO)
	with.Gamma = new(1.5)
	if with.Key() == Defaults(SimPO).Key() {
		t.Errorf("key %q does not change with gamma", with.Key())
	}
}
