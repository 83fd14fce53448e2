package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// side is one child process of a comparison.
type side struct {
	name  string
	ready ready
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
}

// start runs a side and waits until it is ready.
func start(name, program string, args ...string) (*side, error) {
	s := &side{name: name, cmd: exec.Command(program, args...)}
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
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := s.read(&s.ready); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// startOurs starts posttrain's side of a step, this very program, on a world.
func startOurs(name, world string, f form) (*side, error) {
	return startSelf(name, append([]string{"serve", world}, f.args()...)...)
}

// startSelf starts a side of posttrain's: this very program with other arguments.
func startSelf(name string, args ...string) (*side, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(name, self, args...)
}

// startPython starts a side of a script of this folder.
func startPython(python, name string, args ...string) (*side, error) {
	path, err := script(name)
	if err != nil {
		return nil, err
	}
	return start(name, python, append([]string{path}, args...)...)
}

// title is the name with what the side runs on.
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

func (s *side) read(into any) error {
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s: it ended early (%w); its own message stands above", s.name, err)
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("%s: %w in its line %s", s.name, err, line)
	}
	return nil
}

// stop ends the process and waits for it.
func (s *side) stop() {
	s.in.Close()
	_ = s.cmd.Wait() // its last answer is all that counts
}

func stopAll(sides []*side) {
	for _, s := range sides {
		s.stop()
	}
}

// script is the path of a Python script beside this program's source, seen from the repository's root.
func script(name string) (string, error) {
	path := filepath.Join("bench", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: not here: run this from the repository's root", path)
	}
	return path, nil
}
