//go:build !windows

package run

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks an open file for this process, or returns [ErrInUse]. The system releases the lock when the file is closed
// or the process ends in any way, so that a killed run can be resumed at once.
func Lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}
