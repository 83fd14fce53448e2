package grpo

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/rollout"
)

// check refuses what cannot go well before anything is sampled.
func (rs *Rollouts) check() error {
	if err := fault.Err("grpo", rs.Options.Check()); err != nil {
		return err
	}
	if err := rs.t.Options.Err(); err != nil {
		return err
	}
	switch {
	case rs.Judge == nil:
		return errors.New("there is no judge: set Judge")
	case len(rs.Held) == 0 && rs.Validation.Every > 0:
		return errors.New("the validation split is empty: raise data.validation_fraction, or set validation.every 0 " +
			"to do without a best checkpoint")
	case rs.Sampling.Temperature == 0:
		return errors.New("sampling.temperature 0: all completions of a prompt would be the same, and teach nothing: " +
			"want a number above 0")
	case rs.Options.NeedsReference() && rs.Reference == nil:
		return fmt.Errorf("grpo.kl %s needs the weights of a reference, and has none", rs.Options.KL)
	}
	return CheckTasks(rs.Options, rs.Sampling, rs.t.Learner.Config().MaxPositions, rs.Tasks, rs.Held)
}

// CheckTasks refuses a step of more prompts than there are tasks, and prompts and completions that do not fit a model's
// positions. The tasks of other sets, such as validation, only need room.
func CheckTasks(o Options, s rollout.Sampling, positions int, tasks []ask.Question, others ...[]ask.Question) error {
	if len(tasks) == 0 {
		return errors.New("the training split is empty: there is no task to learn from")
	}
	if o.Prompts > len(tasks) {
		return fmt.Errorf("grpo.prompts_per_step %d: there are %d prompts to train on: want at most as many",
			o.Prompts, len(tasks))
	}
	longest := ask.Question{}
	for _, t := range slices.Concat(append([][]ask.Question{tasks}, others...)...) {
		if len(t.Tokens) >= positions {
			return fmt.Errorf("%s: the prompt has %d tokens, the model %d positions: lower data.max_prompt_tokens to "+
				"drop such prompts", t.Source, len(t.Tokens), positions)
		}
		if len(t.Tokens) > len(longest.Tokens) {
			longest = t
		}
	}
	if n := len(longest.Tokens); n+s.MaxNew > positions {
		return fmt.Errorf("sampling.max_new_tokens %d: the model has %d positions, of which the longest prompt (%s) "+
			"takes %d: want at most %d, or a lower data.max_prompt_tokens", s.MaxNew, positions, longest.Source, n,
			positions-n)
	}
	return nil
}

// bounds of the self-checks. Single tokens may be further off than the mean is: the same text in another row is rounded
// otherwise, on a GPU even in float32.
type bounds struct {
	mean    float64 // of the first minibatch's ratios, from 1; of KL to the start, from 0
	single  float64 // of a single ratio, from 1
	clipped float64 // share of the ratios
	warn    float64 // mean difference of the sampler's log-probs and the trainer's that is worth a warning, in nats
	stop    float64 // … that stops a run at its first step: sampler and trainer are not the same model
}

// bounds gives the bounds for a graph in float32, or in bfloat16.
func (rs *Rollouts) bounds() bounds {
	if rs.t.Learner.BFloat16() {
		return bounds{mean: 0.05, single: 2, clipped: 0.05, warn: 0.05, stop: 0.5}
	}
	return bounds{mean: 1e-3, single: 0.1, clipped: 0, warn: 1e-2, stop: 0.1}
}

// checkFirst is the self-check of a step's first minibatch, which was sampled from the very policy that learns. At
// step 0 that policy is the reference, too, and the sampler is held to it. After step 0 bfloat16 only warns: the old
// policy was measured in other rows than the minibatch's, which bfloat16 rounds otherwise, and no bound on that is
// known for weights that have been trained.
func (rs *Rollouts) checkFirst(values map[string]float64) error {
	for _, c := range rs.selfChecks() {
		v, ok := values[c.name]
		if !ok || math.Abs(v-c.want) <= c.bound {
			continue
		}
		found := fmt.Sprintf("the %s is %.4g, where it must be %v", c.what, v, c.want)
		if rs.t.Learner.BFloat16() && rs.t.State.Step > 0 && float.IsFinite(v) {
			rs.warn(c.name, true, "%s but for bfloat16's rounding: if the run does not learn, set train.dtype float32",
				found)
			continue
		}
		cause := "the engine computes wrongly; try another --backend, and please report it"
		sampler := rs.Sampler
		if e, ok := sampler.(rollout.Episodes); ok {
			sampler = e.Sampler
		}
		if _, own := sampler.(*rollout.Cached); !own && c.name == MetricDifferenceMean {
			cause = "the servers of rollout.urls serve another model, or give log-probs at another temperature than 1 " +
				"(SGLang does without SGLANG_RETURN_ORIGINAL_LOGPROB=1)"
		}
		return fmt.Errorf("step %d: %s: %s", rs.t.State.Step, found, cause)
	}
	return nil
}

func (rs *Rollouts) selfChecks() []selfCheck {
	b := rs.bounds()
	checks := []selfCheck{
		{MetricRatioMean, "mean ratio of the policy to the one that the rollouts came from", 1, b.mean},
		{MetricClipRegion, "share of clipped ratios", 0, b.clipped},
	}
	if rs.t.State.Step == 0 {
		checks = append(checks,
			selfCheck{MetricRatioMin, "least ratio of the policy to the one that the rollouts came from", 1, b.single},
			selfCheck{MetricRatioMax, "greatest ratio of the policy to the one that the rollouts came from", 1,
				b.single},
			selfCheck{MetricKL, "KL to the reference", 0, b.mean},
			selfCheck{MetricDifferenceMean, "mean difference of the sampler's log-probs from the trainer's", 0, b.stop})
	}
	return checks
}

// selfCheck is a metric that must have a value, within a bound.
type selfCheck struct {
	name, what  string
	want, bound float64
}

// fruitlessSteps in a row whose completions all broke the format end a run.
const fruitlessSteps = 5

// checkAnswers counts steps without one readable answer, and stops the run where they do not end.
func (rs *Rollouts) checkAnswers(r *rolloutBatch) error {
	for _, a := range r.drawn {
		for _, x := range a.answers {
			if x.Score.Fault == "" {
				rs.t.Kept[fruitless] = 0
				return nil
			}
		}
	}
	if rs.t.Kept[fruitless]++; rs.t.Kept[fruitless] < fruitlessSteps {
		return nil
	}
	first := r.drawn[0]
	return fmt.Errorf("step %d: all completions of %d steps broke the format, so there is nothing to learn from: "+
		"one of %s begins %q (%s); %s",
		rs.t.State.Step+1, fruitlessSteps, first.Source, fault.Beginning(first.answers[0].Text, 200),
		first.answers[0].Score.Fault, rs.advice(r))
}

// advice for a model that never keeps the format.
func (rs *Rollouts) advice(r *rolloutBatch) string {
	cut, n := 0, 0
	for _, a := range r.drawn {
		for _, c := range a.answers {
			n++
			if c.Reason == rollout.Length {
				cut++
			}
		}
	}
	if 2*cut > n {
		return fmt.Sprintf("%d of %d were cut at %d tokens: raise sampling.max_new_tokens, or begin with a model "+
			"that writes such answers (posttrain sft)", cut, n, rs.Sampling.MaxNew)
	}
	return "begin with a model that can write such answers, such as one trained on demonstrations (posttrain sft)"
}

// Figures of a step that give a warning.
const (
	manyCut     = 0.9  // share of completions cut by the length limit
	manyEqual   = 0.8  // share of groups whose rewards are all equal
	manyClipped = 0.3  // share of clipped ratios
	collapsed   = 0.1  // entropy, as a share of the first step's
	farAway     = 10.0 // KL to the reference, nats per token
	steep       = 100  // an advantage, as a number without its sign
)

// largest is the largest advantage, without its sign.
func largest(groups []Group) (most float64) {
	for _, g := range groups {
		for _, a := range g.Advantages {
			most = max(most, math.Abs(a))
		}
	}
	return most
}

// diagnose says in plain words what is odd about a step, whose largest advantage is given.
func (rs *Rollouts) diagnose(v map[string]float64, advantage float64) {
	if rs.t.State.Step == 1 {
		rs.t.Kept[firstEntropy] = v[MetricEntropy]
	}
	rs.warn("cut", v["completions/clipped_ratio"] >= manyCut, "%.0f%% of the completions were cut at "+
		"sampling.max_new_tokens %d, before they ended: raise it",
		100*v["completions/clipped_ratio"], rs.Sampling.MaxNew)
	equal := v["frac_reward_zero_std"] >= manyEqual && rs.Options.Baseline != OfBatch
	rs.warn("equal", equal, "in %.0f%% of the groups all rewards are equal, so "+
		"that they teach nothing: %s",
		100*v["frac_reward_zero_std"], rs.againstEqual(v))
	rs.warn("clipped", v[MetricClipRegion] >= manyClipped, "%.0f%% of the ratios were clipped: lower "+
		"train.learning_rate or grpo.updates_per_rollout",
		100*v[MetricClipRegion])
	rs.warn("entropy", rs.t.Kept[firstEntropy] > 0 && v[MetricEntropy] < collapsed*rs.t.Kept[firstEntropy],
		"the entropy fell from %.3f to %.3f nats a token: the policy hardly varies any more, and groups will teach "+
			"little; lower train.learning_rate, or raise grpo.kl_coef",
		rs.t.Kept[firstEntropy], v[MetricEntropy])
	rs.warn("far", v[MetricKL] > farAway, "the policy is %.1f nats a token away from the reference: lower "+
		"train.learning_rate, or raise grpo.kl_coef", v[MetricKL])
	rs.warn("steep", advantage > steep,
		"an advantage is %.6g, and the gradient as much larger: give rewards a smaller "+
			"range, or set grpo.std to divide by their deviation", advantage)
	rs.warn("difference", v[MetricDifferenceMean] > rs.bounds().warn,
		"the sampler's log-probs differ from the trainer's by %.3g nats a token in the mean, where they should agree",
		v[MetricDifferenceMean])
}

// againstEqual is what helps against groups of equal rewards.
func (rs *Rollouts) againstEqual(v map[string]float64) string {
	if format, has := v["rewards/format/mean"]; has && format == 0 {
		return "no completion keeps the format that the reward wants; begin with a model that writes such answers " +
			"(posttrain sft)"
	}
	ways := []string{"raise grpo.group_size", "use tasks that the model solves sometimes"}
	if rs.Options.DynamicSampling == 0 {
		ways = append(ways, "set grpo.dynamic_sampling to sample such groups anew")
	}
	return strings.Join(ways, ", or ")
}

// quietSteps lie between two warnings of a kind.
const quietSteps = 50

// warn says something, now and then, as long as it holds.
func (rs *Rollouts) warn(kind string, holds bool, format string, args ...any) {
	last, warned := rs.warned[kind]
	if !holds || warned && rs.t.State.Step < last+quietSteps {
		return
	}
	if rs.warned == nil {
		rs.warned = map[string]int{}
	}
	rs.warned[kind] = rs.t.State.Step
	rs.t.Notice("warning: step %d: %s", rs.t.State.Step, fmt.Sprintf(format, args...))
}
