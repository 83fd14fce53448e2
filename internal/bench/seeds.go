package main

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
)

//go:embed tables.txt
var tables string

// seedsTable is a table of tables.txt. An arm is a run with some keys set, once for each seed.
type seedsTable struct {
	command []string
	sets    []string // of all arms
	arms    [][]string
}

// tableOf reads a table: a line [NAME] COMMAND: KEY=VALUE…, then a line ARM KEY=VALUE… for each row, or ARM minus ARM.
func tableOf(name string) (t seedsTable, err error) {
	_, rest, found := strings.Cut(tables, "\n["+name+"] ")
	if !found {
		return t, fmt.Errorf("table %q: want one of internal/bench/tables.txt", name)
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

// seedsOptions are where the runs are, and what holds for all of them.
type seedsOptions struct {
	binary, dir string
	seeds, jobs int
	set         []string
}

func newSeeds() *cobra.Command {
	o := &seedsOptions{}
	cmd := &cobra.Command{Use: "seeds TABLE",
		Short: "A table of docs/federated.md or docs/mappo.md, from runs of several seeds",
		Long: `An arm of a table (internal/bench/tables.txt) runs once for each seed in the folder DIR/TABLE/ARM-SEED. What
has ended there is not run again, what was interrupted continues. Then it prints a row for each arm, with 95% intervals
(Student's t over seeds). A row minus another one has the differences of the runs of a seed.`,
		Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			t, err := tableOf(args[0])
			if err != nil {
				return err
			}
			o.dir = filepath.Join(o.dir, args[0])
			return o.run(t, cmd.OutOrStdout())
		}}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "runs", "runs", "folder of the runs")
	flags.StringVar(&o.binary, "posttrain", "", "the program that trains (default: built with go)")
	flags.IntVar(&o.seeds, "seeds", 5, "seeds of each arm, from 1")
	flags.IntVar(&o.jobs, "jobs", 1, "runs at a time")
	flags.StringArrayVar(&o.set, "set", nil, "a key of all runs, such as control.steps=512")
	return cmd
}

func (o *seedsOptions) run(t seedsTable, out io.Writer) error {
	if err := os.MkdirAll(o.dir, 0o777); err != nil {
		return err
	}
	if o.binary == "" {
		o.binary = filepath.Join(o.dir, "posttrain")
		if err := buildPosttrain(o.binary); err != nil {
			return err
		}
	}
	if err := o.train(t); err != nil {
		return err
	}
	measures := federatedMeasures
	if t.command[0] == "mappo" {
		measures = priorMeasures
	}
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
		} else if err := o.measure(t, arm, measures, row); err != nil {
			return err
		}
		values[name] = row
		text := "| " + name + " |"
		for i, m := range measures {
			text += " " + interval(m.form, row[i]) + " |"
		}
		fmt.Fprintln(out, text)
	}
	return nil
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
				_, err := o.records(t, arm, seed+1)
				return err
			})
		}
	}
	return all.Wait()
}

// measure takes the measures of an arm's runs.
func (o *seedsOptions) measure(t seedsTable, arm []string, measures []measure, row [][]float64) error {
	for seed := 1; seed <= o.seeds; seed++ {
		records, err := o.records(t, arm, seed)
		if err != nil {
			return err
		}
		for i, m := range measures {
			row[i] = append(row[i], m.of(records, arm))
		}
	}
	return nil
}

// records makes the run of an arm and a seed, unless it has ended before, and reads its metrics.
func (o *seedsOptions) records(t seedsTable, arm []string, seed int) ([]run.Record, error) {
	dir := filepath.Join(o.dir, fmt.Sprint(arm[0], "-", seed))
	if !run.Finished(dir) {
		args := append(slices.Clone(t.command), "--quiet")
		if _, err := os.Stat(filepath.Join(dir, "config.yaml")); err == nil {
			args = append(args, "--resume", dir)
		} else {
			args = append(args, "--out", dir)
			plain := slices.Contains(arm, "loss.prior=none") // which refuses keys of rewards
			for _, s := range slices.Concat(t.sets, arm[1:], o.set, []string{fmt.Sprint("seed=", seed)}) {
				if !plain || !strings.HasPrefix(s, "data.reward_transform=") {
					args = append(args, "--set", s)
				}
			}
		}
		c, said := call(o.binary, args...), new(strings.Builder)
		c.Stderr = io.MultiWriter(os.Stderr, said)
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

// measure is a number of a run; form is how it is printed.
type measure struct {
	title, form string
	of          func(all []run.Record, arm []string) float64
}

// federatedMeasures are of runs of agents. An iteration is as many gradients as there are agents: a round, or as many
// updates as there are agents. The final return is the mean over the last ten iterations.
var federatedMeasures = []measure{
	{"final return", "%.1f", func(all []run.Record, arm []string) float64 {
		window := 10
		if slices.ContainsFunc(arm, func(key string) bool { return strings.HasPrefix(key, "updates=") }) {
			window *= agents(all[0]) // a record is an update
		}
		var returns []float64
		for _, r := range all[max(0, len(all)-window):] {
			if x, ok := r.Values["return"]; ok { // an episode ended in it
				returns = append(returns, x)
			}
		}
		return stat.Mean(returns, nil)
	}},
	{"kB up, an agent", "%.1f", bytesOf("bytes_up/")}, {"down", "%.1f", bytesOf("bytes_down/")},
	{"virtual time", "%.1f", ofLast("time")}, {"rounds without a step", "%.1f", ofLast("refused/step")},
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

func ofLast(metric string) func([]run.Record, []string) float64 {
	return func(all []run.Record, _ []string) float64 { return all[len(all)-1].Values[metric] }
}

// bytesOf is the mean of the agents' kilobytes.
func bytesOf(prefix string) func([]run.Record, []string) float64 {
	return func(all []run.Record, _ []string) (sum float64) {
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
	{"chosen − rejected", "%+.2f", func(all []run.Record, _ []string) float64 {
		return changeOf(losses.MetricLogpsChosen)(all, nil) - changeOf(losses.MetricLogpsRejected)(all, nil)
	}},
	{"margin at the end", "%+.3f", func(all []run.Record, _ []string) float64 {
		return evaluated(all, losses.MetricMargins, true)
	}},
	{"accuracy at the end, %", "%.2f", func(all []run.Record, _ []string) float64 {
		return 100 * evaluated(all, losses.MetricAccuracies, true)
	}},
}

func changeOf(metric string) func([]run.Record, []string) float64 {
	return func(all []run.Record, _ []string) float64 {
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

// interval is a mean with its 95% interval over seeds. Equal values, and single ones, have no interval.
func interval(form string, x []float64) string {
	mean, deviation := stat.MeanStdDev(x, nil)
	text, n := fmt.Sprintf(form, mean), float64(len(x))
	if n > 1 && deviation > 0 {
		t := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975)
		text += fmt.Sprintf(" ± "+strings.Replace(form, "+", "", 1), t*deviation/math.Sqrt(n))
	}
	return text
}
