package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// series is what one side did, round by round.
type series struct {
	side    *side
	seconds []float64
	losses  []float64 // with the losses of the warm-up
	answers []did     // of the rounds that count
	peakMB  float64
}

const (
	pause  = 300 * time.Millisecond // before every step, for threads to come to rest
	warmup = 2                      // rounds that do not count
	long   = 3 * time.Second        // if the first round takes longer, it is the only warm-up, and five rounds count
)

// tolerance of losses between sides: sums of thousands of log-probs are rounded to float32. Sides of two types differ
// more.
func (o *options) tolerance() float64 {
	if o.BFloat16 {
		return 0.02
	}
	return 1e-4
}

// alternate has every side do one thing in each round. Losses need not agree if they may differ without end.
func (o *options) alternate(sides []*side, word string, tolerance float64) ([]*series, error) {
	all := make([]*series, len(sides))
	for i, s := range sides {
		all[i] = &series{side: s}
	}
	before, count := warmup, o.rounds
	for round := 0; round < before+count; round++ {
		begin := time.Now()
		for _, s := range all {
			time.Sleep(pause)
			var d did
			if err := s.side.ask(word, &d); err != nil {
				return nil, err
			}
			s.losses, s.peakMB = append(s.losses, d.Loss), d.PeakRSSMB
			if round >= before {
				s.seconds, s.answers = append(s.seconds, d.Seconds), append(s.answers, d)
			}
		}
		if err := agree(all, round, tolerance); err != nil {
			return nil, err
		}
		if round == 0 && time.Since(begin) > long {
			before, count = 1, min(count, 5)
		}
	}
	return all, nil
}

// agree compares the losses of a round with the first side's. If a side trains something else, its time means nothing.
func agree(all []*series, round int, most float64) error {
	want := all[0].losses[round]
	for _, s := range all[1:] {
		if got := s.losses[round]; !(math.Abs(got-want) <= most*max(1, math.Abs(want))) {
			return fmt.Errorf("round %d: the loss of %s is %.6f, that of %s %.6f: they do not train the same thing",
				round+1, s.side.name, got, all[0].side.name, want)
		}
	}
	return nil
}

func median(x []float64) float64 { return quantile(x, 0.5) }

// quantile interpolates between the sorted values.
func quantile(x []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(x))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// column is a number of a side in a table.
type column struct {
	title, form string
	of          func(s *series) float64
}

// medianOf is a column with the median of what the rounds say.
func medianOf(title, form string, f func(did) float64) column {
	return column{title, form, func(s *series) float64 { return s.median(f) }}
}

func (s *series) median(f func(did) float64) float64 {
	var all []float64
	for _, d := range s.answers {
		all = append(all, f(d))
	}
	return median(all)
}

// report prints the table of a comparison. The ratios are of a side's times to the first one's, by medians and round by
// round.
func report(out io.Writer, title string, all []*series, more ...column) {
	first := all[0].seconds
	columns := append([]column{
		{"median s", "%.4f", func(s *series) float64 { return median(s.seconds) }},
		{"fastest s", "%.4f", func(s *series) float64 { return slices.Min(s.seconds) }},
		medianOf("CPU s", "%.2f", func(d did) float64 { return d.CPU }),
		{"peak MB", "%.0f", func(s *series) float64 { return s.peakMB }},
		{"to the first", "%.3f", func(s *series) float64 { return median(s.seconds) / median(first) }},
		{"round by round, quartiles", "%.3f", func(s *series) float64 { return quantile(ratios(s.seconds, first), 0.25) }},
		{"", "%.3f", func(s *series) float64 { return quantile(ratios(s.seconds, first), 0.75) }},
	}, more...)
	fmt.Fprintf(out, "\n%s; %d rounds after the warm-up; load of the machine %s\n", title, len(first), load())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "side\t")
	for _, c := range columns {
		fmt.Fprint(w, c.title, "\t")
	}
	fmt.Fprintln(w)
	for _, s := range all {
		fmt.Fprint(w, s.side.title(), "\t")
		for _, c := range columns {
			fmt.Fprintf(w, c.form+"\t", c.of(s))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

func ratios(x, to []float64) []float64 {
	out := make([]float64, len(x))
	for i := range out {
		out[i] = x[i] / to[i]
	}
	return out
}

// load is the machine's load averages, "unknown" on systems other than Linux.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}
