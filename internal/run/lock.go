package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/internal/files"
)

// ErrInUse says that another process has locked a file.
var ErrInUse = errors.New("in use by another process")

// ErrLost says that a run folder no longer belongs to the run which works in it.
var ErrLost = errors.New("the run folder is lost")

// claim keeps a run folder to one process. The folder itself is locked, so that no other process gets in when somebody
// removes the file lock; and the file, for file systems that lock no folders.
type claim struct{ dir, file *os.File }

// acquire takes the folder's locks. The file holds the process id, for the message that another process prints. A folder
// from elsewhere may have a link in the place of any file, also of the lock.
func acquire(dir string) (*claim, error) {
	if err := files.CheckContained(dir); err != nil {
		return nil, fmt.Errorf("run folder %w", err)
	}
	c := new(claim)
	err := c.take(dir)
	if err == nil {
		return c, nil
	}
	c.Close()
	if errors.Is(err, ErrInUse) {
		const fault = "run folder %s is in use by %s: wait for it to end, or name another with --out DIR"
		return nil, fmt.Errorf(fault, dir, lockHolder(dir))
	}
	return nil, fmt.Errorf("run folder %s cannot be locked: %w", dir, Cause(err))
}

func (c *claim) take(dir string) (err error) {
	if c.dir, err = os.Open(dir); err != nil {
		return err
	}
	if err := Lock(c.dir); errors.Is(err, ErrInUse) {
		return err
	}
	if c.file, err = os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return err
	}
	if err := Lock(c.file); err != nil {
		return err
	}
	// The id is only for the message, so an error is not a reason to stop.
	if c.file.Truncate(0) == nil {
		_, _ = fmt.Fprintf(c.file, "%d\n", os.Getpid())
	}
	return nil
}

// Close gives the folder back.
func (c *claim) Close() error {
	var all []error
	for _, f := range []*os.File{c.file, c.dir} {
		if f != nil {
			all = append(all, f.Close())
		}
	}
	return errors.Join(all...)
}

func lockHolder(dir string) string {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return "another process"
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 32))
	if pid := strings.TrimSpace(string(b)); pid != "" {
		return "process " + pid
	}
	return "another process"
}

// Held returns an [ErrLost] if somebody has deleted, renamed or replaced the folder, or its file lock: what is written
// from then on would be lost, or mix with another run. Everything that writes into the folder calls it.
func (f *Folder) Held() error {
	switch {
	case f.claim == nil:
		return nil
	case !isAt(f.claim.dir, f.Dir):
		return &lostError{f.Dir, "was deleted, renamed or replaced while the run worked in it " +
			"(a renamed one continues with --resume and its new name)"}
	case !isAt(f.claim.file, f.Path(lockName)):
		return &lostError{f.Dir, "lost its file lock while the run worked in it (continue it with --resume)"}
	}
	return nil
}

type lostError struct{ dir, how string }

func (e *lostError) Error() string { return fmt.Sprintf("run folder %s %s", e.dir, e.how) }

// Is makes it an ErrLost.
func (e *lostError) Is(target error) bool { return target == ErrLost }

// isAt reports whether an open file is still the one with this name.
func isAt(open *os.File, path string) bool {
	was, err := open.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(was, now)
}
