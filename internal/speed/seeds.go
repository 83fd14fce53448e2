package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe/federated"
)

//go:embed tables.txt
var tables string

// seedsTable is a table of tables.txt. An arm is a run with some keys set, once for each seed.
type seedsTable struct {
	command []string
	sets    []string // of all arms
	arms    [][]string
	tasked  bool // it is for each of the four tasks
}

// tableOf reads a table: a line [NAME] COMMAND: KEY=VALUE…, then a line ARM KEY=VALUE… for each row, or ARM minus ARM.
func tableOf(name string) (t seedsTable, err error) {
	_, rest, found := strings.Cut(tables, "\n["+name+"] ")
	if !found {
		return t, fmt.Errorf("table %q: want one of internal/speed/tables.txt", name)
	}
	rest, _, _ = strings.Cut(rest, "\n\n")
	head, arms, _ := strings.Cut(rest, "\n")
	command, sets, _ := strings.Cut(head, ":")
	t.command, t.sets = strings.Fields(command), strings.Fields(sets)
	for line := range strings.Lines(arms) {
		t.arms = append(t.arms, strings.Fields(line))
	}
	return t, nil
}

// words is the number of words of the command, before its flags.
func (t seedsTable) words() int {
	if i := slices.Index(t.command, "--config"); i >= 0 {
		return i
	}
	return len(t.command)
}

// seedsOptions are where the runs are, and what holds for all of them.
type seedsOptions struct {
	binary, dir     string
	results, figure string
	against         string // of the figure: iterations or time
	task            string // of the tables for all four
	iterations      int    // of these; 0: the preset's
	seeds, first    int
	jobs            int
	set, only       []string

	mu    sync.Mutex
	known []outcome
}

// outcome is what is kept of a run: a line of a file in internal/speed/results.
type outcome struct {
	Arm      string             `json:"arm"`
	Seed     int                `json:"seed"`
	Sets     string             `json:"sets"` // a run with others is another run
	Measures map[string]float64 `json:"measures"`
	Returns  []float64          `json:"returns,omitempty"` // of each iteration of agents; null: no episode ended
}

func newSeeds() *cobra.Command {
	o := &seedsOptions{}
	cmd := &cobra.Command{Use: "seeds TABLE",
		Short: "A table of docs/federated.md or docs/mappo.md, and its figure, from runs of several seeds",
		Long: `An arm of a table (internal/speed/tables.txt) runs once for each seed in the folder DIR/TABLE/ARM-SEED. What
has ended there is not run again, what was interrupted continues, and what RESULTS/TABLE.jsonl has is taken from there.
Then it prints a row for each arm, with 95% intervals (Student's t over seeds). A row minus another one has the
differences of the runs of a seed. In names of tables with TASK, --task takes its place, with the length of its preset.`,
		Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			t, err := tableOf(args[0])
			if err == nil {
				err = o.fill(&t)
			}
			if err != nil {
				return err
			}
			if o.only != nil {
				t.arms = slices.DeleteFunc(t.arms, func(arm []string) bool {
					return !slices.Contains(o.only, arm[0]) || arm[1] == "minus" && !slices.Contains(o.only, arm[2])
				})
			}
			name := args[0]
			if t.tasked {
				name += "-" + o.task
			}
			o.dir = filepath.Join(o.dir, name)
			if o.results != "" {
				o.results = filepath.Join(o.results, name+".jsonl")
			}
			return o.run(t, cmd.OutOrStdout())
		}}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "runs", "runs", "folder of the runs")
	flags.StringVar(&o.results, "results", "internal/speed/results", "folder of what is kept of the runs; \"\": nothing is")
	flags.StringVar(&o.figure, "figure", "", "PNG file with the arms' mean returns and their 95% bands")
	flags.StringVar(&o.against, "against", "iterations", "horizontal axis of the figure: iterations or time (virtual)")
	flags.StringVar(&o.task, "task", "swimmer", "task of the tables for all four: swimmer, hopper, walker2d or humanoid")
	flags.IntVar(&o.iterations, "iterations", 0, "rounds, or gradients of an agent, of these tables; 0: those of the preset")
	flags.StringVar(&o.binary, "posttrain", "", "the program that trains (default: built with go)")
	flags.IntVar(&o.seeds, "seeds", 5, "seeds of each arm")
	flags.IntVar(&o.first, "first", 1, "the first of them")
	flags.IntVar(&o.jobs, "jobs", 1, "runs at a time")
	flags.StringSliceVar(&o.only, "arms", nil, "only these arms (default: all)")
	flags.StringArrayVar(&o.set, "set", nil, "a key of all runs, such as control.steps=512")
	return cmd
}

// fill puts the task and the number of iterations K into a table, as in rounds=K and updates=K*8.
func (o *seedsOptions) fill(t *seedsTable) error {
	for i, word := range t.command {
		if !strings.Contains(word, "TASK") {
			continue
		}
		t.command[i] = strings.ReplaceAll(word, "TASK", o.task)
		preset, err := federated.Spec.Load(config.Input{Path: t.command[i]})
		if err != nil {
			return err
		}
		if t.tasked = true; o.iterations == 0 {
			if o.iterations = preset.Limit(); protocol.Asynchronous(preset.Method) {
				o.iterations /= preset.Agents
			}
		}
	}
	for _, words := range append(t.arms, t.sets) {
		for i, word := range words {
			key, n, is := strings.Cut(word, "=K")
			if !is {
				continue
			}
			agents, err := strconv.Atoi(cmp.Or(strings.TrimPrefix(n, "*"), "1"))
			if err != nil {
				return fmt.Errorf("%s: %w", word, err)
			}
			words[i] = fmt.Sprint(key, "=", agents*o.iterations)
		}
	}
	return nil
}

func (o *seedsOptions) run(t seedsTable, out io.Writer) error {
	if err := errors.Join(os.MkdirAll(o.dir, 0o777), o.read()); err != nil {
		return err
	}
	if err := o.train(t); err != nil {
		return err
	}
	measures := measuresOf(t)
	head, rule := "| arm |", "|---|"
	for _, m := range measures {
		head, rule = head+" "+m.title+" |", rule+"---|"
	}
	fmt.Fprintln(out, head+"\n"+rule)
	values := map[string][][]float64{} // of an arm by measure and seed
	for _, arm := range t.arms {
		name, row := arm[0], make([][]float64, len(measures))
		if arm[1] == "minus" {
			name = strings.Join(arm, " ")
			for i := range row {
				row[i] = slices.Clone(values[arm[0]][i])
				floats.Sub(row[i], values[arm[2]][i])
			}
		} else if err := o.measure(t, arm, row); err != nil {
			return err
		}
		values[name] = row
		text := "| " + name + " |"
		for i, m := range measures {
			text += " " + run.Interval(m.form, row[i]) + " |"
		}
		fmt.Fprintln(out, text)
	}
	if o.figure == "" {
		return nil
	}
	return o.draw(t)
}

func measuresOf(t seedsTable) []measure {
	if t.command[0] == "mappo" {
		return priorMeasures
	}
	return federatedMeasures
}

// read takes what is known from the file of results, which need not be there.
func (o *seedsOptions) read() error {
	err := data.ReadLines(o.results, func(_ int, r outcome) error {
		o.known = append(o.known, r)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) { // as of the name ""
		return nil
	}
	return err
}

// keep adds a result to the file.
func (o *seedsOptions) keep(r outcome) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = append(o.known, r)
	if o.results == "" {
		return nil
	}
	f, err := os.OpenFile(o.results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(data.WriteLine(f, r), f.Close())
}

// train makes all runs of a table, the first seed of all arms first.
func (o *seedsOptions) train(t seedsTable) error {
	var all errgroup.Group
	all.SetLimit(max(1, o.jobs))
	for seed := range o.seeds {
		for _, arm := range t.arms {
			if arm[1] == "minus" {
				continue
			}
			all.Go(func() error {
				_, err := o.result(t, arm, o.first+seed)
				return err
			})
		}
	}
	return all.Wait()
}

// measure takes the measures of an arm's runs.
func (o *seedsOptions) measure(t seedsTable, arm []string, row [][]float64) error {
	for seed := range o.seeds {
		r, err := o.result(t, arm, o.first+seed)
		if err != nil {
			return err
		}
		for i, m := range measuresOf(t) {
			x, has := r.Measures[m.title]
			if !has {
				x = math.NaN()
			}
			row[i] = append(row[i], x)
		}
	}
	return nil
}

// result is what is known of the run of an arm and a seed, which is made first if need be.
func (o *seedsOptions) result(t seedsTable, arm []string, seed int) (outcome, error) {
	r := outcome{Arm: arm[0], Seed: seed, Sets: strings.Join(slices.Concat(t.command, t.sets, arm[1:], o.set), " "),
		Measures: map[string]float64{}}
	o.mu.Lock()
	i := slices.IndexFunc(o.known, func(k outcome) bool { return k.Arm == r.Arm && k.Seed == seed && k.Sets == r.Sets })
	if i >= 0 {
		r = o.known[i]
	}
	o.mu.Unlock()
	if i >= 0 {
		return r, nil
	}
	records, err := o.records(t, arm, seed, r.Sets)
	if err != nil {
		return r, err
	}
	for _, m := range measuresOf(t) {
		if x := m.of(records); !math.IsNaN(x) {
			r.Measures[m.title] = math.Round(1e4*x) / 1e4
		}
	}
	if t.command[0] != "mappo" {
		r.Returns = iterations(records)
	}
	return r, o.keep(r)
}

// draw makes the figure: a panel for each beginning of the arms' names, up to the last -.
func (o *seedsOptions) draw(t seedsTable) error {
	var panels []run.Panel
	for _, arm := range t.arms {
		if arm[1] == "minus" {
			continue
		}
		at := strings.LastIndex(arm[0], "-")
		name, label := arm[0][at+1:], arm[0][:max(at, 0)]
		var lines []run.Line
		for seed := range o.seeds {
			r, err := o.result(t, arm, o.first+seed)
			if err != nil {
				return err
			}
			l := run.Line{Y: r.Returns}
			for i := range r.Returns {
				x := float64(i + 1)
				if o.against == "time" {
					x *= r.Measures["virtual time"] / float64(len(r.Returns))
				}
				l.X = append(l.X, x)
			}
			lines = append(lines, l)
		}
		i := slices.IndexFunc(panels, func(p run.Panel) bool { return p.Label == label })
		if i < 0 {
			i = len(panels)
			panels = append(panels, run.Panel{Label: label, X: map[string]string{"time": "virtual time, seconds"}[o.against]})
		}
		if panels[i].X == "" {
			panels[i].X = "rounds, or gradients of an agent"
		}
		panels[i].Lines = append(panels[i].Lines, run.Band(name, lines))
	}
	return run.Curves(o.figure, fmt.Sprintf("mean return and its 95%% interval over %d seeds", o.seeds), panels)
}

// claim notes beside a run's folder which run it is for. A folder that has another one would give that one's numbers.
func claim(dir, sets string) error {
	path := dir + ".sets"
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.WriteFile(path, []byte(sets), 0o666)
	case err == nil && string(text) != sets:
		return fmt.Errorf("%s has the run of %s, want that of %s: want another --runs", dir, text, sets)
	}
	return err
}

// records makes the run of an arm and a seed with those sets, unless it has ended before, and reads its metrics.
func (o *seedsOptions) records(t seedsTable, arm []string, seed int, sets string) ([]run.Record, error) {
	dir := filepath.Join(o.dir, fmt.Sprint(arm[0], "-", seed))
	if err := claim(dir, sets); err != nil {
		return nil, err
	}
	if !run.Finished(dir) {
		binary, err := o.build()
		if err != nil {
			return nil, err
		}
		args := append(slices.Clone(t.command), "--quiet")
		if _, err := os.Stat(filepath.Join(dir, "config.yaml")); err == nil {
			args = append(slices.Clone(t.command[:t.words()]), "--quiet", "--resume", dir)
		} else {
			args = append(args, "--out", dir)
			plain := slices.Contains(arm, "loss.prior=none") // which refuses keys of rewards
			for _, s := range slices.Concat(t.sets, arm[1:], o.set, []string{fmt.Sprint("seed=", seed)}) {
				if !plain || !strings.HasPrefix(s, "data.reward_transform=") {
					args = append(args, "--set", s)
				}
			}
		}
		c, said := call(binary, args...), new(strings.Builder)
		c.Stdout, c.Stderr = io.Discard, io.MultiWriter(os.Stderr, said)
		// A policy that is certain of every action has no gradient left: its run ends early, and keeps its return.
		if err := c.Run(); err != nil && !strings.Contains(said.String(), protocol.ErrStuck.Error()) {
			return nil, fmt.Errorf("posttrain %s: %w", strings.Join(args, " "), err)
		}
	}
	records, err := run.ReadMetrics(filepath.Join(dir, "metrics.jsonl"))
	if err == nil && len(records) == 0 {
		err = fmt.Errorf("%s: no step", dir)
	}
	return records, err
}

// build gives the program that trains.
func (o *seedsOptions) build() (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.binary != "" {
		return o.binary, nil
	}
	path := filepath.Join(o.dir, "posttrain")
	err := buildPosttrain(path)
	if err == nil {
		o.binary = path
	}
	return path, err
}

// measure is a number of a run; form is how it is printed.
type measure struct {
	title, form string
	of          func(all []run.Record) float64
}

// federatedMeasures are of runs of agents. An iteration is as many gradients as there are agents: a round, or as many
// updates as there are agents. The final return is the mean over the last ten iterations.
var federatedMeasures = []measure{
	{"final return", "%.1f", func(all []run.Record) float64 {
		return meanReturn(all[max(0, len(all)-lately*perIteration(all)):])
	}},
	{"over the run", "%.1f", meanReturn},
	{"steps to 400, thousands", "%.1f", stepsTo400},
	{"kB up, an agent", "%.1f", bytesOf("bytes_up/")}, {"down", "%.1f", bytesOf("bytes_down/")},
	{"virtual time", "%.1f", ofLast("time")}, {"rounds without a step", "%.1f", ofLast("refused/step")},
}

const lately = 10 // iterations of a final return

// meanReturn is the mean return of the records in which an episode ended.
func meanReturn(all []run.Record) float64 { return stat.Mean(run.Series(all, "return"), nil) }

// perIteration are the records of an iteration: one of a method in rounds, which says how many agents were present,
// else one for each agent.
func perIteration(all []run.Record) int {
	if _, rounds := all[0].Values["present"]; rounds {
		return 1
	}
	return agents(all[0])
}

// iterations are the mean returns of the iterations, to a tenth. One in which no episode ended has that before it.
func iterations(all []run.Record) (returns []float64) {
	last := 0.0
	for part := range slices.Chunk(all, perIteration(all)) {
		if x := meanReturn(part); !math.IsNaN(x) {
			last = math.Round(10*x) / 10
		}
		returns = append(returns, last)
	}
	return returns
}

// stepsTo400 are the time steps of an agent, in thousands, until the mean return of ten iterations is 400; the whole
// run's where it never is.
func stepsTo400(all []run.Record) float64 {
	window := lately * perIteration(all)
	end := len(all)
	for i := window; i < len(all); i++ {
		if meanReturn(all[i-window:i]) >= 400 {
			end = i
			break
		}
	}
	return all[end-1].Values["samples"] / 1e3 / float64(agents(all[0]))
}

// agents counts the agents of a run.
func agents(r run.Record) (n int) {
	for name := range r.Values {
		if strings.HasPrefix(name, "bytes_up/") {
			n++
		}
	}
	return n
}

func ofLast(metric string) func([]run.Record) float64 {
	return func(all []run.Record) float64 { return all[len(all)-1].Values[metric] }
}

// bytesOf is the mean of the agents' kilobytes.
func bytesOf(prefix string) func([]run.Record) float64 {
	return func(all []run.Record) (sum float64) {
		last := all[len(all)-1]
		for i := range agents(last) {
			sum += last.Values[fmt.Sprint(prefix, i)] / 1e3
		}
		return sum / float64(agents(last))
	}
}

// priorMeasures are changes of the mean log-probs of held-out pairs from the first evaluation to the last, and the
// percentage of pairs in the right order at the end.
var priorMeasures = []measure{
	{"log p(chosen)", "%+.2f", changeOf(losses.MetricLogpsChosen)},
	{"log p(rejected)", "%+.2f", changeOf(losses.MetricLogpsRejected)},
	{"chosen − rejected", "%+.2f", func(all []run.Record) float64 {
		return changeOf(losses.MetricLogpsChosen)(all) - changeOf(losses.MetricLogpsRejected)(all)
	}},
	{"margin at the end", "%+.3f", func(all []run.Record) float64 {
		return evaluated(all, losses.MetricMargins, true)
	}},
	{"accuracy at the end, %", "%.2f", func(all []run.Record) float64 {
		return 100 * evaluated(all, losses.MetricAccuracies, true)
	}},
}

func changeOf(metric string) func([]run.Record) float64 {
	return func(all []run.Record) float64 {
		return evaluated(all, metric, true) - evaluated(all, metric, false)
	}
}

// evaluated is a metric's first or last value of held-out pairs.
func evaluated(all []run.Record, metric string, last bool) float64 {
	found := math.NaN()
	for _, r := range all {
		if x, ok := r.Values["eval_"+metric]; ok && (last || math.IsNaN(found)) {
			found = x
		}
	}
	return found
}
