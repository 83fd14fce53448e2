//go:build unix

package judge

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock takes a file for this process. The system releases it when the file is closed or the process ends, however it ends.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another run is using this file of the judge's replies: wait for it to end, or name another file")
	}
	if err != nil {
		return fmt.Errorf("the file cannot be locked: %w", err)
	}
	return nil
}
