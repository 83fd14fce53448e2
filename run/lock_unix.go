//go:build unix

package run

import (
	"errors"
	"os"
	"syscall"
)

// Lock takes an open file for this process, or says [ErrInUse]. The system releases it when the file is closed or the process
// ends, however it ends, so that a killed run can be resumed at once.
func Lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}
