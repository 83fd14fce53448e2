//go:build !windows

package run

import (
	"path/filepath"

	"github.com/google/renameio/v2"
)

// atomicWrite replaces path's content by data, at once or not at all.
func atomicWrite(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o666, renameio.WithTempDir(filepath.Dir(path)))
}
