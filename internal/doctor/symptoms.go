package doctor

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/posttrain/posttrain/internal/float"
)

// symptom is what may be wrong with a run. looked is false where the log has too little about it.
type symptom struct {
	name  string
	check func(l *Log) (f *Finding, looked bool)
}

var symptoms = []symptom{
	{"not a number", notANumber}, {"divergence", divergence}, {"no rate", noRate}, {"squeezing", squeezing},
	{"entropy collapse", entropyCollapse}, {"entropy blow-up", entropyBlowUp}, {"broken format", brokenFormat}, {"length hacking", lengthHacking},
	{"KL blow-up", klBlowUp}, {"dead groups", deadGroups}, {"overfitting", overfitting},
}

// Examine looks for all symptoms in a log.
func Examine(l *Log) *Report {
	r := &Report{Log: l.Path, Findings: []Finding{}, Looked: []string{}, Unmeasured: []string{},
		Changed: []string{}}
	for _, record := range l.Records {
		r.Steps = max(r.Steps, record.Step)
	}
	for _, s := range symptoms {
		f, looked := s.check(l)
		if !looked {
			r.Unmeasured = append(r.Unmeasured, s.name)
			continue
		}
		r.Looked = append(r.Looked, s.name)
		if f != nil {
			f.Symptom = s.name
			r.Findings = append(r.Findings, *f)
		}
	}
	return r
}

// Thresholds of the symptoms.
const (
	divergedTimes = 2.0 // the loss at the beginning, and divergedBy more
	divergedBy    = 1.0
	squeezedShare = 0.1 // of |log p(chosen)| at the beginning that it falls by
	collapsed     = 0.2 // of the entropy at the beginning that is left
	blownUp       = 2.0 // times the entropy at the beginning, and blownBy nats a token more
	blownBy       = 0.5
	lostFormat    = 0.25 // of the answers that have kept the format in the best steps
	grown         = 1.5  // times the length at the beginning
	cutShare      = 0.2  // of the completions that are cut
	mostCut       = 0.5  // whatever their length
	follows       = 0.5  // correlation of reward and length
	farKL         = 1.0  // nats a token at the end
	peakKL        = 0.5  // nats a token, and peakTimes the median
	peakTimes     = 10
	deadShare     = 0.8  // of the groups, in the second half of the run
	worseShare    = 0.05 // of the best held-out loss
	skippedShare  = 0.05 // of the gradients that are not finite, while the loss is: scaled float16 skips such steps
)

// gradient and the other fragile metrics are those whose NaN says that a run is broken. Others may have no value.
const gradient = "grad_norm"

var fragile = []string{"loss", gradient, "eval_loss"}

// notANumber: a loss or a gradient is NaN or infinite, and what is trained from it is lost.
func notANumber(l *Log) (*Finding, bool) {
	var first *broken
	looked := false
	for _, name := range fragile {
		b, measured := l.broken(name)
		looked = looked || measured
		if b != nil && (first == nil || b.step < first.step) {
			first = b
		}
	}
	if first == nil {
		return nil, looked
	}
	f := &Finding{Says: fmt.Sprintf("%s is NaN or infinite at step %d, and in %d of %d records", first.metric,
		first.step, first.count, first.of),
		Advice: "a lower train.learning_rate, more train.warmup_steps, a smaller train.max_grad_norm, or train.dtype " +
			"float32; a look at the rows of this step; a checkpoint before it to continue from: later ones are lost"}
	if s := first.before; len(s) > 0 {
		last := s[len(s)-1]
		f.Evidence = []Evidence{{first.metric, s[0].step, s[0].value, last.step, last.value, "the last value before"}}
	}
	return f, true
}

// broken is where a metric is not finite.
type broken struct {
	metric          string
	step, count, of int
	before          series
}

// broken finds it; nil where the metric is finite, or a few steps were skipped. measured: the log has the metric.
func (l *Log) broken(metric string) (b *broken, measured bool) {
	b = &broken{metric: metric}
	ends := false // in a value that is not finite
	for _, r := range l.Records {
		v, ok := r.Values[metric]
		if !ok {
			continue
		}
		b.of++
		if ends = !float.IsFinite(v); !ends {
			continue
		}
		if b.count++; b.count == 1 {
			b.step = r.Step
		}
	}
	skipped := metric == gradient && !ends && float64(b.count) <= skippedShare*float64(b.of)
	if b.count == 0 || skipped {
		return nil, b.of > 0
	}
	for _, p := range l.of(metric) {
		if p.step < b.step {
			b.before = append(b.before, p)
		}
	}
	return b, true
}

// divergence: the loss rises far above where it began. What follows from it, such as answers that become unlikely, is no
// symptom of its own.
func divergence(l *Log) (*Finding, bool) {
	c, ok := l.change("loss")
	if !ok || !Diverged(c.From, c.To) {
		return nil, ok
	}
	return &Finding{
		Says:     fmt.Sprintf("the loss rose from %.3g to %.3g", c.From, c.To),
		Evidence: []Evidence{c.Evidence},
		Advice:   "a lower train.learning_rate, more train.warmup_steps, or a smaller train.max_grad_norm",
	}, true
}

// Diverged says that a loss rose from a beginning so far that the run is lost.
func Diverged(from, to float64) bool {
	return from > 0 && to > divergedTimes*from && to-from > divergedBy
}

// noRate: every step had the learning rate 0, so that nothing was learnt.
func noRate(l *Log) (*Finding, bool) {
	rates := l.of("learning_rate")
	enough := len(rates) >= leastBatches // a warm-up may begin at 0
	if !enough || slices.ContainsFunc(rates, func(p point) bool { return p.value != 0 }) {
		return nil, enough
	}
	return &Finding{
		Says:     fmt.Sprintf("the learning rate is 0 in all %d records", len(rates)),
		Evidence: []Evidence{{"learning_rate", rates[0].step, 0, rates[len(rates)-1].step, 0, "all values"}},
		Advice:   "a train.learning_rate above 0, or fewer train.warmup_steps than the run has steps",
	}, true
}

// squeezing: the chosen and the rejected answers both become less likely; the probability goes to texts that nobody
// rated.
func squeezing(l *Log) (*Finding, bool) {
	chosen, ok := l.change("logps/chosen")
	rejected, both := l.change("logps/rejected")
	if !ok || !both {
		return nil, false
	}
	loss, _ := l.change("loss")
	if chosen.rise() > -squeezedShare*math.Abs(chosen.From) || rejected.rise() >= 0 || Diverged(loss.From, loss.To) {
		return nil, true
	}
	return &Finding{
		Says: fmt.Sprintf("chosen and rejected answers both become less likely; log p(chosen) fell by %.1f%%",
			100*(chosen.From-chosen.To)/math.Abs(chosen.From)),
		Evidence: []Evidence{chosen.Evidence, rejected.Evidence},
		Advice: "a prior that spares near ties (loss.prior mappo), a term of likelihood on the chosen answers " +
			"(loss.type rpo), a larger loss.beta, a lower train.learning_rate, fewer steps, or leaving out pairs " +
			"whose answers are nearly the same",
	}, true
}

// entropyCollapse: the model always gives the same answers, so that there is nothing left to compare.
func entropyCollapse(l *Log) (*Finding, bool) {
	c, ok := l.batches("entropy")
	if !ok {
		return nil, false
	}
	if c.From <= 0 || c.rise() >= 0 || c.To > collapsed*c.From {
		return nil, true
	}
	return &Finding{
		Says:     fmt.Sprintf("of the entropy at the beginning %.0f%% is left: answers hardly differ", 100*c.To/c.From),
		Evidence: []Evidence{c.Evidence},
		Advice: "a lower train.learning_rate, a distance to the model before training (grpo.kl, grpo.kl_coef), a " +
			"larger grpo.clip_high, a higher sampling.temperature, or fewer updates of the same answers",
	}, true
}

// entropyBlowUp: the answers become noise.
func entropyBlowUp(l *Log) (*Finding, bool) {
	c, ok := l.batches("entropy")
	if !ok {
		return nil, false
	}
	if c.rise() < blownBy || c.To < blownUp*c.From {
		return nil, true
	}
	return &Finding{
		Says: fmt.Sprintf("the entropy is %.2f nats a token, %.1f times that of the beginning: answers become noise",
			c.To, c.To/c.From),
		Evidence: []Evidence{c.Evidence},
		Advice:   steadier,
	}, true
}

const steadier = "a checkpoint before it to continue from, a lower train.learning_rate, a distance to the model before " +
	"training (grpo.kl, grpo.kl_coef), a smaller train.max_grad_norm, or fewer updates of the same answers"

// brokenFormat: fewer answers keep the format than did before.
func brokenFormat(l *Log) (*Finding, bool) {
	c, ok := l.fromBest("rewards/format/mean")
	if !ok {
		return nil, false
	}
	if c.rise() > -lostFormat {
		return nil, true
	}
	return &Finding{
		Says:     fmt.Sprintf("%.0f%% of the answers keep the format, after %.0f%%", 100*c.To, 100*c.From),
		Evidence: []Evidence{c.Evidence},
		Advice:   steadier,
	}, true
}

// lengthHacking: answers become longer, and the reward does not say that they become better.
func lengthHacking(l *Log) (*Finding, bool) {
	length, ok := l.batches("completions/mean_length")
	if !ok {
		return nil, false
	}
	cut, _ := l.batches("completions/clipped_ratio")
	full := cut.rise() > 0 && cut.To >= mostCut
	if length.rise() <= 0 || length.To < grown*length.From && !full {
		return nil, true
	}
	f := &Finding{Evidence: []Evidence{length.Evidence},
		Advice: "a reward that does not grow with the length, a penalty for long answers, fewer " +
			"sampling.max_new_tokens, or a mean over all tokens of a step (grpo.aggregation) in the place of " +
			"each answer's"}
	longer := fmt.Sprintf("answers became %.1f times as long", length.To/length.From)
	reward, rewarded := l.change("reward")
	switch r, n := l.together("completions/mean_length", "reward"); {
	case full:
		f.Says, f.Evidence = fmt.Sprintf("%s, and %.0f%% of them reach the limit", longer, 100*cut.To), append(f.Evidence,
			cut.Evidence)
	case rewarded && reward.rise() <= 0:
		f.Says, f.Evidence = longer+", and the reward did not rise", append(f.Evidence, reward.Evidence)
	case cut.rise() > 0 && cut.To >= cutShare:
		f.Says = fmt.Sprintf("%s, and %.0f%% of them reach the limit", longer, 100*cut.To)
		f.Evidence = append(f.Evidence, cut.Evidence)
	case r >= follows:
		f.Says = fmt.Sprintf("%s, and the reward follows the length: from step to step they move together "+
			"(correlation %.2f of %d changes)", longer, r, n)
		f.Evidence = append(f.Evidence, reward.Evidence)
	default:
		return nil, true
	}
	return f, true
}

// klBlowUp: the model leaves the one it started from. kto's kl is of whole answers, another scale.
func klBlowUp(l *Log) (*Finding, bool) {
	kl := l.of("kl")
	c, ok := l.batches("kl")
	if !ok || len(l.of("logps/chosen")) > 0 {
		return nil, false
	}
	sorted := slices.Sorted(slices.Values(kl.values()))
	median := stat.Quantile(0.5, stat.Empirical, sorted, nil)
	peak := slices.MaxFunc(kl, byValue)
	f := &Finding{Advice: "a lower train.learning_rate, a larger grpo.kl_coef, a smaller train.max_grad_norm, or " +
		"fewer updates of the same answers; a run that jumped may continue from a checkpoint before it"}
	switch {
	case c.To > farKL && c.rise() > 0:
		f.Says = fmt.Sprintf("the model is %.2f nats a token away from the one before training", c.To)
		f.Evidence = []Evidence{c.Evidence}
	case peak.value > peakKL && peak.value > peakTimes*median:
		f.Says = fmt.Sprintf("the distance to the model before training jumped to %.3g nats a token; its median is "+
			"%.3g", peak.value, median)
		f.Evidence = []Evidence{{"kl", kl[0].step, kl[0].value, peak.step, peak.value, "the first value and the peak"}}
	default:
		return nil, true
	}
	return f, true
}

// deadGroups: all answers to a prompt get the same reward, so that nothing is learnt from it.
func deadGroups(l *Log) (*Finding, bool) {
	all := l.of("frac_reward_zero_std")
	if len(all) < leastBatches {
		return nil, false
	}
	half := all[len(all)/2:]
	mean := stat.Mean(half.values(), nil)
	if mean < deadShare {
		return nil, true
	}
	first, last := half[0], half[len(half)-1]
	return &Finding{
		Says: fmt.Sprintf("in %.0f%% of the groups of the second half all answers have the same reward: nothing is "+
			"learnt from them", 100*mean),
		Evidence: []Evidence{{"frac_reward_zero_std", first.step, first.value, last.step, last.value,
			fmt.Sprintf("mean %.2f in between", mean)}},
		Advice: "prompts that are neither too easy nor too hard, a reward with more than two values, larger groups " +
			"(grpo.group_size), a higher sampling.temperature, or dynamic sampling, which draws again " +
			"(grpo.dynamic_sampling)",
	}, true
}

// overfitting: the loss of held-out examples rises again while the training's continues to fall.
func overfitting(l *Log) (*Finding, bool) {
	held := l.of("eval_loss")
	train, ok := l.batches("loss")
	if !ok || len(held) < 3 {
		return nil, false
	}
	best := slices.MinFunc(held, byValue)
	last := held[len(held)-1]
	if last.value-best.value < worseShare*math.Abs(best.value) || train.rise() >= 0 {
		return nil, true
	}
	return &Finding{
		Says: fmt.Sprintf("the held-out loss was best at step %d and is %.1f%% worse at the end, while the training "+
			"loss fell", best.step, 100*(last.value-best.value)/math.Abs(best.value)),
		Evidence: []Evidence{{"eval_loss", best.step, best.value, last.step, last.value, "the best and the last"},
			train.Evidence},
		Advice: "the checkpoint of the best step, fewer epochs, more or other data, a lower train.learning_rate, a " +
			"smaller lora.rank, or a larger train.weight_decay",
	}, true
}
