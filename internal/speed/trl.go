package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
)

// trlOptions are the options of the comparison with TRL.
type trlOptions struct {
	python, data, model, backend  string
	dtype, prior, device, program string
	pairs, batch                  int
	rate                          float64
	set                           []string
}

func newTRL() *cobra.Command {
	o := trlOptions{}
	cmd := &cobra.Command{Use: "trl", Short: "posttrain mappo against TRL's DPOTrainer on real pairs", Args: cobra.NoArgs,
		Long: `Both sides train DPO, or MaPPO's form of it, for one epoch on the same pairs in file order, from the same
model, with the same tokenizer; rows with a prompt become conversations. They compute the reference's log-probs before
training. posttrain's time is that of its whole process, with saving. TRL's is loading, tokenisation, reference pass and
training. Python's imports are in another column; TRL does not save.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) }}
	flags := cmd.Flags()
	flags.StringVar(&o.python, "python", "python3", "interpreter with TRL (scripts/oracle/requirements.txt)")
	flags.StringVar(&o.data, "data", "", "preference pairs, .jsonl or .jsonl.gz")
	flags.StringVar(&o.program, "posttrain", "", "the program that is measured (default: built with go)")
	flags.StringVar(&o.model, "model", "", "model folder (default: a new one by make_model.py)")
	flags.StringVar(&o.backend, "backend", "auto", "posttrain's engine")
	flags.StringVar(&o.dtype, "dtype", "float32", "type that both sides compute in: float32 or bfloat16")
	flags.StringVar(&o.prior, "prior", "none", "none (DPO), or mappo: TRL's loss with scaled rejected log-probs")
	flags.StringVar(&o.device, "device", "cpu", "PyTorch's device")
	flags.IntVar(&o.pairs, "pairs", 256, "use only the first N pairs")
	flags.IntVar(&o.batch, "batch", 8, "pairs a step")
	flags.Float64Var(&o.rate, "rate", 1e-5, "learning rate, constant")
	flags.StringArrayVar(&o.set, "set", nil, "further settings for posttrain, key=value")
	return cmd
}

// result is what peer_trl.py prints, and what is known of posttrain's run.
type result struct {
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
	name    string
	whole   float64 // seconds of the process
}

func (o *trlOptions) run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "speed-trl-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pairs, binary := filepath.Join(dir, "pairs.jsonl"), o.program
	if err := firstPairs(o.data, pairs, o.pairs); err != nil {
		return err
	}
	if o.model == "" {
		o.model = filepath.Join(dir, "model")
		if err := call(o.python, "internal/speed/make_model.py", "--data", o.data, o.model).Run(); err != nil {
			return fmt.Errorf("make_model.py: %w", err)
		}
	}
	if binary == "" {
		binary = filepath.Join(dir, "posttrain")
		if err := buildPosttrain(binary); err != nil {
			return err
		}
	}
	// Programs that XLA compiled before must not count as compiled at once.
	if err := os.Setenv("POSTTRAIN_XLA_CACHE", filepath.Join(dir, "programs")); err != nil {
		return err
	}
	own, err := o.posttrain(binary, filepath.Join(dir, "run"), pairs)
	if err != nil {
		return err
	}
	trl, err := o.trl(pairs)
	if err != nil {
		return err
	}
	return o.report(out, own, trl)
}

func buildPosttrain(binary string) error {
	if err := call("go", "build", "-o", binary, "./cmd/posttrain").Run(); err != nil {
		return fmt.Errorf("go build ./cmd/posttrain: %w", err)
	}
	return nil
}

// call is a child process that prints to standard error only.
func call(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return c
}

// posttrain trains with the command, as a user would.
func (o *trlOptions) posttrain(binary, folder, pairs string) (r result, err error) {
	args := []string{"mappo", "--quiet", "--prior", o.prior, "--model", o.model, "--data", pairs,
		"--backend", o.backend, "--out", folder}
	for _, s := range append([]string{"data.eval_fraction=0", "data.max_tokens=0", "train.epochs=1",
		"train.max_steps=0", "train.shuffle=false", "train.schedule=constant", "train.warmup_steps=0",
		"train.weight_decay=0", "train.eval_every=0", "train.eval_metric=", "train.log_every=1",
		"train.batch_size=" + strconv.Itoa(o.batch), "train.dtype=" + o.dtype,
		"train.learning_rate=" + fmt.Sprint(o.rate)}, o.set...) {
		args = append(args, "--set", s)
	}
	c, begin := call(binary, args...), time.Now()
	if err := c.Run(); err != nil {
		return r, fmt.Errorf("posttrain %s: %w", strings.Join(args, " "), err)
	}
	r = result{name: "posttrain mappo, " + o.backend, Pairs: o.pairs, whole: time.Since(begin).Seconds(),
		PeakMB: float64(c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024}
	records, err := run.ReadMetrics(filepath.Join(folder, "metrics.jsonl"))
	for _, record := range records {
		if loss, ok := record.Values["loss"]; ok {
			r.Losses, r.Tokens = append(r.Losses, loss), int(record.Values["num_tokens"])
			r.Loss, r.Train = r.Loss+loss, r.Train+record.Values["step_time"]
		}
	}
	r.Loss /= float64(len(r.Losses))
	r.Prepare = r.whole - r.Train
	return r, err
}

func (o *trlOptions) trl(pairs string) (r result, err error) {
	begin := time.Now()
	c := exec.Command(o.python, "internal/speed/peer_trl.py", "--model", o.model, "--data", pairs, "--pairs",
		strconv.Itoa(o.pairs), "--batch", strconv.Itoa(o.batch), "--rate", fmt.Sprint(o.rate), "--dtype", o.dtype,
		"--prior", o.prior, "--device", o.device)
	var log strings.Builder // TRL prints a lot
	c.Stderr = &log
	line, err := c.Output()
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		return r, fmt.Errorf("peer_trl.py: %w\n%s", err, log.String())
	}
	r.name, r.whole = "TRL "+r.TRL+", PyTorch "+r.Torch, time.Since(begin).Seconds()
	return r, nil
}

// report prints both sides and checks that they trained on the same pairs with about the same loss. The sides split a
// dialogue into prompt and answers by their own rules, so that some answers begin a token earlier or later.
func (o *trlOptions) report(out io.Writer, own, trl result) error {
	fmt.Fprintf(out, "\nprior %s on %d pairs of %s, batch %d, one epoch, %s; load of the machine %s\n", o.prior, o.pairs,
		filepath.Base(o.data), o.batch, o.dtype, load())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "side\tpairs\ttokens\tbeside the steps s\tsteps s\tpairs/s\timports s\tmean loss\tpeak MB\t")
	counted := func(r result) float64 { return r.Load + r.Prepare + r.Train }
	for _, r := range []result{trl, own} {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%.1f\t%.2f\t%.1f\t%.4f\t%.0f\t\n", r.name, r.Pairs, r.Tokens, r.Load+r.Prepare,
			r.Train, float64(r.Pairs)/counted(r), r.whole-counted(r), r.Loss, r.PeakMB)
	}
	w.Flush()
	if trl.Pairs != own.Pairs || math.Abs(trl.Loss-own.Loss) > 0.02 {
		return fmt.Errorf("the sides do not train the same thing: %d and %d pairs, mean losses %.4f and %.4f",
			trl.Pairs, own.Pairs, trl.Loss, own.Loss)
	}
	most := 0.0
	for i := range min(len(trl.Losses), len(own.Losses)) {
		most = max(most, math.Abs(trl.Losses[i]-own.Losses[i]))
	}
	_, err := fmt.Fprintf(out, "largest difference of a step's loss: %.1e\npairs a second, posttrain / TRL: %.2f\n", most,
		counted(trl)/counted(own))
	return err
}

// firstPairs copies the first n pairs of a file, so that both sides read the same one. Texts with a prompt become turns
// of a conversation.
func firstPairs(from, to string, n int) error {
	var b bytes.Buffer
	rows := 0
	for row, err := range data.Rows(nil, from) {
		if err != nil {
			return fmt.Errorf("--data: %w", err)
		}
		if rows == n {
			break
		}
		rows++
		if _, ok := row.Fields["prompt"].(string); ok {
			for column, role := range map[string]string{"prompt": "user", "chosen": "assistant", "rejected": "assistant"} {
				row.Fields[column] = []map[string]any{{"role": role, "content": row.Fields[column]}}
			}
		}
		if err := json.NewEncoder(&b).Encode(row.Fields); err != nil {
			return err
		}
	}
	if rows < n {
		return fmt.Errorf("%s: %d pairs, want %d", from, rows, n)
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}
