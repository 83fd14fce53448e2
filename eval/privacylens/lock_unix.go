//go:build unix

package privacylens

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
		return fmt.Errorf("%s: another process is at this stage of the run: wait for it to end, or name another --out DIR", f.Name())
	}
	if err != nil {
		return fmt.Errorf("%s cannot be locked: %w", f.Name(), err)
	}
	return nil
}
