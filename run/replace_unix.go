//go:build !windows

package run

import (
	"path/filepath"

	"github.com/google/renameio/v2"
)

// atomicWrite puts data in the place of path's content, at once or not at all.
func atomicWrite(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o666, renameio.WithTempDir(filepath.Dir(path)))
}
