package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	picture "github.com/posttrain/posttrain/internal/run"
)

// report is what the tables show.
type report struct {
	plan
	done   *log[run, result]
	best   map[cell]float64
	finals map[cell]interval
	goal   float64           // 80% of the best final return
	reach  map[cell]interval // thousands of time steps of each agent until the goal
	missed map[cell]int      // runs that did not reach it
}

func newReport(p plan, done *log[run, result], best map[cell]float64) *report {
	r := &report{p, done, best, map[cell]interval{}, 0, map[cell]interval{}, map[cell]int{}}
	for _, c := range p.cells() {
		r.finals[c] = intervalOf(r.over(c, func(x result) float64 { return last(x.Returns) }))
		r.goal = max(r.goal, 0.8*r.finals[c].mean)
	}
	for _, c := range p.cells() {
		r.reach[c] = intervalOf(r.over(c, func(x result) float64 { return r.steps(c, x) }))
	}
	return r
}

// over are the values of a cell's runs by seed.
func (r *report) over(c cell, value func(result) float64) (all []float64) {
	for s := range r.Seeds {
		all = append(all, value(r.done.results[run{c, r.best[c], uint64(s), ""}]))
	}
	return all
}

// window are the iterations whose mean return reaches the goal.
const window = 5

// steps are the thousands of time steps of each agent until the goal; a run that misses it counts with all.
func (r *report) steps(c cell, x result) float64 {
	k := window
	for ; k <= len(x.Returns) && mean(x.Returns[k-window:k]) < r.goal; k++ {
	}
	if k > len(x.Returns) {
		r.missed[c]++
		k = len(x.Returns)
	}
	return float64(k*r.options(run{cell: c}).Control.Steps) / 1000
}

// print writes the tables as Markdown.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "Final return: mean of the last %d of %d iterations, at the best rate (in brackets).\n\n",
		finalIterations, r.Iterations)
	r.table(out, func(c cell) string {
		return fmt.Sprintf("%.0f ± %.0f (%g)", r.finals[c].mean, r.finals[c].half, r.best[c])
	})
	fmt.Fprintf(out, "\nTime steps of each agent, in thousands, until the mean return of %d iterations is %.0f: "+
		"80%% of the best\nfinal return. ≥: not all runs reached it; those that did not count with all their "+
		"steps.\n\n", window, r.goal)
	r.table(out, func(c cell) string {
		entry := fmt.Sprintf("%.0f ± %.0f", r.reach[c].mean, r.reach[c].half)
		return strings.Repeat("≥ ", min(1, r.missed[c])) + entry
	})
	fmt.Fprintf(out, "\nVirtual time of %d gradients an agent, that over the formula's (in brackets), and fedpg's "+
		"over that.\n\n", r.Iterations)
	r.table(out, func(c cell) string {
		t := r.time(c)
		return fmt.Sprintf("%.1f (%.3f), %.2f", t, t/r.formula(c), r.time(cell{protocol.FedPG, c.Agents})/t)
	})
	r.special(out)
	r.conclude(out)
}

func (r *report) table(out io.Writer, entry func(cell) string) {
	table(out, r.Methods, r.Agents, entry)
}

// table has a row for each method and a column for each number of agents.
func table(out io.Writer, methods []string, agents []int, entry func(cell) string) {
	fmt.Fprint(out, "| method |")
	for _, n := range agents {
		fmt.Fprintf(out, " N = %d |", n)
	}
	fmt.Fprint(out, "\n|---|", strings.Repeat("---|", len(agents)), "\n")
	for _, m := range methods {
		fmt.Fprintf(out, "| %s |", m)
		for _, n := range agents {
			fmt.Fprintf(out, " %s |", entry(cell{m, n}))
		}
		fmt.Fprintln(out)
	}
}

// special is the table of the variants.
func (r *report) special(out io.Writer) {
	fmt.Fprintf(out, "\nAFedPG with %d agents.\n\n| | final return |\n|---|---|\n", r.Agents[len(r.Agents)-1])
	values := map[string][]float64{}
	for _, x := range r.varied(r.best) {
		values[x.Variant] = append(values[x.Variant], last(r.done.results[x].Returns))
	}
	for _, variant := range r.variants() {
		i := intervalOf(values[variant])
		fmt.Fprintf(out, "| %s | %.0f ± %.0f |\n", variant, i.mean, i.half)
	}
}

func (r *report) time(c cell) float64 { return r.done.results[run{c, r.best[c], 0, ""}].Time }

// formula is the time of the plan's gradients by the paper's closed form.
func (r *report) formula(c cell) float64 {
	times, err := federated.Geometric.Times(c.Agents, r.Ratio)
	if err != nil {
		return math.NaN()
	}
	gradients := float64(r.Iterations * c.Agents)
	if protocol.Asynchronous(c.Method) {
		return gradients * federated.AsyncPerGradient(times)
	}
	return gradients * federated.SyncPerGradient(times)
}

// conclude says what holds.
func (r *report) conclude(out io.Writer) {
	off, apart, falls := 0.0, []string{}, true
	for _, c := range r.cells() {
		off = max(off, math.Abs(r.time(c)/r.formula(c)-1))
	}
	for i, n := range r.Agents {
		a := cell{protocol.AFedPG, n}
		if !r.finals[a].overlaps(r.finals[cell{protocol.FedPG, n}]) {
			apart = append(apart, fmt.Sprint(n))
		}
		falls = falls && (i == 0 || r.reach[a].mean < r.reach[cell{protocol.AFedPG, r.Agents[i-1]}].mean)
	}
	overlap := "at every N"
	if len(apart) > 0 {
		overlap = "not at N = " + strings.Join(apart, ", ")
	}
	fmt.Fprintf(out, "\n- Time at equal samples is within %.1f%% of the formula.\n", 100*off)
	fmt.Fprintf(out, "- AFedPG's interval of the final return overlaps FedPG's: %s.\n", overlap)
	fmt.Fprintf(out, "- AFedPG's samples of each agent to the goal fall with every N: %v.\n", falls)
	for _, n := range r.Agents {
		d := r.lookahead(n)
		fmt.Fprintf(out, "- N = %d: AFedPG less vanilla, mean return over all iterations, by seed: %.0f ± %.0f.\n",
			n, d.mean, d.half)
	}
}

// lookahead is the gain by the lookahead in the mean return over all iterations.
func (r *report) lookahead(n int) interval {
	area := func(x result) float64 { return mean(x.Returns) }
	difference := r.over(cell{protocol.AFedPG, n}, area)
	for i, v := range r.over(cell{protocol.Vanilla, n}, area) {
		difference[i] -= v
	}
	return intervalOf(difference)
}

// draw is the picture of the returns with the most agents, by the time steps of an agent and by virtual time.
func (r *report) draw() error {
	n := r.Agents[len(r.Agents)-1]
	samples := picture.Panel{Label: "return", X: "time steps of an agent"}
	times := picture.Panel{Label: "return", X: "virtual time, in the fastest agent's gradients"}
	for _, m := range r.Methods {
		c := cell{m, n}
		l, steps := r.line(c), float64(r.options(run{cell: c}).Control.Steps)
		samples.Lines = append(samples.Lines, l.by(m, steps))
		times.Lines = append(times.Lines, l.by(m, r.time(c)/float64(r.Iterations)))
	}
	title := fmt.Sprintf("%s, %d agents: mean of %d seeds with 95%% bands", r.Task, n, r.Seeds)
	return picture.Curves(r.Curves, title, []picture.Panel{samples, times})
}

// returns are those of a cell's iterations, with their intervals.
type returns []interval

func (r *report) line(c cell) (l returns) {
	for k := range r.Iterations {
		l = append(l, intervalOf(r.over(c, func(x result) float64 { return x.Returns[k] })))
	}
	return l
}

// by is the line over what an iteration takes.
func (l returns) by(name string, unit float64) (line picture.Line) {
	line.Name = name
	for k, i := range l {
		line.X, line.Y = append(line.X, float64(k+1)*unit), append(line.Y, i.mean)
		line.Half = append(line.Half, i.half)
	}
	return line
}
