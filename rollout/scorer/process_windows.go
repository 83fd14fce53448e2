package scorer

import (
	"os/exec"
	"time"
)

// lead does nothing: the program itself is killed, not its children.
func lead(*exec.Cmd) {}

func endGroup(*exec.Cmd) {}

// finish waits a moment for the end of what the program wrote, which a child of it may keep open.
func (s *stream) finish() {
	select {
	case <-s.read:
	case <-time.After(lingering):
	}
	s.from.Close()
	<-s.read
}
