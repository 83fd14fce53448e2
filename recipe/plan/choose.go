package plan

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// Limits are what a run may take; 0: what the machine has, however long.
type Limits struct {
	Within time.Duration
	Memory int // bytes at the peak
}

// Chooser looks for settings with which a run keeps limits.
type Chooser struct {
	Limits
	// Read reads the options with changes, which win over the config.
	Read func(changes []config.Override, r run.Reporter) (recipe.Drafter, error)
	// Fixed says that the user's command line gives a key: it stays.
	Fixed func(key string) bool

	bench  bench
	tried  []*trial
	family int // of settings, which trials differ within by shapes of batches
	run.Reporter
}

// trial is a plan of changed settings.
type trial struct {
	changes      []change
	family       int
	plan         *Plan
	err          error // the run would refuse the settings
	memory, time bool  // it takes more than the limit
	why          string
}

func (t *trial) fits() bool { return t.why == "" }

// Choose plans the run as it is, then with changes: those that change the run least come first. The plan is of the
// first that keeps the limits; of those that differ by the shapes of batches alone, of the quickest. If nothing keeps
// them, fewer steps are planned. If these do not either, it is the plan of the closest, with a Refusal.
func (c *Chooser) Choose(ctx context.Context, r run.Reporter) (*Plan, error) {
	c.Reporter = run.Listen(r)
	own := c.try(ctx, nil, r)
	if own.err != nil {
		return nil, own.err
	}
	chosen := c.search(ctx, own)
	if chosen == nil {
		chosen = c.shorten(ctx)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w while settings were tried", recipe.ErrInterrupted)
	}
	return c.conclude(own, chosen), nil
}

// search tries all that trains as many steps as the config says.
func (c *Chooser) search(ctx context.Context, own *trial) *trial {
	for _, changes := range c.methods(own.plan) {
		first, found := c.among(ctx, own, changes)
		if found != nil {
			return found
		}
		if again := recomputes(own.plan); c.may(again.key) && again.helps(first) {
			if _, found := c.among(ctx, nil, append(slices.Clip(changes), again)); found != nil {
				return found
			}
		}
	}
	return nil
}

// methods are what can be trained: what the config says, an adapter in its place, and one on weights of few bits.
func (c *Chooser) methods(p *Plan) [][]change {
	all, last := [][]change{nil}, []change(nil)
	if a := p.setup.Adapting; !a.On() {
		if !c.may("lora.rank", "adapter") {
			return all
		}
		last = []change{adapter}
		all = append(all, last)
	}
	if c.may("quantize") && !p.setup.Adapting.Quantized() && !p.keepsBits {
		all = append(all, append(slices.Clip(last), bits))
	}
	return all
}

// among tries changes, first with the shapes of batches as they are, then with others. first is nil where that was not
// tried yet.
func (c *Chooser) among(ctx context.Context, first *trial, changes []change) (_, found *trial) {
	c.family++
	if first == nil || changes != nil {
		first = c.try(ctx, changes, nil)
	}
	if first.fits() {
		return first, first
	}
	for i, s := range c.shapes(first) {
		t := c.try(ctx, append(slices.Clip(changes), s), nil)
		if i == 0 && t.memory && t.plan.Memory.Peak < first.plan.Memory.Peak {
			break // the least is too much: the others take more
		}
		if t.fits() && (found == nil || t.plan.Time.Likely < found.plan.Time.Likely) {
			found = t
		}
	}
	return first, found
}

// shapes are other shapes of batches, of which the first takes the least memory, but for engines that keep the memory
// of more programs then.
func (c *Chooser) shapes(t *trial) (all []change) {
	switch {
	case t.err != nil:
	case t.plan.Sampling != nil && t.memory && c.may(cacheKey):
		for share := 8; share > 1; share /= 2 {
			all = append(all, caches(t.plan.Sampling.Bytes()/share))
		}
	case t.plan.setup.Train.BatchSize == 0 || !c.may(microKey):
	case t.memory:
		all = narrower(t.plan)
	default:
		all = others(t.plan)
	}
	return all
}

// shorten tries fewer steps of what fits into the memory: as many as the time has room for.
func (c *Chooser) shorten(ctx context.Context) *trial {
	var of *trial
	for _, t := range c.tried {
		switch {
		case t.err != nil || t.memory:
		case of == nil, t.family == of.family && t.plan.Time.Likely < of.plan.Time.Likely:
			of = t
		}
	}
	if of == nil || !of.time || of.plan.Steps < 2 || !c.may("train.max_steps", "train.epochs") {
		return nil
	}
	of.why += "; fewer steps of it fit"
	at := func(n int) *trial { return c.plan(ctx, append(slices.Clip(of.changes), steps(n)), nil) }
	least := at(1)
	if !least.fits() {
		return c.keep(least)
	}
	each := (of.plan.Time.Likely - least.plan.Time.Likely) / float64(of.plan.Steps-1)
	n := 1 + int((c.Within.Seconds()-least.plan.Time.Likely)/each)
	for n = min(n, of.plan.Steps-1); n > 1; n-- {
		t := at(n)
		if t.fits() || t.err != nil {
			return c.keep(t)
		}
		n = min(n, int(float64(n)*c.Within.Seconds()/t.plan.Time.Likely))
	}
	return c.keep(least)
}

// try plans changes and keeps what came of it.
func (c *Chooser) try(ctx context.Context, changes []change, r run.Reporter) *trial {
	return c.keep(c.plan(ctx, changes, r))
}

func (c *Chooser) keep(t *trial) *trial {
	t.family = c.family
	c.tried = append(c.tried, t)
	c.Say("tried %s: %s", t.name(), cmp.Or(t.why, "fits"))
	return t
}

func (c *Chooser) plan(ctx context.Context, changes []change, r run.Reporter) *trial {
	t := &trial{changes: changes}
	var o recipe.Drafter
	if t.err = ctx.Err(); t.err == nil {
		o, t.err = c.Read(overrides(changes), r)
	}
	if t.err == nil {
		t.plan, t.err = c.bench.plan(ctx, o, r)
	}
	if t.err != nil {
		t.why, _, _ = strings.Cut(t.err.Error(), "\n")
		return t
	}
	t.memory, t.time, t.why = c.misses(t.plan)
	return t
}

// may says that keys can be changed.
func (c *Chooser) may(keys ...string) bool { return !slices.ContainsFunc(keys, c.Fixed) }

// doubt is how much more memory than its forecast a run may take; see docs/plan.md.
const doubt = 1.1

// Most is the peak with the doubt of the forecast.
func (m *Memory) Most() int { return int(doubt * float64(m.Peak)) }

// room is the most memory that a run may take.
func (l Limits) room(p *Plan) int {
	if l.Memory > 0 {
		return min(l.Memory, p.Memory.Available)
	}
	return p.Memory.Available
}

// misses says what a plan takes too much of, and why it is left out; "": it keeps the limits.
func (l Limits) misses(p *Plan) (memory, time bool, why string) {
	var all []string
	if memory = p.Memory.Most() > l.room(p); memory {
		all = append(all, fmt.Sprintf("takes %s, or up to %s", size(p.Memory.Peak), size(p.Memory.Most())))
	}
	if time = l.Within > 0 && p.Time.Likely > l.Within.Seconds(); time {
		all = append(all, fmt.Sprintf("takes %s", span(p.Time.Likely)))
	}
	if d := p.Disk; d.Free >= 0 && d.Most > d.Free {
		all = append(all, fmt.Sprintf("takes %s on the disk, where %s are free", size(d.Most), size(d.Free)))
	}
	return memory, time, strings.Join(all, "; ")
}

// excess is by how much a plan misses the limits.
func (l Limits) excess(p *Plan) string {
	var all []string
	if more := p.Memory.Most() - l.room(p); more > 0 {
		all = append(all, size(more)+" too much")
	}
	if more := p.Time.Likely - l.Within.Seconds(); l.Within > 0 && more > 0 {
		all = append(all, span(more)+" too long")
	}
	return strings.Join(all, " and ")
}

// beyond is how many times the limits a plan takes, of the one that it misses most.
func (l Limits) beyond(p *Plan) float64 {
	times := float64(p.Memory.Most()) / float64(l.room(p))
	if l.Within > 0 {
		times = math.Max(times, p.Time.Likely/l.Within.Seconds())
	}
	return times
}
