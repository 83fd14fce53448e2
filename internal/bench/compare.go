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

// rounds says how a comparison alternates between sides.
type rounds struct {
	count  int           // rounds that count
	warmup int           // rounds before them
	pause  time.Duration // before every step
	long   time.Duration // if the first round takes longer, it is the only warm-up, and five rounds count; 0: never
	loose  float64       // how far losses may differ, for sides of two types; 0: tolerance
	draws  bool          // sides sample for themselves, so that their losses need not agree
}

func (r *rounds) register(flags *pflag.FlagSet) {
	flags.IntVar(&r.count, "rounds", cmp.Or(r.count, 9), "rounds measured (to quote a figure: 7, or 5 slow ones)")
	flags.DurationVar(&r.pause, "pause", 300*time.Millisecond, "pause before every step, for threads to come to rest")
	r.warmup = 2
}

// few makes n the number of rounds, or five if a round takes long.
func (r *rounds) few(n int) { r.count, r.long = n, 3*time.Second }

// series is what one side did, round by round.
type series struct {
	side    *side
	seconds []float64
	losses  []float64 // with those of the warm-up
	answers []did     // of the rounds that count
	peakMB  float64
}

// alternate has every side do one thing in each round.
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
		if err := agree(all, round, cmp.Or(r.loose, tolerance)); err != nil && !r.draws {
			return nil, err
		}
		if r.long > 0 && round == 0 && time.Since(begin) > r.long {
			r.warmup, r.count = min(r.warmup, 1), min(r.count, 5)
		}
	}
	return all, nil
}

// cpu is the least processor time of a round; 0: the side does not say it.
func (s *series) cpu() float64 {
	least := s.answers[0].CPU
	for _, d := range s.answers {
		least = min(least, d.CPU)
	}
	return least
}

// note keeps an answer; of one of the warm-up only the loss.
func (s *series) note(d did, counts bool) {
	s.losses, s.peakMB = append(s.losses, d.Loss), d.PeakRSSMB
	if counts {
		s.seconds, s.answers = append(s.seconds, d.Seconds), append(s.answers, d)
	}
}

// tolerance of losses between sides: sums of thousands of log-probs are rounded to float32.
const tolerance = 1e-4

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

// ratios are the ratios of two sides' times, round by round.
func ratios(x, to *series) []float64 {
	out := make([]float64, len(x.seconds))
	for i := range out {
		out[i] = x.seconds[i] / to.seconds[i]
	}
	return out
}

// table prints a title, a header and rows, whose columns end with tabs.
func table(out io.Writer, title, header string, rows func(w io.Writer)) {
	fmt.Fprintf(out, "\n%s; load of the machine %s\n", title, load())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, header)
	rows(w)
	w.Flush()
}

// report prints the table of a comparison; ratios are to the first side.
func report(out io.Writer, title string, all []*series) {
	first := all[0]
	title = fmt.Sprintf("%s; %d rounds after the warm-up, losses agree (%.5f to %.5f)",
		title, len(first.seconds), first.losses[0], first.losses[len(first.losses)-1])
	header := "side\tmedian s\tfastest s\tCPU s\ttokens\tpeak MB\tof medians\tof fastest\tround by round, quartiles\t"
	table(out, title, header, func(w io.Writer) {
		for i, s := range all {
			m, f := median(s.seconds), slices.Min(s.seconds)
			fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%.2f\t%d\t%.0f\t", s.side.title(), m, f, s.cpu(), s.side.ready.Tokens,
				s.peakMB)
			if i == 0 {
				fmt.Fprintln(w, "1\t1\t1\t")
				continue
			}
			r := ratios(s, first)
			fmt.Fprintf(w, "%.3f\t%.3f\t%.3f (%.3f to %.3f)\t\n", m/median(first.seconds), f/slices.Min(first.seconds),
				median(r), quantile(r, 0.25), quantile(r, 0.75))
		}
	})
}

// goal prints a ratio of medians and whether it reaches its target.
func goal(out io.Writer, what string, x, to *series, most float64) {
	r := median(x.seconds) / median(to.seconds)
	fmt.Fprintf(out, "%s: %.3f, asked for at most %.2f: %s\n", what, r, most, verdict(r <= most))
}

// atLeast prints one side's rate over another's and whether it reaches its target; 0: there is no target.
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

// load is the machine's load averages, "unknown" on systems other than Linux.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}
