package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// ready is a side's first line.
type ready struct {
	Ready      bool   `json:"ready"`
	Torch      string `json:"torch,omitempty"`
	TRL        string `json:"trl,omitempty"`
	Engine     string `json:"engine,omitempty"`
	Parameters int    `json:"parameters"`
}

// did is a side's answer to a line that it read.
type did struct {
	Did       string  `json:"did"`
	Seconds   float64 `json:"seconds"`
	Loss      float64 `json:"loss"`
	PeakRSSMB float64 `json:"peak_rss_mb"`
	CPU       float64 `json:"cpu_seconds,omitempty"` // of all threads, which other programs' load changes less; 0: unknown

	Tokens int         `json:"tokens,omitempty"` // sampled
	IDs    [][]int32   `json:"ids,omitempty"`    // the sampled tokens, if they were asked for
	Logps  [][]float32 `json:"logps,omitempty"`  // their log-probs

	Rollout  float64 `json:"rollout_seconds,omitempty"` // parts of a step of reinforcement learning
	Scoring  float64 `json:"scoring_seconds,omitempty"`
	Training float64 `json:"training_seconds,omitempty"`
	Reward   float64 `json:"reward,omitempty"` // mean, as the entropy
	Entropy  float64 `json:"entropy,omitempty"`
	Norm     float64 `json:"norm,omitempty"` // of the gradient, before clipping
}

// side is one child process of a comparison.
type side struct {
	name  string
	ready ready
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
}

// launch says how a side is started.
type launch struct {
	name   string
	python string // interpreter of a script, whose path is the first argument; "": this very program
	args   []string
}

// play starts sides on a world, and stops them after do. It removes the world.
func play(world string, launches []launch, do func(sides []*side) error) error {
	defer os.RemoveAll(world)
	var sides []*side
	for _, l := range launches {
		s, err := l.start()
		if err != nil {
			return err
		}
		defer s.stop()
		sides = append(sides, s)
	}
	return do(sides)
}

// start runs a side and waits until it is ready.
func (l launch) start() (s *side, err error) {
	program := l.python
	if program == "" {
		program, err = os.Executable()
	} else if _, missing := os.Stat(l.args[0]); missing != nil {
		err = fmt.Errorf("%s: not found: run this from the repository's root", l.args[0])
	}
	if err != nil {
		return nil, err
	}
	s = &side{name: l.name, cmd: exec.Command(program, l.args...)}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", l.name, err)
	}
	if err := s.read(&s.ready); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// title is the name with the library or engine that the side uses.
func (s *side) title() string {
	with := s.ready.Engine
	if s.ready.Torch != "" {
		with = strings.TrimSpace(s.ready.TRL + " PyTorch " + s.ready.Torch)
	}
	return s.name + " (" + with + ")"
}

// ask has the side do one thing.
func (s *side) ask(word string, d *did) error {
	if _, err := fmt.Fprintln(s.in, word); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return s.read(d)
}

func (s *side) read(into any) error {
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s: it ended early (%w); see its own message above", s.name, err)
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("%s: %w in its line %s", s.name, err, line)
	}
	return nil
}

// stop ends the process and waits for it.
func (s *side) stop() {
	s.in.Close()
	_ = s.cmd.Wait() // how it ends does not matter after its last answer
}

// setup is how posttrain's own side works.
type setup struct {
	Backend  string
	BFloat16 bool
	Samples  int // of a prompt in a step of GRPO
	Slots    int // rows that are sampled together
}

// opened is a world's model with its engine, which outlives the worker.
type opened struct {
	setup
	dir    string // the world
	engine *backend.Engine
	model  *model.Model
}

// graph has the options that a run has on the engine.
func (o opened) graph() model.GraphOptions {
	g := model.GraphOptions{Room: o.engine.Wants.Room}
	if o.BFloat16 {
		g.DType = dtypes.BFloat16
	}
	return g
}

// own starts posttrain's side of a kind on a world.
func (s setup) own(kind, world string) launch {
	text, _ := json.Marshal(s) // numbers and texts always marshal
	return launch{"posttrain", "", []string{"side", kind, world, string(text)}}
}

// kinds make posttrain's sides.
var kinds = map[string]func(opened) (worker, error){"step": newTrainer, "sample": newDrawer, "grpo": newPupil}

// worker is one of posttrain's sides at work.
type worker interface {
	do(word string, n int) (did, error)
	close()
}

// newSide is the command that comparisons start, like their peers in Python.
func newSide() *cobra.Command {
	return &cobra.Command{Use: "side KIND DIR SETUP", Hidden: true, Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			var s setup
			if err := json.Unmarshal([]byte(args[2]), &s); err != nil {
				return err
			}
			return serve(args[0], args[1], s, cmd.InOrStdin(), cmd.OutOrStdout())
		}}
}

// serve says that a side is ready, and does what the lines ask: a word, which may have a number after it.
func serve(kind, dir string, s setup, in io.Reader, out io.Writer) error {
	m, err := model.Load(dir)
	if err != nil {
		return err
	}
	e, err := backend.Open(s.Backend)
	if err != nil {
		return err
	}
	defer e.Close()
	w, err := kinds[kind](opened{s, dir, e, m})
	if err != nil {
		return err
	}
	defer w.close()
	say := json.NewEncoder(out).Encode
	if err := say(ready{Ready: true, Engine: e.Name, Parameters: m.Config.ParamCount()}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan() && lines.Text() != "quit"; {
		word, number, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.Atoi(number)
		begin, used := time.Now(), usage()
		d, err := w.do(word, n)
		if err != nil {
			return err
		}
		now := usage()
		d.Did, d.Seconds, d.PeakRSSMB = word, cmp.Or(d.Seconds, time.Since(begin).Seconds()), float64(now.Maxrss)/1024
		d.CPU = float64(now.Utime.Nano()+now.Stime.Nano()-used.Utime.Nano()-used.Stime.Nano()) / 1e9
		if err := say(d); err != nil {
			return err
		}
	}
	return nil
}

// usage is what this process has used of the processors and of memory.
func usage() (u syscall.Rusage) {
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u
}
