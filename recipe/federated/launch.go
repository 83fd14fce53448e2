package federated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/posttrain/posttrain/internal/run"
)

// clientsName is the folder of the agents' states and output in the run folder of a server that spawns them.
const clientsName = "clients"

// patience is how long agents may take to end by themselves.
const patience = 10 * time.Second

// spawn starts all agents. They end with ctx, and with this process, however it ends, as the pipe to them closes. If all
// end before, they stop the run.
func (s *service) spawn(ctx context.Context, stop context.CancelCauseFunc) (*sync.WaitGroup, error) {
	dir, all := s.folder.Path(clientsName), new(sync.WaitGroup)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return all, fmt.Errorf("%s cannot be made: %w", dir, run.Cause(err))
	}
	for i := range s.Agents {
		if err := s.start(ctx, all, fmt.Sprintf("agent-%d", i), dir); err != nil {
			return all, err
		}
	}
	go func() {
		all.Wait()
		stop(errors.New("all agents have ended before the run: see the folder " + clientsName + " in the run folder"))
	}()
	return all, nil
}

// start starts the process of an agent, and warns when it fails.
func (s *service) start(ctx context.Context, all *sync.WaitGroup, name, dir string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return fmt.Errorf("agent %s: %w", name, err)
	}
	cmd := exec.CommandContext(ctx, program, "federated", "client", "--server", s.linked.Server, "--agent", name,
		"--state", dir, "--until-eof", "--allow", "libraries") // of our own configuration
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = log, log, patience
	input, err := cmd.StdinPipe()
	if err == nil {
		cmd.Cancel = input.Close
		err = cmd.Start()
	}
	if err != nil {
		log.Close()
		return fmt.Errorf("agent %s cannot be started: %w", name, err)
	}
	all.Go(func() {
		defer log.Close()
		if cmd.Wait() == nil || ctx.Err() != nil {
			return
		}
		text, _ := os.ReadFile(log.Name())
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		last := lines[len(lines)-1]
		if last == "" {
			last = cmd.ProcessState.String()
		}
		s.Warn("%s ended: %s", name, last)
	})
	return nil
}
