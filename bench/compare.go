package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
)

// rounds says how often, and how gently, sides are compared.
type rounds struct {
	count  int           // measured rounds
	warmup int           // rounds thrown away before
	pause  time.Duration // before every step
	long   time.Duration // a first round that takes longer is all the warm-up, and five rounds are measured; 0: no such rule
	draws  bool          // sides draw for themselves, and their losses need not agree
}

func (r *rounds) register(flags *pflag.FlagSet) {
	flags.IntVar(&r.count, "rounds", cmp.Or(r.count, 9), "rounds measured (at least 7 for a figure to be quoted, 5 where one takes long)")
	flags.DurationVar(&r.pause, "pause", 300*time.Millisecond, "pause before every step: threads spin for a while after their work")
	r.warmup = 2
}

// series is what one side did, round by round.
type series struct {
	side    *side
	seconds []float64
	losses  []float64 // those of the rounds thrown away included
	answers []did     // in full, of the rounds that count
	peakMB  float64
}

// alternate has every side do a thing once a round.
func (r rounds) alternate(sides []*side, word string) ([]*series, error) {
	all := make([]*series, len(sides))
	for i, s := range sides {
		all[i] = &series{side: s}
	}
	for round := 0; round < r.warmup+r.count; round++ {
		begin := time.Now()
		for _, s := range all {
			time.Sleep(r.pause)
			d, err := s.side.ask(word)
			if err != nil {
				return nil, err
			}
			s.note(d, round >= r.warmup)
		}
		if err := agree(all, round); err != nil && !r.draws {
			return nil, err
		}
		if r.long > 0 && round == 0 && time.Since(begin) > r.long {
			r.warmup, r.count = min(r.warmup, 1), min(r.count, 5)
		}
	}
	return all, nil
}

// note keeps an answer; one of the warm-up counts only as a loss.
func (s *series) note(d did, counts bool) {
	s.losses, s.peakMB = append(s.losses, d.Loss), d.PeakRSSMB
	if counts {
		s.seconds, s.answers = append(s.seconds, d.Seconds), append(s.answers, d)
	}
}

// tolerance of losses between sides: of the rounding of sums of thousands of log-probs in float32.
const tolerance = 1e-4

// agree holds the losses of a round against the first side's: a side that trains something else measures nothing.
func agree(all []*series, round int) error {
	want := all[0].losses[round]
	for _, s := range all[1:] {
		if got := s.losses[round]; !(math.Abs(got-want) <= tolerance*max(1, math.Abs(want))) {
			return fmt.Errorf("round %d: the loss of %s is %.6f, that of %s %.6f: they do not train the same thing", round+1, s.side.name, got, all[0].side.name, want)
		}
	}
	return nil
}

func median(x []float64) float64 { return quantile(x, 0.5) }

// quantile interpolates between the sorted values.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(x))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 == len(s) {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// ratios are those of two sides' times, round by round.
func ratios(x, to *series) []float64 {
	out := make([]float64, len(x.seconds))
	for i := range out {
		out[i] = x.seconds[i] / to.seconds[i]
	}
	return out
}

// report prints the table of a comparison; ratios are to the first side.
func report(out io.Writer, title string, all []*series) {
	fmt.Fprintf(out, "\n%s; %d rounds after the warm-up, losses agree (%.5f to %.5f); load of the machine %s\n",
		title, len(all[0].seconds), all[0].losses[0], all[0].losses[len(all[0].losses)-1], load())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "side\tmedian s\tfastest s\ttokens\tpeak MB\tof medians\tof fastest\tround by round, quartiles\t")
	for i, s := range all {
		fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%d\t%.0f\t", s.side.name, median(s.seconds), slices.Min(s.seconds), s.side.ready.Tokens, s.peakMB)
		if i > 0 {
			r := ratios(s, all[0])
			fmt.Fprintf(w, "%.3f\t%.3f\t%.3f (%.3f to %.3f)\t", median(s.seconds)/median(all[0].seconds),
				slices.Min(s.seconds)/slices.Min(all[0].seconds), median(r), quantile(r, 0.25), quantile(r, 0.75))
		} else {
			fmt.Fprint(w, "1\t1\t1\t")
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// goal prints how a ratio of medians stands to what is asked of it.
func goal(out io.Writer, what string, x, to *series, most float64) {
	r := median(x.seconds) / median(to.seconds)
	fmt.Fprintf(out, "%s: %.3f, asked for at most %.2f: %s\n", what, r, most, verdict(r <= most))
}

// atLeast prints how many times the rate of another side a side reaches, against what is asked of it; 0: nothing is.
func atLeast(out io.Writer, x, to *series, least float64) {
	r := median(to.seconds) / median(x.seconds)
	fmt.Fprintf(out, "%s against %s: %.2fx", x.side.name, to.side.name, r)
	if least > 0 {
		fmt.Fprintf(out, ", asked for at least %.2fx: %s", least, verdict(r >= least))
	}
	fmt.Fprintln(out)
}

func verdict(reached bool) string {
	if reached {
		return "reached"
	}
	return "MISSED"
}

// load is the machine's load averages, "unknown" where the system does not give them.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}
