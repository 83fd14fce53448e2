package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/posttrain/posttrain/federated/control"
)

// compareSteps measures how many steps a second MuJoCo's tasks make on one core, here and in Gymnasium, in turns; beside
// them, what MuJoCo's own function for a step does alone: no program that calls it is faster.
func compareSteps(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("steps", flag.ExitOnError)
	python := flags.String("python", "", "a Python with gymnasium[mujoco]; without it Gymnasium is left out")
	steps := flags.Int("steps", 20000, "steps of a measurement")
	flags.Parse(args)
	return stepping{*python, max(1, *steps), 3}.measure(ctx, os.Stdout)
}

// stepping is a comparison; turns are its measurements of each.
type stepping struct {
	python       string
	steps, turns int
}

func (s stepping) measure(ctx context.Context, out io.Writer) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	fmt.Fprintf(out, "Steps a second of processor time, on one core: median of %d times %d steps under random "+
		"actions.\n\n| task | posttrain | Gymnasium | ratio | mj_step alone | ratio |\n|---|---|---|---|---|---|\n",
		s.turns, s.steps)
	for _, task := range []string{"swimmer", "hopper", "walker2d", "humanoid"} {
		var ours, theirs, bare []float64
		for range s.turns {
			rate, err := s.own(task)
			if err != nil {
				return err
			}
			ours = append(ours, rate)
			if s.python == "" {
				continue
			}
			whole, alone, err := s.gymnasium(ctx, task)
			if err != nil {
				return err
			}
			theirs, bare = append(theirs, whole), append(bare, alone)
		}
		rate := median(ours)
		fmt.Fprintf(out, "| %s | %.0f |%s%s\n", task, rate, beside(rate, theirs), beside(rate, bare))
	}
	return nil
}

func beside(ours float64, theirs []float64) string {
	if len(theirs) == 0 {
		return " – | – |"
	}
	return fmt.Sprintf(" %.0f | %.2f |", median(theirs), ours/median(theirs))
}

func median(x []float64) float64 { return slices.Sorted(slices.Values(x))[len(x)/2] }

// own is the rate of posttrain's environment.
func (s stepping) own(task string) (float64, error) {
	e, space, err := control.Open(task)
	if err != nil {
		return 0, err
	}
	r := rand.New(rand.NewPCG(1, 2))
	observation, action := make([]float64, space.Observations), make([]float64, space.Actions())
	e.Reset(r, observation)
	begun := processorTime()
	for k := 1; k <= s.steps; k++ {
		for i, low := range space.Low {
			action[i] = low + (space.High[i]-low)*r.Float64()
		}
		if _, ended := e.Step(action, observation); ended || k%space.Limit == 0 {
			e.Reset(r, observation)
		}
	}
	return float64(s.steps) / (processorTime() - begun), nil
}

// processorTime is what this process has used, in seconds. Unlike the clock it does not count other programs.
func processorTime() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return math.NaN()
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

//go:embed steps.py
var program string

// gymnasium gives the rates of Gymnasium's environment and of mj_step alone.
func (s stepping) gymnasium(ctx context.Context, task string) (whole, alone float64, err error) {
	command := exec.CommandContext(ctx, s.python, "-W", "ignore", "-c", program, task, strconv.Itoa(s.steps))
	var said strings.Builder
	command.Stderr = &said
	text, err := command.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return 0, 0, fmt.Errorf("%s: %w: %s", s.python, err, lines[len(lines)-1])
	}
	_, err = fmt.Sscan(string(text), &whole, &alone)
	return whole, alone, err
}
