package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/model"
)

const bfloat16 = dtypes.BFloat16

// ready is a side's first line.
type ready struct {
	Ready      bool   `json:"ready"`
	Torch      string `json:"torch,omitempty"`
	TRL        string `json:"trl,omitempty"`
	Engine     string `json:"engine,omitempty"`
	Threads    int    `json:"threads,omitempty"`
	Parameters int    `json:"parameters"`
	Tokens     int    `json:"tokens"` // of all rows, padding included
}

// did is a side's answer to a line.
type did struct {
	Did       string  `json:"did"`
	Seconds   float64 `json:"seconds"`
	Loss      float64 `json:"loss"`
	PeakRSSMB float64 `json:"peak_rss_mb"`

	Tokens int         `json:"tokens,omitempty"` // sampled
	IDs    [][]int32   `json:"ids,omitempty"`    // the tokens themselves, where they were asked for
	Logps  [][]float32 `json:"logps,omitempty"`  // and their log-probs

	Rollout  float64 `json:"rollout_seconds,omitempty"` // parts of a step of reinforcement learning
	Scoring  float64 `json:"scoring_seconds,omitempty"`
	Training float64 `json:"training_seconds,omitempty"`
	Reward   float64 `json:"reward,omitempty"` // its means
	KL       float64 `json:"kl,omitempty"`
	Entropy  float64 `json:"entropy,omitempty"`
	Norm     float64 `json:"norm,omitempty"` // of the gradient, before clipping
}

// newSide is a command that other commands start, as their peers in Python; it works on the folder that its argument names.
func newSide(name, does string, backend *string, serve func(dir string, in io.Reader, out io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:    name + " DIR",
		Short:  "posttrain's side: " + does,
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return serve(args[0], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(backend, "backend", "auto", "engine")
	return cmd
}

// newServe is posttrain's side of a comparison, which other commands start.
func newServe() *cobra.Command {
	var f form
	cmd := newSide("serve", "one step for each line read, as peer_torch.py does it", &f.backend, func(dir string, in io.Reader, out io.Writer) error {
		return serve(dir, f, in, out)
	})
	flags := cmd.Flags()
	flags.BoolVar(&f.share, "share", false, "prompts stand once")
	flags.BoolVar(&f.checkpoint, "checkpoint", false, "recompute layers in the backward pass")
	flags.IntVar(&f.micro, "micro", 0, "pairs a forward pass; 0: all at once")
	return cmd
}

// args are the flags that make serve take this form.
func (f form) args() []string {
	return []string{"--backend=" + f.backend, "--share=" + strconv.FormatBool(f.share), "--checkpoint=" + strconv.FormatBool(f.checkpoint),
		"--micro=" + strconv.Itoa(f.micro)}
}

func serve(dir string, f form, in io.Reader, out io.Writer) error {
	m, err := model.Load(dir)
	if err != nil {
		return err
	}
	p, err := readProblem(dir)
	if err != nil {
		return err
	}
	t, err := openTrainer(m, p, f)
	if err != nil {
		return err
	}
	defer t.close()
	tokens := 0
	for _, p := range t.parts {
		tokens += p.Rows * p.Len
	}
	losing := func(f func() (float64, error)) work {
		return func(int) (d did, err error) { d.Loss, err = f(); return d, err }
	}
	r := ready{Engine: t.engine.Name, Parameters: m.Config.ParamCount(), Tokens: tokens}
	return obey(in, out, r, "step, forward or quit", map[string]work{"step": losing(t.step), "forward": losing(t.forward)})
}

// work is what a side does for a line, which may end in a number. Its seconds are those of the whole unless it gives them.
type work = func(n int) (did, error)

// obey says that a side is ready, and works through its lines.
func obey(in io.Reader, out io.Writer, r ready, want string, all map[string]work) error {
	say := json.NewEncoder(out).Encode
	r.Ready = true
	if err := say(r); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		word, number, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if word == "quit" {
			return nil
		}
		f, ok := all[word]
		n, err := strconv.Atoi(cmp.Or(number, "0"))
		if !ok || err != nil {
			return fmt.Errorf("%q: want %s", lines.Text(), want)
		}
		begin := time.Now()
		d, err := f(n)
		if err != nil {
			return err
		}
		d.Did, d.Seconds, d.PeakRSSMB = word, cmp.Or(d.Seconds, time.Since(begin).Seconds()), peakRSSMB()
		if err := say(d); err != nil {
			return err
		}
	}
	return nil
}

// peakRSSMB is the most memory this process has held, as Linux counts it; 0 elsewhere.
func peakRSSMB() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024
		}
	}
	return 0
}
