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
	p.Memory.write(&b)
	return b.String()
}

func (p *Plan) writeShapes(b *strings.Builder) {
	fmt.Fprintf(b, "\nbatches, a program for each shape\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  shape\tpredicted\tpurpose\tbatches\tactivations")
	for _, s := range p.Shapes {
		purpose := "trains"
		if !s.Trains {
			purpose = "measures"
		}
		fmt.Fprintf(w, "  %d×%d\t%d\t%s\t%.0f\t%s\n", s.Rows, s.Len, s.Slots, purpose, s.Batches, size(s.Bytes))
	}
	w.Flush()
}

func (m *Memory) write(b *strings.Builder) {
	fmt.Fprintf(b, "\nmemory\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, i := range m.Items {
		fmt.Fprintf(w, "  %s\t  %s\t\n", size(i.Bytes), i.Name)
	}
	fmt.Fprintf(w, "  %s\t  at the peak, of %s\t\n", size(m.Peak), size(m.Available))
	w.Flush()
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
