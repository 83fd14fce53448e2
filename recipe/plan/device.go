package plan

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// Device is what a compiler makes of a run's programs for a device that is not there. A floor is a time below which the
// device's rates allow nothing.
type Device struct {
	Name     string              `json:"name"`
	Devices  int                 `json:"devices"`
	Kept     string              `json:"kept,omitempty"` // the folder with its programs
	Programs []*backend.Compiled `json:"programs"`
	Step     float64             `json:"step_floor_seconds"`     // of an optimiser step, with its sampling and measuring
	Sampling float64             `json:"sampling_floor_seconds"` // of Step
	MFU      float64             `json:"mfu"`                    // of the training passes, at their floor
	Peak     int                 `json:"peak"`                   // bytes of a device, by the compiler
	Rows     int                 `json:"rows"`                   // of the largest batch's length that fit on all devices, about; 0: none, or nothing trains
}

// compile compiles every program of the run, by going through one batch of each shape, an update and a step's sampling. It
// keeps them in the folder into, if there is one.
func (p *Plan) compile(ctx context.Context, d *recipe.DryRun, r run.Reporter, into string) (*Device, error) {
	if into != "" {
		folder, err := filepath.Abs(into)
		if err == nil {
			err = d.Engine.KeepPrograms(folder)
		}
		if into = folder; err != nil {
			return nil, fmt.Errorf("--compile-into: %w", err)
		}
	}
	c := &compiling{DryRun: d, said: run.Listen(r), found: &Device{Name: d.Engine.Absent().Name, Devices: d.Engine.Devices(),
		Kept: into}}
	steps := float64(max(1, p.Steps))
	for _, s := range d.Survey.Shapes {
		before := c.found.Step
		err := c.phase(ctx, s.Count/steps, func() (err error) {
			if s.Objective == nil {
				_, err = d.Learner.Sums(s.Packed)
			} else {
				_, _, err = d.Learner.Accumulate(s.Packed, s.Objective, s.Inputs, 1)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if s.Objective != nil {
			c.training += c.found.Step - before
			c.noteTraining(s.Packed.Rows)
		}
	}
	err := c.phase(ctx, 1, func() error {
		_, err := d.Learner.Update(d.Train.AdamW(), d.Train.LearningRate)
		return err
	})
	if err == nil && d.Rehearse != nil {
		before := c.found.Step
		err = c.phase(ctx, 1, func() error { return d.Rehearse(ctx) })
		c.found.Sampling = c.found.Step - before
	}
	c.addUp(p)
	return c.found, err
}

// compiling is a run whose programs are being compiled.
type compiling struct {
	*recipe.DryRun
	said     run.Reporter
	found    *Device
	training float64 // floor of the passes of a step
	largest  *backend.Compiled
	rows     int // of the largest batch that trains
}

// phase runs a part of a step, which occurs some times in each, and adds its floor.
func (c *compiling) phase(ctx context.Context, times float64, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	before := map[*backend.Compiled]int{}
	for _, k := range c.Engine.Compiled() {
		before[k] = k.Runs
	}
	if err := f(); err != nil {
		return err
	}
	c.found.Programs = c.Engine.Compiled()
	for _, k := range c.found.Programs {
		if _, known := before[k]; !known {
			c.said.Say("compiled %s in %.1f s", shorten(k.Name), k.Seconds)
		}
		c.found.Step += times * float64(k.Runs-before[k]) * k.Floor
	}
	return nil
}

// noteTraining keeps the program of the batch that takes most memory.
func (c *compiling) noteTraining(rows int) {
	k := c.found.Programs[len(c.found.Programs)-1]
	if c.largest == nil || k.Temporary > c.largest.Temporary {
		c.largest, c.rows = k, rows
	}
}

// addUp adds up memory and rates.
func (c *compiling) addUp(p *Plan) {
	h := c.Learner.Footprint(c.Train.AdamW())
	h.Reference = c.ReferenceBytes
	held := h.Each().Sum()
	for _, k := range c.found.Programs {
		c.found.Peak = max(c.found.Peak, held+k.Temporary+k.Results-k.Aliased)
	}
	if s := c.Sampling; s != nil { // beside what is learnt: the cache
		c.found.Peak = max(c.found.Peak, held+s.Bytes()/max(1, s.Devices))
	}
	chip := c.Engine.Absent()
	if c.largest == nil {
		return
	}
	each := float64(c.largest.Temporary+c.largest.Results-c.largest.Aliased) / float64(c.rows)
	c.found.Rows = max(0, int(float64(chip.Memory-held)/each))
	tokens := p.Tokens / float64(max(1, p.Steps))
	operations := (4*float64(p.Parameters) + 2*float64(p.Trained)) * tokens
	rate := chip.Flops32
	if c.Learner.BFloat16() {
		rate = chip.Flops16
	}
	c.found.MFU = operations / (c.training * rate * float64(c.found.Devices))
}

func (v *Device) write(b *strings.Builder, p *Plan) {
	fmt.Fprintf(b, "\nprograms for %s", v.Name)
	if v.Devices > 1 {
		fmt.Fprintf(b, " (%d of them, each)", v.Devices)
	}
	fmt.Fprintln(b, ", as its compiler leaves them")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  program\tcompile\targuments\tresults\taliased\ttemporary\tkernels\tGFLOP\tread and written\tfloor")
	seconds := 0.0
	for _, c := range v.Programs {
		seconds += c.Seconds
		fmt.Fprintf(w, "  %s\t%.1f s\t%s\t%s\t%s\t%s\t%.0f\t%.3g\t%s\t%.3g ms\n", shorten(c.Name), c.Seconds, size(c.Arguments),
			size(c.Results), size(c.Aliased), size(c.Temporary), c.Kernels, c.Flops/1e9, size(int(c.Traffic)), 1e3*c.Floor)
	}
	w.Flush()
	fmt.Fprintf(b, "  %d programs, compiled in %.0f s here\n", len(v.Programs), seconds)
	if v.Kept != "" {
		fmt.Fprintf(b, "  they are in %s, for a run with POSTTRAIN_XLA_CACHE=%[1]s on such a device, and the same plugin\n", v.Kept)
	}
	fmt.Fprintf(b, "\nat the peak %s of %s on a device by the compiler (by the formula of plan: %s)", size(v.Peak),
		size(p.Memory.Available), size(p.Memory.Peak))
	if v.Rows > 0 {
		fmt.Fprintf(b, "; about %d rows of the largest batch's length fit", v.Rows)
	}
	fmt.Fprintf(b, "\nfloor of a step: %.3g ms", 1e3*v.Step)
	if v.Sampling > 0 {
		fmt.Fprintf(b, ", of which sampling %.3g ms", 1e3*v.Sampling)
	}
	fmt.Fprintf(b, "; training passes at it: %.0f%% MFU; the run: %s or more\n", 100*v.MFU, span(v.Step*float64(p.Steps)))
}

// shorten cuts the long name of a program.
func shorten(name string) string {
	const most = 44
	if len(name) > most {
		return name[:most-1] + "…"
	}
	return name
}
