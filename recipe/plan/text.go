package plan

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/posttrain/posttrain/recipe"
)

// String prints the plan as tables.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s on engine %s in %s: %s parameters, %s trained\n", p.Command, p.Model, p.Engine, p.DType,
		count(float64(p.Parameters)), count(float64(p.Trained)))
	fmt.Fprintf(&b, "%d %s, %s, %s tokens to train on\n", p.Examples, p.Unit, recipe.Count(p.Steps, "step"),
		count(p.Tokens))
	p.writeShapes(&b)
	if s := p.Sampling; s != nil {
		fmt.Fprintf(&b, "\nsampling: %v; %s answers of at most %d tokens in the run\n", s.Plan, count(s.Answers), s.New)
	}
	p.Memory.write(&b)
	if p.Device != nil {
		p.Device.write(&b, p)
	} else {
		fmt.Fprintf(&b, "\n%s\n", p.Time)
	}
	if p.Rehearsal != nil {
		fmt.Fprintf(&b, "\n%s", p.Rehearsal)
	}
	return b.String()
}

func (p *Plan) writeShapes(b *strings.Builder) {
	fmt.Fprintf(b, "\nbatches, a program for each shape; short examples share a row, and none sees another\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  shape\tpredicted\tpurpose\tbatches\tvalues")
	for _, s := range p.Shapes {
		purpose := "trains"
		if !s.Trains {
			purpose = "measures"
		}
		fmt.Fprintf(w, "  %d×%d\t%d\t%s\t%.0f\t%s\n", s.Rows, s.Len, s.Slots, purpose, s.Batches, size(s.Alive))
	}
	w.Flush()
}

func (m *Memory) write(b *strings.Builder) {
	title := "memory"
	if m.Devices > 1 {
		title = fmt.Sprintf("memory of each of %d devices", m.Devices)
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, i := range m.Items {
		fmt.Fprintf(b, "  %10s  %s\n", size(i.Bytes), i.Name)
	}
	fmt.Fprintf(b, "  %10s  at the peak; there are %s\n", size(m.Peak), size(m.Available))
}

// String says the time with its range.
func (t Time) String() string {
	return fmt.Sprintf("time: about %s (%s to %s); matrix products here: %.0f GFLOP/s", span(t.Likely), span(t.Least),
		span(t.Most), t.Rate/1e9)
}

// span writes seconds.
func span(seconds float64) string {
	switch {
	case seconds < 90:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 90*60:
		return fmt.Sprintf("%.0f min", seconds/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%.1f h", seconds/3600)
	}
	return fmt.Sprintf("%.1f days", seconds/86400)
}

// size writes bytes.
func size(n int) string {
	if n < 1e8 {
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}

// count writes a large number.
func count(n float64) string {
	switch {
	case n < 1e4:
		return fmt.Sprintf("%.0f", n)
	case n < 1e6:
		return fmt.Sprintf("%.1fk", n/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.1fM", n/1e6)
	}
	return fmt.Sprintf("%.2fB", n/1e9)
}
