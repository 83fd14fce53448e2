package rl

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
)

// Explain says in plain text what the configuration trains: the reward and the objective as formulas with their
// numbers, the training around them, and what is not as in the released run or the paper. Its lines end in \n.
func (o *CI) Explain() string {
	r, from := o.Reward, o.Data.TrainFiles.String()
	if o.Data.Scenarios > 0 {
		from = fmt.Sprintf("%d embedded scenarios", o.Data.Scenarios)
	}
	return "objective: GRPO on the contextual-integrity reward\n" +
		fmt.Sprintf("  R = %v·(required keywords in the answer)/(all required) - %v·(restricted ones in it)/(all "+
			"restricted), -1 on a broken format\n", r.RequiredWeight, r.RestrictedWeight) + o.Agent.describe() +
		o.settings().Objective() + o.Base.Describe() +
		fmt.Sprintf("data: %s, %s\n", from, o.Data.Describe()) + o.settings().DescribeTraining() +
		recipe.ListDeviations(o.Deviations(), "released", "release (configs/ci-rl.yaml) or not as in the paper "+
			"(configs/ci-rl-paper.yaml)") + differences
}

// differences are those that no option removes.
const differences = `whatever the options, not as in the release:
  the split is another draw; the last, smaller batch of an epoch is filled up; norms and biases do not decay;
  token-mean is over all tokens of an update, not over those of micro-batches of 8,192 tokens
`

// Deviations are the keys in which a run differs from the released run or from the paper: Was is the released value,
// with the paper's beside it where the two contradict each other, Now the run's. Keys that are left out change what is
// computed by rounding alone, or follow from another one that is listed.
func (o *CI) Deviations() []config.Change {
	all := o.departures()
	name, text := configs.Read("ci-rl-paper.yaml")
	paper, err := CISpec.Parse(name, text, config.Input{})
	if err != nil {
		panic(err) // the file is part of the program
	}
	for _, p := range paper.departures() {
		if p.Key == "data.items" && o.Data.TrainFiles.Are(embedded.Name) {
			continue
		}
		at := slices.IndexFunc(all, func(c config.Change) bool { return c.Key == p.Key })
		if at < 0 { // the run is as released
			at, all = len(all), append(all, config.Change{Key: p.Key, Was: p.Was, Now: p.Was})
		}
		said := p.Now
		if p.Key == "train.max_grad_norm" {
			said = "does not say"
		}
		all[at].Was += ", paper: " + said
	}
	return all
}

// departures are those from the released run.
func (o *CI) departures() []config.Change {
	mine := *o
	mine.Data.Items = cmp.Or(mine.Data.Items, ci.AllItems)
	if mine.Data.IsReleased() {
		mine.Data.Prompt = ci.PromptReleased
	}
	all := slices.DeleteFunc(CISpec.Departures(&mine), func(c config.Change) bool {
		switch c.Key {
		case "data.items":
			return o.Data.TrainFiles.Are(embedded.Name)
		case "train.epochs":
			return o.Train.MaxSteps > 0
		case "grpo.kl_coef":
			return o.GRPO.KL == grpo.None
		}
		return false
	})
	if o.Data.TrainFiles.Are(embedded.Name) {
		all = append(all, config.Change{Key: "data.train", Was: "a file", Now: embedded.Name})
	}
	return append(all, o.OtherChat()...)
}
