package plan

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/posttrain/posttrain/internal/config"
)

// Choice says why a plan has its settings.
type Choice struct {
	Within  float64           `json:"within_seconds,omitempty"`
	Memory  int               `json:"memory"`  // that it may take at most, in bytes
	Fits    bool              `json:"fits"`    // false: nothing does, and this is the closest
	Command string            `json:"command"` // line that runs it
	Changes []config.Override `json:"-"`       // of the config
	Changed map[string]string `json:"changed"` // the same, by key
	GivesUp []string          `json:"gives_up"`
	LeftOut []LeftOut         `json:"left_out"`

	limits string
	closer string // by how much the closest misses
}

// LeftOut are settings that were tried, and why they were not taken.
type LeftOut struct {
	Settings string  `json:"settings"`
	Why      string  `json:"why"`
	Peak     int     `json:"peak,omitempty"`
	Likely   float64 `json:"likely_seconds,omitempty"`
}

// conclude is the plan of a trial, nil: of the closest, with what the others would have taken.
func (c *Chooser) conclude(own, chosen *trial) *Plan {
	if chosen == nil || !chosen.fits() {
		chosen = c.closest()
	}
	p := chosen.plan
	x := &Choice{Within: c.Within.Seconds(), Memory: c.room(p), Fits: chosen.fits(), Changes: overrides(chosen.changes),
		Changed: map[string]string{}, GivesUp: []string{}, LeftOut: []LeftOut{}, limits: size(c.room(p)),
		closer: fmt.Sprintf("%s, %s: %s", chosen.name(), chosen.why, c.excess(p))}
	if c.Within > 0 {
		x.limits = span(c.Within.Seconds()) + " and " + x.limits
	}
	for _, change := range chosen.changes {
		x.Changed[change.key] = change.value
		x.GivesUp = append(x.GivesUp, change.says(own.plan, p))
	}
	for _, t := range c.tried {
		if t != chosen {
			x.LeftOut = append(x.LeftOut, t.leftOut())
		}
	}
	p.Choice = x
	return p
}

func (t *trial) leftOut() LeftOut {
	l := LeftOut{Settings: t.name(), Why: t.why}
	if t.plan != nil {
		l.Peak, l.Likely = t.plan.Memory.Peak, t.plan.Time.Likely
	}
	if t.fits() {
		l.Why = "takes " + span(l.Likely) + ", more than what is chosen"
	}
	return l
}

// closest is the trial that misses the limits by least.
func (c *Chooser) closest() (best *trial) {
	for _, t := range c.tried {
		if t.err == nil && (best == nil || c.beyond(t.plan) < c.beyond(best.plan)) {
			best = t
		}
	}
	return best
}

// refusal is an error where nothing keeps the limits.
func (x *Choice) refusal() error {
	if x.Fits {
		return nil
	}
	return errors.New("no settings keep the run within " + x.limits + "; the closest: " + x.closer)
}

// write prints the choice.
func (x *Choice) write(b *strings.Builder) {
	verdict := "keeps within "
	if !x.Fits {
		verdict = "is the closest to "
	}
	fmt.Fprintf(b, "%s\n  %s%s", x.Command, verdict, x.limits)
	if len(x.GivesUp) == 0 {
		b.WriteString(", " + asItIs)
	}
	b.WriteString("\n")
	for _, text := range x.GivesUp {
		fmt.Fprintf(b, "  %s\n", text)
	}
	if len(x.LeftOut) > 0 {
		b.WriteString("\nleft out\n")
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, l := range x.LeftOut {
		fmt.Fprintf(w, "  %s\t%s\n", l.Settings, l.Why)
	}
	w.Flush()
	b.WriteString("\n")
}
