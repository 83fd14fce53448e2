package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
)

// dtypesGoal is how far the bfloat16 run's last held-out loss may be from the float32 run's, as a part of it.
const dtypesGoal = 0.01

// dtypesOptions are the options of the comparison of types.
type dtypesOptions struct {
	model, data, binary      string
	backend, against         string
	methods, set             []string
	pairs, held, steps, size int
	rate                     float64
}

func newDTypes() *cobra.Command {
	o := dtypesOptions{}
	cmd := newCommand("dtypes", "Whole preference runs in bfloat16 against float32: held-out loss and order of methods",
		"  go run ./bench dtypes --backend xla:amx\n"+
			"  go run ./bench dtypes --backend xla:amx --model models/smollm2-135m --data harmless-base-test.jsonl.gz \\\n"+
			"    --methods loss.type=dpo,loss.type=ipo --common loss.prior=none,data.max_tokens=256 --rate 1e-6",
		o.run)
	cmd.Long = `Trains every method in both types on the same pairs in the same order, and evaluates on held-out pairs before and
after. The last losses of a method must be within 1% of each other, and the methods must have the same order in both
types, by loss and by accuracy (where accuracies differ).`
	flags := cmd.Flags()
	flags.StringVar(&o.model, "model", "embedded", "model folder")
	flags.StringVar(&o.data, "data", "", `preference pairs, .jsonl or .jsonl.gz; "": the embedded ones`)
	flags.StringVar(&o.binary, "posttrain", "", "posttrain binary (default: built now)")
	flags.StringVar(&o.backend, "backend", "xla:amx", "engine of the bfloat16 runs")
	flags.StringVar(&o.against, "against", "auto", "engine of the float32 runs")
	flags.StringSliceVar(&o.methods, "methods", []string{"loss.prior=mappo", "loss.prior=none"},
		"methods, a setting each")
	flags.StringSliceVar(&o.set, "common", nil, "further settings for all runs, key=value")
	flags.IntVar(&o.steps, "steps", 50, "updates")
	flags.IntVar(&o.size, "batch", 8, "pairs an update")
	flags.IntVar(&o.held, "held-out", 64, "pairs for evaluation")
	flags.Float64Var(&o.rate, "rate", 1e-4, "learning rate, constant")
	return cmd
}

// judged is what a run ends with on the held-out pairs.
type judged struct{ first, last, accuracy float64 }

func (o *dtypesOptions) run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "bench-dtypes-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := buildPosttrain(dir, &o.binary); err != nil {
		return err
	}
	if o.pairs = o.steps*o.size + o.held; o.data != "" {
		path := filepath.Join(dir, "pairs.jsonl")
		if err := firstPairs(o.data, path, o.pairs); err != nil {
			return err
		}
		o.data = path
	}
	types := []string{"float32", "bfloat16"}
	all := make([][2]judged, len(o.methods))
	for m, method := range o.methods {
		for t, dtype := range types {
			begin := time.Now()
			if all[m][t], err = o.train(filepath.Join(dir, fmt.Sprintf("%d-%d", m, t)), method, dtype); err != nil {
				return err
			}
			fmt.Fprintf(out, "%s, %s: %.0f s; %d runs in all\n", method, dtype, time.Since(begin).Seconds(),
				len(types)*len(o.methods))
		}
	}
	return o.report(out, all)
}

// train trains one method in one type.
func (o *dtypesOptions) train(folder, method, dtype string) (judged, error) {
	engine := o.against
	if dtype == "bfloat16" {
		engine = o.backend
	}
	args := []string{"mappo", "--quiet", "--model", o.model, "--backend", engine, "--out", folder}
	settings := []string{"train.dtype=" + dtype, fmt.Sprintf("train.max_steps=%d", o.steps),
		fmt.Sprintf("train.eval_every=%d", o.steps), fmt.Sprintf("train.batch_size=%d", o.size),
		fmt.Sprintf("train.learning_rate=%g", o.rate), "train.schedule=constant", "train.warmup_steps=0"}
	if o.data != "" {
		args = append(args, "--data", o.data)
		settings = append(settings, fmt.Sprintf("data.eval_fraction=%.4f", float64(o.held)/float64(o.pairs)))
	}
	for _, s := range append(append(settings, o.set...), method) {
		args = append(args, "--set", s)
	}
	if err := command(o.binary, args...).Run(); err != nil {
		return judged{}, fmt.Errorf("%s %s: %w", o.binary, strings.Join(args, " "), err)
	}
	return readJudged(filepath.Join(folder, "metrics.jsonl"))
}

// readJudged takes the evaluations out of a run's metrics.
func readJudged(path string) (j judged, err error) {
	n := 0
	err = data.ReadLines(path, func(_ int, m map[string]any) error {
		if loss, ok := m["eval_loss"].(float64); ok {
			if n++; n == 1 {
				j.first = loss
			}
			j.last = loss
			j.accuracy, _ = m["eval_rewards/accuracies"].(float64)
		}
		return nil
	})
	if err == nil && n < 2 {
		err = fmt.Errorf("%s: %d evaluations, want one before training and one after", path, n)
	}
	return j, err
}

// report prints the table and whether the types agree.
func (o *dtypesOptions) report(out io.Writer, all [][2]judged) error {
	worst := 0.0
	title := fmt.Sprintf("float32 and bfloat16 after %d steps of %d pairs, %d held out, %s", o.steps, o.size, o.held,
		filepath.Base(o.model))
	header := "method\teval_loss before\tfloat32\tbfloat16\tdifference\taccuracy float32\tbfloat16\t"
	table(out, title, header, func(w io.Writer) {
		for i, j := range all {
			apart := math.Abs(j[1].last-j[0].last) / j[0].last
			worst = max(worst, apart)
			fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%.4f\t%.2f%%\t%.3f\t%.3f\t\n", o.methods[i], j[0].first, j[0].last,
				j[1].last, 100*apart, j[0].accuracy, j[1].accuracy)
		}
	})
	same := sameOrder(all)
	fmt.Fprintf(out, "losses differ by at most %.2f%%, asked for at most %.0f%%: %s; the same order of methods: %s\n",
		100*worst, 100*dtypesGoal, verdict(worst <= dtypesGoal), verdict(same))
	if !(worst <= dtypesGoal) || !same {
		return fmt.Errorf("bfloat16 does not train as float32 does")
	}
	return nil
}

// sameOrder says whether no two methods change places between the types, by loss or by accuracy.
func sameOrder(all [][2]judged) bool {
	for i, a := range all {
		for _, b := range all[:i] {
			swapped := func(f func(judged) float64) bool { return (f(a[0])-f(b[0]))*(f(a[1])-f(b[1])) < 0 }
			if swapped(func(j judged) float64 { return j.last }) ||
				swapped(func(j judged) float64 { return j.accuracy }) {
				return false
			}
		}
	}
	return true
}
