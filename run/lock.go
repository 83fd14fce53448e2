package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// ErrInUse says that another process has locked a file.
var ErrInUse = errors.New("in use by another process")

// acquire takes the folder's lock. The file holds the process id, for the message that another process prints.
func acquire(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("run folder %s cannot be locked: %w", dir, Cause(err))
	}
	if err := Lock(f); err != nil {
		holder := lockHolder(f)
		f.Close()
		if errors.Is(err, ErrInUse) {
			const fault = "run folder %s is in use by %s: wait for it to end, or name another with --out DIR"
			return nil, fmt.Errorf(fault, dir, holder)
		}
		return nil, fmt.Errorf("run folder %s cannot be locked: %w", dir, err)
	}
	// The id is only for that message, so an error is not a reason to stop.
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

func lockHolder(f *os.File) string {
	b, _ := io.ReadAll(io.LimitReader(f, 32))
	if pid := strings.TrimSpace(string(b)); pid != "" {
		return "process " + pid
	}
	return "another process"
}
