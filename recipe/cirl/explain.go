package cirl

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
)

// Explain says in plain text what the configuration trains: the reward and the objective as formulas with their
// numbers, the training around them, and every option that is not the released one. Its lines end in \n.
func (o *Options) Explain() string {
	r, from := o.Reward, o.Data.Train.String()
	if o.Data.Scenarios > 0 {
		from = fmt.Sprintf("%d embedded scenarios", o.Data.Scenarios)
	}
	return "objective: GRPO on the contextual-integrity reward\n" +
		fmt.Sprintf("  R = %v·(required keywords in the answer)/(all required) - %v·(restricted ones in it)/(all "+
			"restricted), -1 on a broken format\n", r.RequiredWeight, r.RestrictedWeight) +
		o.settings().Objective() + o.Base.Describe() +
		fmt.Sprintf("data: %s, %s\n", from, o.Data.Describe()) + o.settings().Course() +
		recipe.ListDeviations(o.Deviations(), "released", "released run's (configs/ci-rl.yaml)")
}

// Deviations are the keys in which a run differs from the released one: Was is the released value, Now the run's. Keys
// that are left out change what is computed by rounding alone, or follow from another one that is listed.
func (o *Options) Deviations() []config.Change {
	mine := *o
	mine.Data.Items = cmp.Or(mine.Data.Items, ci.AllItems)
	all := slices.DeleteFunc(Spec.Departures(&mine), func(c config.Change) bool {
		switch c.Key {
		case "data.items":
			return o.Data.Train.Are(embedded.Name)
		case "train.dtype":
			return o.Train.DType == "auto"
		case "train.epochs":
			return o.Train.MaxSteps > 0
		case "grpo.kl_coef":
			return o.GRPO.KL == grpo.None
		}
		return false
	})
	if o.Data.Train.Are(embedded.Name) {
		all = append(all, config.Change{Key: "data.train", Was: "a file", Now: embedded.Name})
	}
	return all
}
