package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
)

// trlGoals are the targets for posttrain's pairs a second over TRL's, by the type that both compute in.
var trlGoals = map[string]float64{"float32": 5, "bfloat16": 1.5}

// trlOptions are the options of the comparison with TRL.
type trlOptions struct {
	python, data, model, binary, backend string
	dtype, prior                         string
	pairs, batch                         int
	rate                                 float64
	keep                                 bool
	set                                  []string
}

func newTRL() *cobra.Command {
	o := trlOptions{}
	cmd := newCommand("trl", "posttrain mappo against TRL's DPOTrainer on real pairs",
		"  go run ./bench trl --python venv/bin/python --data ../shared/data/hh-rlhf/harmless-base-test.jsonl.gz",
		o.run)
	cmd.Long = `Both sides train DPO, or MaPPO's form of it, for one epoch on the same pairs in file order, from the same
model, with the same tokenizer; rows with a prompt become conversations. They compute the reference's log-probs before training.
posttrain's time is that of its whole process, with saving. TRL's is loading, tokenisation,
reference pass and training. Python's imports are in another column; TRL does not save.`
	flags := cmd.Flags()
	flags.StringVar(&o.python, "python", "python3", "interpreter with TRL (scripts/oracle/requirements.txt)")
	flags.StringVar(&o.data, "data", "", "preference pairs, .jsonl or .jsonl.gz")
	flags.StringVar(&o.model, "model", "", "model folder (default: a new one by make_model.py)")
	flags.StringVar(&o.binary, "posttrain", "", "posttrain binary (default: built now)")
	flags.StringVar(&o.backend, "backend", "auto", "posttrain's engine")
	flags.StringVar(&o.dtype, "dtype", "float32", "type that both sides compute in: float32 or bfloat16")
	flags.StringVar(&o.prior, "prior", "none", "none (DPO), or mappo: TRL's loss with scaled rejected log-probs")
	flags.IntVar(&o.pairs, "pairs", 256, "use only the first N pairs")
	flags.IntVar(&o.batch, "batch", 8, "pairs a step")
	flags.Float64Var(&o.rate, "rate", 1e-5, "learning rate, constant")
	flags.StringArrayVar(&o.set, "set", nil, "further settings for posttrain, key=value")
	flags.BoolVar(&o.keep, "keep", false, "keep the working folder and print its path")
	return cmd
}

// trlResult is what peer_trl.py prints.
type trlResult struct {
	TRL     string  `json:"trl"`
	Torch   string  `json:"torch"`
	Pairs   int     `json:"pairs"`
	Tokens  int     `json:"tokens"`
	Load    float64 `json:"load_seconds"`
	Prepare float64 `json:"prepare_seconds"`
	Train   float64 `json:"train_seconds"`
	Loss    float64 `json:"loss"`
	Losses  []float64
	PeakMB  float64 `json:"peak_rss_mb"`
	wall    float64
}

// ownResult is the result of posttrain's run.
type ownResult struct {
	pairs, tokens int
	wall, train   float64 // seconds of the process, and of its steps
	loss, peakMB  float64
	losses        []float64
}

func (o *trlOptions) run(out io.Writer) error {
	if err := checkDType(o.dtype); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-trl-")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintln(out, "working folder:", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	pairs := filepath.Join(dir, "pairs.jsonl")
	if err := firstPairs(o.data, pairs, o.pairs); err != nil {
		return err
	}
	if err := o.prepare(dir); err != nil {
		return err
	}
	own, err := o.posttrain(dir, pairs)
	if err != nil {
		return err
	}
	trl, err := o.trl(pairs)
	if err != nil {
		return err
	}
	return o.report(out, own, trl)
}

// prepare makes the model and the binary, unless they are given.
func (o *trlOptions) prepare(dir string) error {
	if o.model == "" {
		const path = "bench/make_model.py"
		if err := checkScript(path); err != nil {
			return err
		}
		o.model = filepath.Join(dir, "model")
		if err := command(o.python, path, "--data", o.data, o.model).Run(); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return buildPosttrain(dir, &o.binary)
}

// buildPosttrain builds the binary, unless one is given.
func buildPosttrain(dir string, binary *string) error {
	if *binary != "" {
		return nil
	}
	*binary = filepath.Join(dir, "posttrain")
	if err := command("go", "build", "-o", *binary, "./cmd/posttrain").Run(); err != nil {
		return fmt.Errorf("go build ./cmd/posttrain: %w", err)
	}
	return nil
}

// command is a child process that prints to standard error only.
func command(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return c
}

// posttrain trains with the command, as a user would.
func (o *trlOptions) posttrain(dir, pairs string) (r ownResult, err error) {
	folder := filepath.Join(dir, "run")
	args := []string{"mappo", "--quiet", "--prior", o.prior, "--model", o.model, "--data", pairs,
		"--backend", o.backend, "--out", folder}
	for _, s := range append([]string{"data.eval_fraction=0", "data.max_tokens=0", "train.epochs=1",
		"train.max_steps=0", "train.shuffle=false", "train.schedule=constant", "train.warmup_steps=0",
		"train.weight_decay=0", "train.eval_every=0", "train.eval_metric=", "train.log_every=1",
		"train.batch_size=" + strconv.Itoa(o.batch), "train.dtype=" + o.dtype,
		"train.learning_rate=" + fmt.Sprint(o.rate)}, o.set...) {
		args = append(args, "--set", s)
	}
	c := command(o.binary, args...)
	begin := time.Now()
	if err := c.Run(); err != nil {
		return r, fmt.Errorf("%s %s: %w", o.binary, strings.Join(args, " "), err)
	}
	r.wall = time.Since(begin).Seconds()
	r.peakMB = float64(c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024
	r.pairs = o.pairs
	return r, r.read(filepath.Join(folder, "metrics.jsonl"))
}

// read sums up the metrics of a run.
func (r *ownResult) read(path string) error {
	type metrics struct {
		Loss     *float64
		StepTime float64 `json:"step_time"`
		Tokens   float64 `json:"num_tokens"`
	}
	err := data.ReadLines(path, func(_ int, m metrics) error {
		if m.Loss != nil {
			r.losses = append(r.losses, *m.Loss)
			r.loss, r.train, r.tokens = r.loss+*m.Loss, r.train+m.StepTime, int(m.Tokens)
		}
		return nil
	})
	r.loss /= float64(len(r.losses))
	return err
}

func (o *trlOptions) trl(pairs string) (r trlResult, err error) {
	var log strings.Builder // TRL prints a lot
	begin := time.Now()
	err = runScript(o.python, &r, &log, "bench/peer_trl.py", "--model", o.model, "--data", pairs, "--pairs",
		strconv.Itoa(o.pairs), "--batch", strconv.Itoa(o.batch), "--rate", fmt.Sprint(o.rate), "--dtype", o.dtype, "--prior", o.prior)
	if err != nil {
		return r, fmt.Errorf("%w\n%s", err, log.String())
	}
	r.wall = time.Since(begin).Seconds()
	return r, nil
}

// report prints both sides and checks that they trained on the same pairs with about the same loss. The sides split a
// dialogue into prompt and answers by their own rules, so that some answers begin a token earlier or later.
func (o *trlOptions) report(out io.Writer, own ownResult, trl trlResult) error {
	counted := trl.Load + trl.Prepare + trl.Train
	title := fmt.Sprintf("prior %s on %d pairs of %s, batch %d, one epoch, %s", o.prior, o.pairs,
		filepath.Base(o.data), o.batch, o.dtype)
	header := "side\tpairs\ttokens\tbefore training s\ttraining s\tcounted s\tpairs/s\t" +
		"not counted\tmean loss\tpeak MB\t"
	const row = "%s\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.2f\t%s\t%.4f\t%.0f\t\n"
	table(out, title, header, func(w io.Writer) {
		fmt.Fprintf(w, row, "TRL "+trl.TRL+", PyTorch "+trl.Torch, trl.Pairs, trl.Tokens,
			trl.Load+trl.Prepare, trl.Train, counted, float64(trl.Pairs)/counted,
			fmt.Sprintf("imports %.1f s", trl.wall-counted), trl.Loss, trl.PeakMB)
		fmt.Fprintf(w, row, "posttrain mappo, "+o.backend, own.pairs, own.tokens,
			own.wall-own.train, own.train, own.wall, float64(own.pairs)/own.wall, "nothing", own.loss, own.peakMB)
	})
	if trl.Pairs != own.pairs || math.Abs(trl.Loss-own.loss) > 0.02 {
		return fmt.Errorf("the sides do not train the same thing: %d and %d pairs, mean losses %.4f and %.4f",
			trl.Pairs, own.pairs, trl.Loss, own.loss)
	}
	fmt.Fprintf(out, "largest difference of a step's loss: %.1e\n", apart(trl.Losses, own.losses))
	ratio, goal := counted/own.wall, trlGoals[o.dtype]
	fmt.Fprintf(out, "pairs a second, posttrain / TRL: %.2f, asked for at least %g: %s (whole processes: %.2f)\n",
		ratio, goal, verdict(ratio >= goal), trl.wall/own.wall)
	return nil
}

// apart is the largest difference between two lists; infinite if they differ in length.
func apart(a, b []float64) (most float64) {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	for i := range a {
		most = max(most, math.Abs(a[i]-b[i]))
	}
	return most
}

// firstPairs copies the first n pairs of a file, so that both sides read the same one. Texts with a prompt become turns
// of a conversation.
func firstPairs(from, to string, n int) error {
	var b bytes.Buffer
	enough, rows := errors.New("enough"), 0
	err := data.ReadLines(from, func(_ int, row map[string]any) error {
		if rows == n {
			return enough
		}
		rows++
		asTurns(row)
		return json.NewEncoder(&b).Encode(row)
	})
	if err != nil && err != enough {
		return fmt.Errorf("--data: %w", err)
	}
	if rows < n {
		return fmt.Errorf("%s: %d pairs, want %d", from, rows, n)
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}

func asTurns(row map[string]any) {
	if _, ok := row["prompt"].(string); !ok {
		return
	}
	for column, role := range map[string]string{"prompt": "user", "chosen": "assistant", "rejected": "assistant"} {
		row[column] = []map[string]any{{"role": role, "content": row[column]}}
	}
}
