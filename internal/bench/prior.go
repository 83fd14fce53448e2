package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
)

// priorOptions are the options of the comparison of losses with and without MaPPO's prior.
type priorOptions struct {
	model, data, backend     string
	binary, out, picture     string
	losses, set              []string
	seeds, steps, size, held int
	every                    int
	rate                     float64
}

func newPrior() *cobra.Command {
	o := priorOptions{}
	cmd := newCommand("prior", "Losses with MaPPO's prior and without: what becomes of both answers' log-probs",
		"  go run ./internal/bench prior\n"+
			"  go run ./internal/bench prior --model models/smollm2-135m --data pairs.jsonl.gz --backend xla:amx --seeds 3 \\\n"+
			"    --steps 12 --rate 2e-4 --set data.reward_transform=rank,train.dtype=bfloat16,lora.rank=16",
		o.run)
	cmd.Long = `Trains every loss with the prior and without, once a seed. A seed draws pairs from the data and
holds some of them out; both runs of a seed train on the same pairs in the same order. Finished runs
are kept in --out, so that the same command continues after an interruption. Prints a table in
Markdown; its intervals are those of Student's t over the seeds at 95%.`
	flags := cmd.Flags()
	flags.StringVar(&o.model, "model", "embedded", "model folder")
	flags.StringVar(&o.data, "data", "", `preference pairs with scores; "": the embedded ones`)
	flags.StringVar(&o.binary, "posttrain", "", "posttrain binary (default: built now)")
	flags.StringVar(&o.backend, "backend", "auto", "engine")
	flags.StringVar(&o.out, "out", "runs/prior", "folder of the runs")
	flags.StringVar(&o.picture, "picture", "", "PNG file to draw the curves in")
	flags.StringSliceVar(&o.losses, "losses", []string{losses.DPO, losses.IPO, losses.SimPO, losses.CPO}, "losses")
	flags.StringSliceVar(&o.set, "set", nil, "further settings for all runs, key=value")
	flags.IntVar(&o.seeds, "seeds", 5, "runs of every loss, with the prior and without")
	flags.IntVar(&o.steps, "steps", 50, "updates")
	flags.IntVar(&o.size, "batch", 8, "pairs an update")
	flags.IntVar(&o.held, "held-out", 100, "pairs for evaluation")
	flags.IntVar(&o.every, "eval-every", 10, "updates between evaluations")
	flags.Float64Var(&o.rate, "rate", 1e-4, "learning rate, constant")
	return cmd
}

// priors in the order of a seed's runs.
var priors = []string{losses.None, losses.MaPPO}

func (o *priorOptions) run(out io.Writer) error {
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-prior-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := buildPosttrain(dir, &o.binary); err != nil {
		return err
	}
	for seed := 1; seed <= o.seeds; seed++ {
		pairs, n, err := o.draw(seed)
		if err != nil {
			return err
		}
		for _, loss := range o.losses {
			for _, prior := range priors {
				if err := o.train(loss, prior, seed, pairs, n); err != nil {
					return err
				}
			}
		}
	}
	return o.report(out)
}

// draw gives a file of the pairs that a seed trains on and evaluates, and how many they are. Of the embedded pairs it
// takes all; their file has no name.
func (o *priorOptions) draw(seed int) (path string, n int, err error) {
	if o.data == "" {
		pairs, _, err := data.ReadPreferencesFS(embedded.Files, embedded.Pairs, data.PreferenceOptions{})
		return "", len(pairs), err
	}
	pairs, _, err := data.ReadPreferences(o.data, data.PreferenceOptions{})
	if err != nil {
		return "", 0, err
	}
	if n = o.steps*o.size + o.held; n > len(pairs) {
		return "", 0, fmt.Errorf("%s: %d pairs, want %d", o.data, len(pairs), n)
	}
	order := rand.New(rand.NewPCG(uint64(seed), 0)).Perm(len(pairs))[:n]
	path = filepath.Join(o.out, fmt.Sprintf("pairs-%d.jsonl", seed))
	return path, n, data.WritePreferences(path, data.Pick(pairs, order))
}

// folder of a run.
func (o *priorOptions) folder(loss, prior string, seed int) string {
	return filepath.Join(o.out, fmt.Sprintf("%s-%s-%d", loss, prior, seed))
}

// train trains, unless a run of an earlier call of the command is there. One that is not whole begins again.
func (o *priorOptions) train(loss, prior string, seed int, pairs string, n int) error {
	folder := o.folder(loss, prior, seed)
	if _, err := o.curve(folder); err == nil {
		return nil
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	begin := time.Now()
	args := []string{"mappo", "--quiet", "--model", o.model, "--backend", o.backend, "--out", folder,
		"--seed", fmt.Sprint(seed), "--loss", loss, "--prior", prior}
	if pairs != "" {
		args = append(args, "--data", pairs)
	}
	for _, s := range append([]string{fmt.Sprintf("data.eval_fraction=%.6f", float64(o.held)/float64(n)),
		fmt.Sprintf("train.max_steps=%d", o.steps), fmt.Sprintf("train.eval_every=%d", o.every),
		fmt.Sprintf("train.batch_size=%d", o.size), fmt.Sprintf("train.learning_rate=%g", o.rate),
		"train.schedule=constant", "train.warmup_steps=0"}, o.settings(prior)...) {
		args = append(args, "--set", s)
	}
	if err := command(o.binary, args...).Run(); err != nil {
		return fmt.Errorf("%s %s: %w", o.binary, strings.Join(args, " "), err)
	}
	fmt.Fprintf(os.Stderr, "%s: %.0f s\n", folder, time.Since(begin).Seconds())
	return nil
}

// settings are those of --set, without those of rewards where there is no prior to use them.
func (o *priorOptions) settings(prior string) []string {
	return slices.DeleteFunc(slices.Clone(o.set), func(s string) bool {
		return prior == losses.None && strings.HasPrefix(s, "data.reward_")
	})
}

// curve are the evaluations of a whole run.
func (o *priorOptions) curve(folder string) ([]run.Record, error) {
	all, err := run.ReadMetrics(filepath.Join(folder, "metrics.jsonl"))
	if err != nil {
		return nil, err
	}
	evaluated := slices.DeleteFunc(all, func(r run.Record) bool {
		_, ok := r.Values["eval_"+losses.MetricLogpsChosen]
		return !ok
	})
	if n := len(evaluated); n < 2 || evaluated[n-1].Step != o.steps {
		return nil, fmt.Errorf("%s: %d evaluations, want one before training and one after step %d", folder, n, o.steps)
	}
	return evaluated, nil
}

// arm is what the runs of a loss show, with the prior or without: a value a seed.
type arm struct {
	loss, prior                string
	chosen, rejected, accuracy []float64 // changes of the summed log-probs; the percentage at the end
	steps                      []float64
	chosenCurve, rejectedCurve []float64 // mean changes over the seeds, by step
}

func (a *arm) margin() []float64 { return minus(a.chosen, a.rejected) }

// read reads an arm's runs.
func (o *priorOptions) read(loss, prior string) (*arm, error) {
	a := &arm{loss: loss, prior: prior}
	for seed := 1; seed <= o.seeds; seed++ {
		records, err := o.curve(o.folder(loss, prior, seed))
		if err != nil {
			return nil, err
		}
		if a.steps == nil {
			a.chosenCurve, a.rejectedCurve = make([]float64, len(records)), make([]float64, len(records))
			for _, r := range records {
				a.steps = append(a.steps, float64(r.Step))
			}
		}
		change := func(r run.Record, name string) float64 {
			return r.Values["eval_"+name] - records[0].Values["eval_"+name]
		}
		for i, r := range records {
			a.chosenCurve[i] += change(r, losses.MetricLogpsChosen) / float64(o.seeds)
			a.rejectedCurve[i] += change(r, losses.MetricLogpsRejected) / float64(o.seeds)
		}
		last := records[len(records)-1]
		a.chosen = append(a.chosen, change(last, losses.MetricLogpsChosen))
		a.rejected = append(a.rejected, change(last, losses.MetricLogpsRejected))
		a.accuracy = append(a.accuracy, 100*last.Values["eval_"+losses.MetricAccuracies])
	}
	return a, nil
}

// report prints the table, and draws the curves.
func (o *priorOptions) report(out io.Writer) error {
	fmt.Fprintln(out, "| loss | prior | log p(chosen) | log p(rejected) | chosen − rejected | accuracy at the end, % |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	var panels []run.Panel
	for _, loss := range o.losses {
		var both []*arm
		for _, prior := range priors {
			a, err := o.read(loss, prior)
			if err != nil {
				return err
			}
			both = append(both, a)
			fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", loss, prior, spread(a.chosen), spread(a.rejected),
				spread(a.margin()), strings.TrimPrefix(spread(a.accuracy), "+"))
		}
		fmt.Fprintf(out, "| | difference | %s | %s | %s | |\n", spread(minus(both[1].chosen, both[0].chosen)),
			spread(minus(both[1].rejected, both[0].rejected)), spread(minus(both[1].margin(), both[0].margin())))
		panels = append(panels, panelOf(loss, both))
	}
	if o.picture == "" {
		return nil
	}
	return run.Curves(o.picture, "Change of log p on held-out pairs, mean of the seeds", panels)
}

// panelOf draws the log-probs of a loss: dashed without the prior.
func panelOf(loss string, both []*arm) run.Panel {
	p := run.Panel{Label: loss, X: "step"}
	for _, a := range both {
		name := map[string]string{losses.None: "no prior", losses.MaPPO: "MaPPO"}[a.prior]
		p.Lines = append(p.Lines,
			run.Line{Name: "chosen, " + name, X: a.steps, Y: a.chosenCurve, Dashed: a.prior == losses.None},
			run.Line{Name: "rejected, " + name, X: a.steps, Y: a.rejectedCurve, Dashed: a.prior == losses.None})
	}
	return p
}

func minus(a, b []float64) []float64 {
	out := slices.Clone(a)
	for i := range out {
		out[i] -= b[i]
	}
	return out
}

// spread is the mean of values, with half the width of Student's 95% interval.
func spread(values []float64) string {
	mean, deviation := stat.MeanStdDev(values, nil)
	n := float64(len(values))
	if n < 2 {
		return fmt.Sprintf("%+.2f", mean)
	}
	t := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975)
	return fmt.Sprintf("%+.2f ± %.2f", mean, t*deviation/math.Sqrt(n))
}
