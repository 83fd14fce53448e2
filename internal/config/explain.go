package config

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/train"
)

// Explain says in plain text what the configuration trains: the objective as a formula with its numbers, the training
// around it, and every option that is not the paper's. Its lines end in \n.
func (c *Mappo) Explain() string {
	var s strings.Builder
	s.WriteString(c.Loss.Describe())
	fmt.Fprintf(&s, "model: %s, backend %s, seed %d\n", c.Model, c.Backend, c.Seed)
	if !c.Loss.ReferenceFree() {
		fmt.Fprintf(&s, "reference: %s, its log-probabilities computed once ahead of training\n", either(c.Reference, "the model before training"))
	}
	fmt.Fprintf(&s, "data: %s\n", describeSource(c.Data.Source))
	if c.Loss.NeedsGap() {
		fmt.Fprintf(&s, "rewards: columns %s; transform %s; negative gaps: %s\n",
			either(strings.Join(c.Data.ScoreColumns, ", "), "found by their known names"), c.Data.Transform, c.Data.OnNegativeGap)
	}
	s.WriteString(describeTraining(c.Train, "pairs"))
	s.WriteString(losses.ListDeviations(c.Deviations()))
	return s.String()
}

// Explain says in plain text what the configuration trains. Its lines end in \n.
func (c *SFT) Explain() string {
	var s strings.Builder
	tokens := map[string]string{"completion": "the completions'", "all": "all"}[c.Data.LossOn]
	fmt.Fprintf(&s, "objective: mean negative log-likelihood, -logπ(token), of %s tokens of a batch\n", tokens)
	fmt.Fprintf(&s, "model: %s, backend %s, seed %d\n", c.Model, c.Backend, c.Seed)
	fmt.Fprintf(&s, "data: %s\n", describeSource(c.Data.Source))
	s.WriteString(describeTraining(c.Train, "demonstrations"))
	return s.String()
}

func describeSource(s Source) string {
	switch {
	case s.Eval != "":
		return fmt.Sprintf("%s, evaluated on %s", s.Train, s.Eval)
	case s.EvalFraction > 0:
		return fmt.Sprintf("%s, of which %v is held out for evaluation", s.Train, s.EvalFraction)
	}
	return s.Train + ", no evaluation"
}

func describeTraining(t train.Options, unit string) string {
	span := count(t.Epochs, "epoch")
	if t.MaxSteps > 0 {
		span = count(t.MaxSteps, "step")
	}
	micro := t.MicroBatchSize
	if micro == 0 {
		micro = t.BatchSize
	}
	return fmt.Sprintf("training: %s of %d %s (%d at a time), AdamW at %v, %s of warm-up, then %s, weight decay %v, gradient norm %s, dtype %s\n",
		span, t.BatchSize, unit, micro, t.LearningRate, count(t.WarmupSteps, "step"), t.Schedule, t.WeightDecay, clipping(t.MaxGradNorm), t.DType)
}

func count(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

func clipping(norm float64) string {
	if norm == 0 {
		return "unclipped"
	}
	return fmt.Sprintf("at most %v", norm)
}

func either(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// Deviations are the options that are not the paper's, the loss's own among them.
func (c *Mappo) Deviations() []losses.Deviation {
	all := c.Loss.Deviations()
	differ := func(key string, value, paper any) {
		if value != paper {
			all = append(all, losses.Deviation{Key: key, Value: fmt.Sprint(value), Paper: fmt.Sprint(paper)})
		}
	}
	if !c.Loss.ReferenceFree() {
		differ("reference", either(c.Reference, "the model before training"), "the model before training")
	}
	if c.Loss.NeedsGap() {
		if c.Data.Transform != "auto" {
			differ("data.reward_transform", c.Data.Transform, "rewards outside [0,1] pass through the logistic function, others do not (auto)")
		}
		differ("data.on_negative_gap", c.Data.OnNegativeGap, "does not say")
	}
	differ("train.batch_size", c.Train.BatchSize, 128)
	differ("train.learning_rate", c.Train.LearningRate, 5e-7)
	differ("train.warmup_steps", c.Train.WarmupSteps, 100)
	differ("train.weight_decay", c.Train.WeightDecay, 0.01)
	differ("train.dtype", c.Train.DType, "bfloat16")
	return all
}
