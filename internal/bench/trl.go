package main

import (
	"bytes"
	"compress/gzip"
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

// goalOf is the target for posttrain's pairs a second over TRL's. A model of the user's is taken for a real one, which
// spends more of its time in products.
func goalOf(dtype string, real bool) float64 {
	switch {
	case dtype == "bfloat16":
		return 1.5
	case real:
		return 3
	}
	return 5
}

// trlOptions are the options of the comparison with TRL.
type trlOptions struct {
	python, data, model, binary, backend string
	dtype, prior, device                 string
	pairs, batch, rounds                 int
	rate                                 float64
	compile                              bool
	keep                                 bool
	set                                  []string
}

func newTRL() *cobra.Command {
	o := trlOptions{}
	cmd := newCommand("trl", "posttrain mappo against TRL's DPOTrainer on real pairs",
		"  go run ./internal/bench trl --python venv/bin/python --data ../shared/data/hh-rlhf/harmless-base-test.jsonl.gz",
		o.run)
	cmd.Long = `Both sides train DPO, or MaPPO's form of it, for one epoch on the same pairs in file order, from the same
model, with the same tokenizer; rows with a prompt become conversations. They compute the reference's log-probs before
training. posttrain's time is that of its whole process, with saving. TRL's is loading, tokenisation, reference pass and
training. Python's imports are in another column; TRL does not save.`
	flags := cmd.Flags()
	flags.StringVar(&o.python, "python", "python3", "interpreter with TRL (scripts/oracle/requirements.txt)")
	flags.StringVar(&o.data, "data", "", "preference pairs, .jsonl or .jsonl.gz")
	flags.StringVar(&o.model, "model", "", "model folder (default: a new one by make_model.py)")
	flags.StringVar(&o.binary, "posttrain", "", "posttrain binary (default: built now)")
	flags.StringVar(&o.backend, "backend", "auto", "posttrain's engine")
	flags.StringVar(&o.dtype, "dtype", "float32", "type that both sides compute in: float32 or bfloat16")
	flags.StringVar(&o.prior, "prior", "none", "none (DPO), or mappo: TRL's loss with scaled rejected log-probs")
	flags.StringVar(&o.device, "device", "cpu", "PyTorch's device")
	flags.BoolVar(&o.compile, "compile", false, "torch.compile for TRL")
	flags.IntVar(&o.rounds, "rounds", 1, "runs of each side, alternating; the first one of posttrain compiles")
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
	PeakGPU float64 `json:"peak_gpu_gb"`
	wall    float64
}

// ownResult is the result of posttrain's run.
type ownResult struct {
	pairs, tokens int
	wall, train   float64 // seconds of the process, and of its steps
	loss, peakMB  float64
	peakGPU       float64 // GB; 0: there is no GPU
	losses        []float64
	steps         []timedStep
}

// timedStep is a step's seconds and tokens.
type timedStep struct {
	seconds float64
	tokens  int
}

// beyond is the seconds that steps took beyond the median rate of tokens, where they took more than half as much again:
// those that compile a program for a new shape.
func beyond(steps []timedStep) (seconds float64) {
	var rates []float64 // seconds a token
	for _, s := range steps {
		rates = append(rates, s.seconds/float64(max(1, s.tokens)))
	}
	usual := median(rates)
	for _, s := range steps {
		if expected := usual * float64(s.tokens); s.seconds > 1.5*expected {
			seconds += s.seconds - expected
		}
	}
	return seconds
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
	goal := goalOf(o.dtype, o.model != "")
	if err := o.prepare(dir); err != nil {
		return err
	}
	// Programs that XLA compiled before must not count as compiled at once.
	if err := os.Setenv("POSTTRAIN_XLA_CACHE", filepath.Join(dir, "programs")); err != nil {
		return err
	}
	return o.alternate(out, dir, pairs, goal)
}

// alternate runs both sides, posttrain first, as often as asked for.
func (o *trlOptions) alternate(out io.Writer, dir, pairs string, goal float64) error {
	var ratios []float64
	for round := range o.rounds {
		begin := time.Now()
		own, err := o.posttrain(filepath.Join(dir, fmt.Sprint("run", round)), pairs)
		if err != nil {
			return err
		}
		trl, err := o.trl(pairs)
		if err != nil {
			return err
		}
		ratio, err := o.report(out, own, trl)
		if err != nil {
			return err
		}
		ratios = append(ratios, ratio)
		if round == 0 && o.rounds > 1 {
			fmt.Fprintf(out, "a round takes %.0f s, %d more come\n", time.Since(begin).Seconds(), o.rounds-1)
		}
	}
	fmt.Fprintf(out, "pairs a second, posttrain / TRL, median of %d: %.2f, asked for at least %g: %s\n", o.rounds,
		median(ratios), goal, verdict(median(ratios) >= goal))
	return nil
}

// prepare makes the model and the binary, unless they are given.
func (o *trlOptions) prepare(dir string) error {
	if o.model == "" {
		const path = "internal/bench/make_model.py"
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
func (o *trlOptions) posttrain(folder, pairs string) (r ownResult, err error) {
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
	begin, stop := time.Now(), watchMemory()
	err = c.Run()
	if r.peakGPU = stop(); err != nil {
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
			r.steps = append(r.steps, timedStep{m.StepTime, int(m.Tokens) - r.tokens})
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
	args := []string{"--model", o.model, "--data", pairs, "--pairs", strconv.Itoa(o.pairs),
		"--batch", strconv.Itoa(o.batch), "--rate", fmt.Sprint(o.rate), "--dtype", o.dtype, "--prior", o.prior,
		"--device", o.device}
	if o.compile {
		args = append(args, "--compile")
	}
	err = runScript(o.python, &r, &log, "internal/bench/peer_trl.py", args...)
	if err != nil {
		return r, fmt.Errorf("%w\n%s", err, log.String())
	}
	r.wall = time.Since(begin).Seconds()
	return r, nil
}

// report prints both sides and checks that they trained on the same pairs with about the same loss. The sides split a
// dialogue into prompt and answers by their own rules, so that some answers begin a token earlier or later. The ratio is
// that of the sides' pairs a second.
func (o *trlOptions) report(out io.Writer, own ownResult, trl trlResult) (ratio float64, err error) {
	counted := trl.Load + trl.Prepare + trl.Train
	title := fmt.Sprintf("prior %s on %d pairs of %s, batch %d, one epoch, %s", o.prior, o.pairs,
		filepath.Base(o.data), o.batch, o.dtype)
	header := "side\tpairs\ttokens\tbeside the steps s\tsteps s\tcounted s\tpairs/s\t" +
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
		return 0, fmt.Errorf("the sides do not train the same thing: %d and %d pairs, mean losses %.4f and %.4f",
			trl.Pairs, own.pairs, trl.Loss, own.loss)
	}
	fmt.Fprintf(out, "largest difference of a step's loss: %.1e\n", apart(trl.Losses, own.losses))
	compiled := beyond(own.steps)
	fmt.Fprintf(out, "posttrain's steps take %.1f s; %.1f s of these are beyond their median rate of tokens: those that "+
		"compile\n", own.train, compiled)
	if trl.PeakGPU > 0 {
		fmt.Fprintf(out, "peak memory on the GPU: TRL %.1f GB, posttrain %.1f GB\n", trl.PeakGPU, own.peakGPU)
	}
	ratio = counted / own.wall
	fmt.Fprintf(out, "pairs a second, posttrain / TRL: %.2f (whole processes: %.2f, steps without compiling: %.2f)\n",
		ratio, trl.wall/own.wall, trl.Train/(own.train-compiled))
	return ratio, nil
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
	plain, err := unpack(from, to)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	err = data.ReadLines(plain, func(_ int, row map[string]any) error {
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

// unpack gives the path of a file's plain text, which is beside to where the file is packed.
func unpack(from, to string) (string, error) {
	if filepath.Ext(from) != ".gz" {
		return from, nil
	}
	packed, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		return "", fmt.Errorf("%s: %w", from, err)
	}
	plain := to + ".all"
	return plain, data.WriteFile(plain, func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
}

func asTurns(row map[string]any) {
	if _, ok := row["prompt"].(string); !ok {
		return
	}
	for column, role := range map[string]string{"prompt": "user", "chosen": "assistant", "rejected": "assistant"} {
		row[column] = []map[string]any{{"role": role, "content": row[column]}}
	}
}
