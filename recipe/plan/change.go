package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
)

// change is a key of a config with a value that makes a run smaller or quicker.
type change struct {
	key, value string
	says       func(own, p *Plan) string // what the run gives up or does otherwise
}

const (
	microKey = "train.micro_batch_size"
	cacheKey = "sampling.cache_gb"
	againKey = "train.gradient_checkpointing"
)

// adapterRank is the rank of configs/mappo-lora.yaml.
const adapterRank = "16"

var (
	adapter = change{"lora.rank", adapterRank, func(own, p *Plan) string {
		return fmt.Sprintf("trains an adapter of rank %s, %s parameters, not all %s weights; it wants about ten times "+
			"the learning rate", adapterRank, count(float64(p.Trained)), count(float64(own.Trained)))
	}}
	bits = change{"quantize", "nf4", func(own, p *Plan) string {
		return "holds the frozen weights in 4 bits: they are rounded, and so is what is learnt above them"
	}}
)

// recomputes turns gradient checkpointing on, or off where it is on.
func recomputes(p *Plan) change {
	on := !p.setup.Train.GradientCheckpointing
	return change{againKey, fmt.Sprint(on), func(own, p *Plan) string {
		if on {
			return "computes layers again in the backward pass: the same updates, more slowly"
		}
		return "keeps the values of layers for the backward pass: the same updates, quicker"
	}}
}

// helps says that checkpointing, on or off, saves what a trial takes too much of.
func (c change) helps(t *trial) bool {
	return t.err == nil && (c.value == "true" && t.memory || c.value == "false" && t.time && !t.memory)
}

func micro(n int) change {
	return change{microKey, fmt.Sprint(n), func(own, p *Plan) string {
		return fmt.Sprintf("computes %s at a time, not %d: the same updates but for rounding",
			recipe.Count(n, strings.TrimSuffix(p.Unit, "s")), own.setup.Train.Micro())
	}}
}

func caches(bytes int) change {
	gb := fmt.Sprintf("%.2g", float64(bytes)/1e9)
	return change{cacheKey, gb, func(own, p *Plan) string {
		return fmt.Sprintf("draws %d answers at a time, not %d: the same draws, more slowly", p.Sampling.Rows,
			own.Sampling.Rows)
	}}
}

func steps(n int) change {
	return change{"train.max_steps", fmt.Sprint(n), func(own, p *Plan) string {
		text := fmt.Sprintf("stops after %d of %d steps: %.2g of the training", n, own.Steps,
			float64(n)/float64(own.Steps))
		if w := own.setup.Train.WarmupSteps; w >= n {
			text += fmt.Sprintf(", all of them in the warm-up of %d", w)
		}
		return text
	}}
}

// narrower are smaller micro batches, the smallest first.
func narrower(p *Plan) (all []change) {
	n, by := p.setup.Train.Micro(), 2
	if n > 8 {
		by = 4
	}
	for ; n > 1; all = append(all, micro(n)) {
		n = max(1, n/by)
	}
	slices.Reverse(all)
	return all
}

// others are micro batches of half and of twice the size, and the whole batch.
func others(p *Plan) (all []change) {
	n, batch := p.setup.Train.Micro(), p.setup.Train.BatchSize
	for _, m := range []int{n / 2, min(2*n, batch), batch} {
		same := func(c change) bool { return c.value == fmt.Sprint(m) }
		if m > 0 && m != n && !slices.ContainsFunc(all, same) {
			all = append(all, micro(m))
		}
	}
	return all
}

func overrides(changes []change) (all []config.Override) {
	for _, c := range changes {
		all = append(all, config.Override{Flag: "--set", Key: c.key, Value: c.value})
	}
	return all
}

// name says what is changed.
func (t *trial) name() string {
	var words []string
	for _, c := range t.changes {
		words = append(words, c.key+"="+c.value)
	}
	if words == nil {
		return asItIs
	}
	return strings.Join(words, " ")
}

const asItIs = "as it is"
