package gate

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// String is a line for each check, and what the gate says.
func (r *Report) String() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "norm\tchannel\tleakage (at least, at most)\tlimit\tutility (at least, at most)\tfloor\tverdict")
	for _, c := range r.Checks {
		utility, floor := "-", "-"
		if c.Utility != nil {
			utility, floor = c.Utility.String(), percent(c.Utility.Limit)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Norm, c.Channel, c.Leakage, percent(c.Leakage.Limit), utility,
			floor, c.Verdict)
	}
	t.Flush()
	return b.String() + fmt.Sprintf("Gate: %s\n", r.Words())
}

// Words say the gate's verdict with its reason.
func (r *Report) Words() string {
	count, all := 0, len(r.Checks)
	for _, c := range r.Checks {
		if c.Verdict == r.Verdict {
			count++
		}
	}
	switch r.Verdict {
	case Fail:
		return fmt.Sprintf("fail: %d of %d checks are beyond a limit", count, all)
	case Pass:
		return fmt.Sprintf("pass: all %d checks are within their limits", all)
	}
	return fmt.Sprintf("undecided: no check is beyond a limit, but %d of %d have too few scenarios to tell", count, all)
}

// String gives the share with its bounds.
func (t *Test) String() string {
	return fmt.Sprintf("%s %d/%d (%.1f, %.1f)", percent(t.Count.Share()), t.Count.Hits, t.Count.Scenarios, 100*t.Low,
		100*t.High)
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// Notes say what a reader of the table should know.
func (r *Report) Notes() (notes []string) {
	few, thinks := 0, false
	for _, c := range r.Checks {
		if n := Enough(c.Leakage.Limit, r.Error); c.Leakage.Count.Scenarios < n {
			few = max(few, n)
		}
		thinks = thinks || c.Channel == Think
	}
	if few > 0 {
		notes = append(notes, fmt.Sprintf("there are limits of leakage that no answers can pass: want %d scenarios or "+
			"more", few))
	}
	if thinks && r.Thinks == 0 {
		notes = append(notes, fmt.Sprintf("none of %d answers has a think block: nothing can leak there", r.Answers))
	}
	return notes
}
