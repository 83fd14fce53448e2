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
	"syscall"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

// did is a side's answer to a line that it read.
type did struct {
	Did       string  `json:"did"`
	Seconds   float64 `json:"seconds"`
	Loss      float64 `json:"loss"`
	PeakRSSMB float64 `json:"peak_rss_mb"`
	GFLOP     float64 `json:"gflop,omitempty"`       // of a step's matrix products
	CPU       float64 `json:"cpu_seconds,omitempty"` // of all threads, which other programs' load changes less

	Tokens int         `json:"tokens,omitempty"` // sampled
	IDs    [][]int32   `json:"ids,omitempty"`    // the sampled tokens, if they were asked for
	Logps  [][]float32 `json:"logps,omitempty"`  // their log-probs

	Rollout  float64 `json:"rollout_seconds,omitempty"` // parts of a step of reinforcement learning
	Scoring  float64 `json:"scoring_seconds,omitempty"`
	Training float64 `json:"training_seconds,omitempty"`
	Reward   float64 `json:"reward,omitempty"` // this and the next two: means
	KL       float64 `json:"kl,omitempty"`
	Entropy  float64 `json:"entropy,omitempty"`
	Norm     float64 `json:"norm,omitempty"` // of the gradient, before clipping

}

// option is how one of posttrain's sides works.
type option interface {
	command() string               // that serves it
	register(flags *pflag.FlagSet) // the present values are the defaults
	serve(dir string, in io.Reader, out io.Writer) error
}

// newSide is a command that other commands start, like their peers in Python; its argument is the world.
func newSide(does string, o option) *cobra.Command {
	cmd := &cobra.Command{
		Use:    o.command() + " DIR",
		Short:  "posttrain's side: " + does,
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.serve(args[0], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	o.register(cmd.Flags())
	return cmd
}

func newServe() *cobra.Command {
	return newSide("one step for each line read, as peer_torch.py does it", &form{backend: "auto"})
}

func (f *form) command() string { return "serve" }

func (f *form) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.backend, "backend", f.backend, "engine")
	flags.BoolVar(&f.share, "share", f.share, "both answers share a row with their prompt")
	flags.BoolVar(&f.checkpoint, "checkpoint", f.checkpoint, "recompute layers in the backward pass")
	flags.IntVar(&f.micro, "micro", f.micro, "pairs a forward pass; 0: all at once")
	flags.BoolVar(&f.bfloat16, "bfloat16", f.bfloat16, "compute in bfloat16")
}

func (f *form) serve(dir string, in io.Reader, out io.Writer) error {
	m, err := model.Load(dir)
	if err != nil {
		return err
	}
	p, err := readProblem(dir)
	if err != nil {
		return err
	}
	t, err := openTrainer(m, p, *f)
	if err != nil {
		return err
	}
	defer t.close()
	tokens := 0
	for _, p := range t.parts {
		tokens += p.Rows * p.Len
	}
	withLoss := func(f func() (float64, error)) work {
		return func(int) (d did, err error) { d.Loss, err = f(); return d, err }
	}
	r := ready{Engine: t.engine.Name, Parameters: m.Config.ParamCount(), Tokens: tokens}
	all := map[string]work{"step": withLoss(t.step), "forward": withLoss(t.forward),
		"products": func(int) (did, error) { return t.products() }}
	return obey(in, out, r, "step, forward, products or quit", all)
}

// work is what a side does for a line, which may end in a number n. obey takes the time, unless the answer has it.
type work = func(n int) (did, error)

// obey says that a side is ready, and does what the lines ask.
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
		begin, used := time.Now(), cpuSeconds()
		d, err := f(n)
		if err != nil {
			return err
		}
		_, peak := memoryOf("self")
		d.CPU = cpuSeconds() - used
		d.Did, d.Seconds, d.PeakRSSMB = word, cmp.Or(d.Seconds, time.Since(begin).Seconds()), peak
		if err := say(d); err != nil {
			return err
		}
	}
	return nil
}

// cpuSeconds is what this process has used of the processors.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// memoryOf is what a process (a number, or self) holds, and the most it has held, in MB. Both are 0 on systems other
// than Linux, and for a process that is ending.
func memoryOf(process string) (now, peak float64) {
	status, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		return 0, 0
	}
	read := func(field string) (kb float64) {
		_, rest, _ := strings.Cut(string(status), "\n"+field+":")
		_, _ = fmt.Sscan(rest, &kb)
		return kb / 1024
	}
	return read("VmRSS"), read("VmHWM")
}
