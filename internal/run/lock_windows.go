package run

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Lock locks an open file for this process, or returns [ErrInUse]. The system releases the lock when the file is closed
// or the process ends in any way, so that a killed run can be resumed at once.
func Lock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	place := windows.Overlapped{OffsetHigh: 1} // far behind the content, which others may not read where it is locked
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &place)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrInUse
	}
	return err
}
