//go:build !windows

package scorer

import (
	"errors"
	"os/exec"
	"syscall"
	"time"
)

// lead gives a program a process group of its own, which is killed when the program is.
func lead(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// endGroup ends the children of a program that has ended.
func endGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // an error says that no child is left
	}
}

// mostPipe is the most that a pipe holds of what a program wrote ahead of its end, in bytes.
const mostPipe = 1 << 20

// finish reads what the pipe has, and waits for no other who has it open.
func (s *stream) finish() {
	s.from.SetReadDeadline(time.Now())
	<-s.read
	s.from.SetReadDeadline(time.Time{})
	defer s.from.Close()
	raw, err := s.from.SyscallConn()
	if err != nil {
		return
	}
	text := make([]byte, mostPipe)
	raw.Read(func(fd uintptr) bool {
		n := 0
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			n, err = syscall.Read(int(fd), text)
		}
		s.to.Write(text[:max(n, 0)])
		return true
	})
}
