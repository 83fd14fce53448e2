package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/spf13/pflag"
)

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

// way is one of posttrain's own sides, with a name for the table.
type way struct {
	name string
	option
}

// on starts the way on a world.
func (w way) on(world string) launch {
	return launch{w.name, "", append([]string{w.command(), world}, flagArgs(w.register)...)}
}

// allOn starts several ways on a world.
func allOn(world string, ways []way) (all []launch) {
	for _, w := range ways {
		all = append(all, w.on(world))
	}
	return all
}

// play starts sides on a world, whose making may have failed, and stops them after do. It removes the world.
func play(world string, err error, launches func(world string) []launch, do func(sides []*side) error) error {
	if err != nil {
		return err
	}
	defer os.RemoveAll(world)
	sides, err := startAll(launches(world)...)
	if err != nil {
		return err
	}
	defer stopAll(sides)
	return do(sides)
}

// flagArgs are the arguments that give flags their present values.
func flagArgs(register func(*pflag.FlagSet)) (args []string) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	register(flags)
	flags.VisitAll(func(f *pflag.Flag) { args = append(args, "--"+f.Name+"="+f.Value.String()) })
	return args
}

// startAll starts sides one after another. If one fails, it stops the others.
func startAll(all ...launch) (sides []*side, err error) {
	for _, l := range all {
		s, err := l.start()
		if err != nil {
			stopAll(sides)
			return nil, err
		}
		sides = append(sides, s)
	}
	return sides, nil
}

// start runs a side and waits until it is ready.
func (l launch) start() (s *side, err error) {
	program := l.python
	if program == "" {
		program, err = os.Executable()
	} else {
		err = checkScript(l.args[0])
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
	switch {
	case s.ready.TRL != "":
		return s.name + " " + s.ready.TRL + " (PyTorch " + s.ready.Torch + ")"
	case s.ready.Torch != "":
		return s.name + " (PyTorch " + s.ready.Torch + ")"
	}
	return s.name + " (" + s.ready.Engine + ")"
}

// ask has the side do one thing.
func (s *side) ask(word string) (did, error) {
	if _, err := fmt.Fprintln(s.in, word); err != nil {
		return did{}, fmt.Errorf("%s: %w", s.name, err)
	}
	var d did
	return d, s.read(&d)
}

// askAll has every side do one thing.
func askAll(sides []*side, word string) (all []did, err error) {
	for _, s := range sides {
		d, err := s.ask(word)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
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

func stopAll(sides []*side) {
	for _, s := range sides {
		s.stop()
	}
}

// runScript runs a Python script of this repository that prints one line of JSON. What else it says goes to log.
func runScript(python string, into any, log io.Writer, path string, args ...string) error {
	if err := checkScript(path); err != nil {
		return err
	}
	c := exec.Command(python, append([]string{path}, args...)...)
	c.Stderr = log
	line, err := c.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return json.Unmarshal(line, into)
}

// checkScript checks that a Python script of this repository can be found.
func checkScript(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s: not found: run this from the repository's root", path)
	}
	return nil
}
