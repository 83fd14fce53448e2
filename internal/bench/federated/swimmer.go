package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posttrain/posttrain/federated/protocol"
	picture "github.com/posttrain/posttrain/internal/run"
	recipe "github.com/posttrain/posttrain/recipe/federated"
)

// trial is a run of E1 or E2.
type trial struct {
	Task   string
	Method string
	Agents int
	Select float64 // share of the agents in a round
	Absent string  `json:",omitempty"` // of fednpg-admm
	Seed   uint64

	Undamped bool `json:",omitempty"` // fednpg-admm without damping, as in Algorithm 1
}

// course is a trial that has ended.
type course struct {
	trial
	Rounds   int
	Returns  []float64 // of each round
	KL       []float64 // of each step, over δ
	Refused  int       // rounds without a step
	Up, Down float64   // bytes of an agent in a round, mean
	Wall     float64   // seconds
}

func (c course) key() trial  { return c.trial }
func (c course) length() int { return c.Rounds }

func (c course) String() string {
	return fmt.Sprintf("%s %s N=%d select=%g %s seed=%d: %.1f at the end, %.0f s", c.Task, c.Method, c.Agents,
		c.Select, c.Absent, c.Seed, last(c.Returns), c.Wall)
}

// schooling is what is measured.
type schooling struct {
	Task   string
	Rounds int
	Seeds  int
	Agents []int
	Runs   string // file of the runs that have ended
	Curves string // picture
	steps  int    // of a batch; 0: the paper's

	Undamped bool // runs of fednpg-admm
}

// experiment gives the runs, and what prints their tables.
type experiment func(schooling) (trials []trial, print func(io.Writer, *log[trial, course]) error)

// sizes is E1: methods by numbers of agents.
func sizes(s schooling) (trials []trial, print func(io.Writer, *log[trial, course]) error) {
	methods := []string{protocol.FedNPG, protocol.FedNPGADMM, protocol.FedPPO}
	for _, n := range s.Agents {
		for _, m := range methods {
			trials = append(trials, s.seeds(s.cell(cell{m, n}))...)
		}
	}
	return trials, func(out io.Writer, done *log[trial, course]) error { return s.printSizes(out, methods, done) }
}

// shares of the agents in E2.
var shares = []float64{1, 0.75, 0.5}

// selection is E2: shares of the agents, hold and drop, with the most agents.
func selection(s schooling) (trials []trial, print func(io.Writer, *log[trial, course]) error) {
	for _, t := range s.selections() {
		trials = append(trials, s.seeds(t)...)
	}
	return trials, s.printSelection
}

func (s schooling) selections() (all []trial) {
	for _, share := range shares {
		absent := []string{"hold", "drop"}
		if share == 1 { // nobody is absent: these are E1's runs
			absent = []string{""}
		}
		for _, a := range absent {
			t := s.cell(cell{protocol.FedNPGADMM, s.Agents[len(s.Agents)-1]})
			t.Select, t.Absent = share, a
			all = append(all, t)
		}
	}
	return all
}

func (s schooling) seeds(t trial) (all []trial) {
	for seed := range s.Seeds {
		t.Seed = uint64(seed)
		all = append(all, t)
	}
	return all
}

// swimming runs E1 or E2 and prints its tables.
func swimming(ctx context.Context, args []string, e experiment) error {
	s := schooling{}
	flags := flag.NewFlagSet("federated", flag.ExitOnError)
	flags.StringVar(&s.Task, "task", "swimmer", "swimmer or hopper")
	flags.IntVar(&s.Rounds, "rounds", 150, "rounds")
	flags.IntVar(&s.Seeds, "seeds", 5, "seeds")
	agents := flags.String("agents", "1,2,4,8", "numbers of agents, ascending; e2 takes the last")
	flags.StringVar(&s.Runs, "runs", "e1.jsonl", "file of the runs that have ended")
	flags.StringVar(&s.Curves, "curves", "", "picture of the returns with 95% bands")
	flags.BoolVar(&s.Undamped, "undamped", false, "fednpg-admm without damping, as in Algorithm 1")
	flags.Parse(args)
	for text := range strings.SplitSeq(*agents, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("--agents %s: want numbers such as 1,2,4,8", *agents)
		}
		s.Agents = append(s.Agents, n)
	}
	if _, ok := tasks[s.Task]; !ok || s.Rounds < 1 || s.Seeds < 1 {
		return fmt.Errorf("--task %s --rounds %d --seeds %d: want swimmer or hopper, and numbers above 0", s.Task,
			s.Rounds, s.Seeds)
	}
	return s.measure(ctx, os.Stdout, os.Stderr, e)
}

func (s schooling) measure(ctx context.Context, out, progress io.Writer, e experiment) error {
	done, err := open[trial, course](s.Runs, s.Rounds)
	if err != nil {
		return err
	}
	defer done.file.Close()
	trials, print := e(s)
	if err := runAll(ctx, progress, runtime.GOMAXPROCS(0), trials, done, s.do); err != nil {
		return err
	}
	return print(out, done)
}

// tasks are the papers' batches and hidden layers, and their final rewards by N = 1, 2, 4, 8.
var tasks = map[string]struct {
	steps     int
	hidden    []int
	published map[string][]string
}{
	"swimmer": {2048, []int{64, 64}, map[string][]string{
		protocol.FedNPG:     {"111.9 ± 5.4", "119.5 ± 3.4", "122.1 ± 3.6", "124.8 ± 2.4"},
		protocol.FedNPGADMM: {"109.4 ± 5.9", "123.6 ± 10.3", "127.2 ± 2.2", "128.5 ± 1.9"}}},
	"hopper": {1024, []int{128, 128}, map[string][]string{
		protocol.FedNPG:     {"1644 ± 396", "2468 ± 426", "2458 ± 171", "2736 ± 158"},
		protocol.FedNPGADMM: {"1473 ± 383", "2384 ± 371", "2507 ± 230", "2719 ± 173"}}},
}

// options are a trial's: the paper's table, and the learning rate there as the critic's.
func (t trial) options(rounds int) recipe.Options {
	o := recipe.Defaults(t.Method)
	o.Agents, o.Seed, o.Rounds, o.Select = t.Agents, t.Seed, &rounds, &t.Select
	if t.Absent != "" {
		o.Absent = &t.Absent
	}
	if t.Undamped { // a trial of fednpg-admm
		o.Damping = new(0.0)
	}
	takeTask(&o, t.Task)
	return o
}

// takeTask gives options the papers' task: batch, policy and critic.
func takeTask(o *recipe.Options, task string) {
	c := &o.Control
	c.Environment, c.Steps, c.Hidden, c.OutputTanh = task, tasks[task].steps, tasks[task].hidden, true
	c.Critic.LR, c.Critic.Epochs, c.Critic.Minibatch = 3e-4, 10, 64
}

// do runs a trial. Every agent needs the same time, which nothing here depends on.
func (s schooling) do(ctx context.Context, t trial) (course, error) {
	out, begun := course{trial: t, Rounds: s.Rounds}, time.Now()
	o := t.options(s.Rounds)
	if s.steps > 0 {
		o.Control.Steps = s.steps
	}
	server, _, err := o.NewServer()
	if err != nil {
		return out, err
	}
	agents := make([]*protocol.Agent, o.Agents)
	for i := range agents {
		if agents[i], err = o.NewAgent(i); err != nil {
			return out, err
		}
	}
	sim, err := protocol.NewSimulation(server, agents, slices.Repeat([]float64{1}, o.Agents))
	if err != nil {
		return out, err
	}
	sim.JoinAll(ctx)
	defer sim.Wait()
	for !sim.Server.Done() {
		e, err := sim.Step(ctx)
		if err != nil {
			return out, err
		}
		if e.Receipt.Stepped {
			out.add(e.Receipt.Metrics, o)
		}
	}
	out.Wall = math.Round(time.Since(begun).Seconds())
	return out, nil
}

// add takes a round's metrics. A round in which no episode ended has the return of the one before.
func (c *course) add(m map[string]float64, o recipe.Options) {
	r, ok := m["return"]
	if !ok && len(c.Returns) > 0 {
		r = c.Returns[len(c.Returns)-1]
	}
	c.Returns = append(c.Returns, r)
	if kl, ok := m["kl"]; ok {
		c.KL = append(c.KL, kl / *o.Delta)
	}
	c.Refused = int(m["refused/step"])
	c.Up, c.Down = 0, 0
	for i := range o.Agents {
		share := float64(o.Agents * len(c.Returns))
		c.Up += m[fmt.Sprintf("bytes_up/%d", i)] / share
		c.Down += m[fmt.Sprintf("bytes_down/%d", i)] / share
	}
}

// finals are the mean and the interval of the final returns over the seeds of a trial.
func (s schooling) finals(t trial, done *log[trial, course]) interval {
	return s.over(t, done, func(c course) float64 { return last(c.Returns) })
}

func (s schooling) over(t trial, done *log[trial, course], value func(course) float64) interval {
	var all []float64
	for _, t := range s.seeds(t) {
		all = append(all, value(done.results[t]))
	}
	return intervalOf(all)
}

func (i interval) String() string { return fmt.Sprintf("%.1f ± %.1f", i.mean, i.half) }

func (s schooling) cell(c cell) trial {
	return trial{Task: s.Task, Method: c.Method, Agents: c.Agents, Select: 1,
		Undamped: s.Undamped && c.Method == protocol.FedNPGADMM}
}

func (s schooling) printSizes(out io.Writer, methods []string, done *log[trial, course]) error {
	fmt.Fprintf(out, "%s, %d rounds, %d seeds. Final return: mean of the last %d rounds. In brackets: published, "+
		"after many more rounds.\n\n", s.Task, s.Rounds, s.Seeds, finalIterations)
	table(out, methods, s.Agents, func(c cell) string {
		text := s.finals(s.cell(c), done).String()
		at := slices.Index([]int{1, 2, 4, 8}, c.Agents)
		if p := tasks[s.Task].published[c.Method]; p != nil && at >= 0 {
			text += " (" + p[at] + ")"
		}
		return text
	})
	fmt.Fprint(out, "\nBytes that an agent sends and is sent in a round.\n\n")
	table(out, methods, s.Agents, func(c cell) string {
		t := s.cell(c)
		up := s.over(t, done, func(c course) float64 { return c.Up })
		down := s.over(t, done, func(c course) float64 { return c.Down })
		return fmt.Sprintf("%.0f, %.0f", up.mean, down.mean)
	})
	s.concludeSizes(out, done)
	if s.Curves == "" {
		return nil
	}
	return s.draw(methods, done)
}

// concludeSizes says what the specification demands, and what it expects.
func (s schooling) concludeSizes(out io.Writer, done *log[trial, course]) {
	at := func(method string, n int) interval { return s.finals(s.cell(cell{method, n}), done) }
	fewest, most := s.Agents[0], s.Agents[len(s.Agents)-1]
	exact, admm := at(protocol.FedNPG, most), at(protocol.FedNPGADMM, most)
	fmt.Fprintf(out, "\n- N = %d: FedNPG-ADMM's mean is not below FedNPG's interval: %v.\n", most,
		admm.mean >= exact.mean-exact.half)
	for _, n := range s.Agents {
		fmt.Fprintf(out, "- N = %d: FedNPG-ADMM's interval overlaps FedNPG's: %v.\n", n,
			at(protocol.FedNPGADMM, n).overlaps(at(protocol.FedNPG, n)))
	}
	for _, m := range []string{protocol.FedNPG, protocol.FedNPGADMM} {
		one, all := at(m, fewest), at(m, most)
		fmt.Fprintf(out, "- %s: N = %d is above N = %d, intervals apart: %v.\n", m, most, fewest,
			all.mean > one.mean && !all.overlaps(one))
	}
}

// draw has a panel for each number of agents.
func (s schooling) draw(methods []string, done *log[trial, course]) error {
	var panels []picture.Panel
	for _, n := range s.Agents {
		p := picture.Panel{Label: fmt.Sprintf("return, N = %d", n)}
		for _, m := range methods {
			p.Lines = append(p.Lines, s.line(m, s.cell(cell{m, n}), done))
		}
		panels = append(panels, p)
	}
	return s.picture(panels...)
}

func (s schooling) picture(panels ...picture.Panel) error {
	return picture.Curves(s.Curves, fmt.Sprintf("%s: mean of %d seeds with 95%% bands", s.Task, s.Seeds), panels)
}

// line are the returns of a trial over the rounds.
func (s schooling) line(name string, t trial, done *log[trial, course]) picture.Line {
	l := picture.Line{Name: name}
	for k := range s.Rounds {
		i := s.over(t, done, func(c course) float64 { return c.Returns[k] })
		l.X, l.Y, l.Half = append(l.X, float64(k+1)), append(l.Y, i.mean), append(l.Half, i.half)
	}
	return l
}

func (s schooling) printSelection(out io.Writer, done *log[trial, course]) error {
	all := s.selections()
	whole := s.finals(all[0], done)
	fmt.Fprintf(out, "%s, %d agents, %d rounds, %d seeds. Final return: mean of the last %d rounds; its fall is "+
		"that below all agents' mean (published: less than 6%%).\n\n| share | absent | final return | fall | "+
		"KL/δ of the steps, mean | rounds without a step |\n|---|---|---|---|---|---|\n", s.Task, all[0].Agents,
		s.Rounds, s.Seeds, finalIterations)
	for _, t := range all {
		f := s.finals(t, done)
		fmt.Fprintf(out, "| %g%% | %s | %v | %.1f%% | %.2f | %v |\n", 100*t.Select, cmp.Or(t.Absent, "–"), f,
			100*(1-f.mean/whole.mean), s.over(t, done, func(c course) float64 { return mean(c.KL) }).mean,
			s.over(t, done, func(c course) float64 { return float64(c.Refused) }))
	}
	if s.Curves == "" {
		return nil
	}
	return s.drawSelection(all, done)
}

// drawSelection has a panel for hold and one for drop, each with all agents beside.
func (s schooling) drawSelection(all []trial, done *log[trial, course]) error {
	var panels []picture.Panel
	for _, absent := range []string{"hold", "drop"} {
		p := picture.Panel{Label: "return, absent agents: " + absent}
		for _, t := range all {
			if t.Absent == "" || t.Absent == absent {
				p.Lines = append(p.Lines, s.line(fmt.Sprintf("%g%%", 100*t.Select), t, done))
			}
		}
		panels = append(panels, p)
	}
	return s.picture(panels...)
}
