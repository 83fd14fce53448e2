package federated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/run"
)

// Launcher makes the command of an agent's process, which connects to a server, keeps its state in a folder, and ends
// when its standard input does.
type Launcher func(server, agent, dir string) *exec.Cmd

// clientsName is the folder of the agents' states and output in the run folder of a server that spawns them.
const clientsName = "clients"

// patience is how long agents may take to end by themselves.
const patience = 10 * time.Second

// launched are the agents' processes of a server that spawns them.
type launched struct {
	run.Reporter
	all []*client
}

type client struct {
	name  string
	cmd   *exec.Cmd
	log   *os.File
	input io.Closer     // closing it ends the process
	done  chan struct{} // closed at its end
}

// startAgents starts n agents. They end with this process, however it ends, as the pipe to them closes.
func startAgents(r run.Reporter, how Launcher, n int, server, dir string) (l *launched, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("%s cannot be made: %w", dir, run.Cause(err))
	}
	l = &launched{Reporter: r}
	for i := range n {
		c, err := start(how, fmt.Sprintf("agent-%d", i), server, dir)
		if err != nil {
			l.stop()
			return nil, err
		}
		l.all = append(l.all, c)
	}
	return l, nil
}

func start(how Launcher, name, server, dir string) (_ *client, err error) {
	c := &client{name: name, cmd: how(server, name, dir), done: make(chan struct{})}
	if c.log, err = os.Create(filepath.Join(dir, name+".log")); err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if c.input, err = c.cmd.StdinPipe(); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		c.log.Close()
		return nil, fmt.Errorf("agent %s cannot be started: %w", name, err)
	}
	go func() {
		c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// watch warns of agents that fail, and stops the run when none is left.
func (l *launched) watch(ctx context.Context, stop context.CancelCauseFunc) {
	failed := make(chan *client)
	for _, c := range l.all {
		go func() {
			<-c.done
			select {
			case failed <- c:
			case <-ctx.Done():
			}
		}()
	}
	for left := len(l.all); left > 0; left-- {
		select {
		case <-ctx.Done():
			return
		case c := <-failed:
			if !c.cmd.ProcessState.Success() {
				l.Warn("%s ended: %s", c.name, c.last())
			}
		}
	}
	stop(errors.New("all agents have ended before the run: see the folder " + clientsName + " in the run folder"))
}

// last is the last line that an agent has printed.
func (c *client) last() string {
	text, err := os.ReadFile(c.log.Name())
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || lines[len(lines)-1] == "" {
		return c.cmd.ProcessState.String()
	}
	return lines[len(lines)-1]
}

// stop ends all agents, and waits for them.
func (l *launched) stop() {
	for _, c := range l.all {
		c.input.Close()
	}
	end := time.After(patience)
	for _, c := range l.all {
		select {
		case <-c.done:
		case <-end:
			c.cmd.Process.Kill()
			<-c.done
			end = time.After(0)
		}
		c.log.Close()
	}
}
