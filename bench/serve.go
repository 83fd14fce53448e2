package main

import (
	"bufio"
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
}

// newServe is posttrain's side of a comparison, which other commands start.
func newServe() *cobra.Command {
	var f form
	cmd := &cobra.Command{
		Use:    "serve DIR",
		Short:  "posttrain's side: one step for each line read, as peer_torch.py does it",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return serve(args[0], f, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.backend, "backend", "auto", "engine")
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
	say := json.NewEncoder(out).Encode
	tokens := 0
	for _, p := range t.parts {
		tokens += p.Rows * p.Len
	}
	if err := say(ready{Ready: true, Engine: t.engine.Name, Parameters: m.Config.ParamCount(), Tokens: tokens}); err != nil {
		return err
	}
	return t.obey(in, say)
}

// obey works through the lines: step, forward, quit.
func (t *trainer) obey(in io.Reader, say func(any) error) error {
	work := map[string]func() (float64, error){"step": t.step, "forward": t.forward}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		word := strings.TrimSpace(lines.Text())
		if word == "quit" {
			return nil
		}
		f, ok := work[word]
		if !ok {
			return fmt.Errorf("%q: want step, forward or quit", word)
		}
		begin := time.Now()
		loss, err := f()
		if err != nil {
			return err
		}
		if err := say(did{word, time.Since(begin).Seconds(), loss, peakRSSMB()}); err != nil {
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
