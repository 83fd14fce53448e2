//go:build !unix

package run

import (
	"fmt"
	"os"
	"path/filepath"
)

// acquire only marks the folder: the standard library has no lock here that goes with its process.
func acquire(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("run folder %s cannot be locked: %w", dir, cause(err))
	}
	return f, nil
}
