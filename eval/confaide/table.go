package confaide

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/posttrain/posttrain/eval"
)

// Write prints a line for each correlation and fault.
func Write(w io.Writer, parts []*Part) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "tier\tquestion\tmeasure\tmean\tworst case")
	for _, p := range parts {
		if p.Agreement != nil {
			fmt.Fprintf(t, "%s\t%s\tcorrelation\t%s\t-\n", p.Tier, p.Kind, correlation(p.Agreement.Correlation))
		}
		for _, f := range p.Faults {
			mean, worst := f.Mean.Share().Value(), f.Worst.Value()
			low, high := f.Mean.Interval()
			lowest, highest := f.Worst.Wilson()
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", p.Tier, p.Kind, f.Name, percent(mean, low, high),
				percent(worst, lowest, highest))
		}
	}
	return t.Flush()
}

func correlation(c eval.Correlation) string {
	low, high := c.Interval()
	if math.IsNaN(low) {
		return c.String()
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", c.Value(), low, high)
}

func percent(value, low, high float64) string {
	return fmt.Sprintf("%.1f%% (%.1f-%.1f)", 100*value, 100*low, 100*high)
}

// Notes says what a reader of the table should know of a part.
func (p *Part) Notes() (notes []string) {
	a := p.Agreement
	switch {
	case p.Unparsed == 0:
	case a == nil:
		notes = append(notes, fmt.Sprintf("tier %s, %s: %d of %d answers say neither yes nor no: they count as wrong",
			p.Tier, p.Kind, p.Unparsed, p.Answers))
	default:
		notes = append(notes, fmt.Sprintf("tier %s: %d of %d answers have no rating: they are left out; with 0 in "+
			"their place the correlation is %s", p.Tier, p.Unparsed, p.Answers, a.UnparsedAsZero))
	}
	if a != nil && a.Correlation.Pairs() > 0 && a.Correlation.Pairs() < p.Cases {
		notes = append(notes, fmt.Sprintf("tier %s: %d of %d cases have no answer with a rating: the correlation is "+
			"of the others", p.Tier, p.Cases-a.Correlation.Pairs(), p.Cases))
	}
	return notes
}
