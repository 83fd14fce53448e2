//go:build linux || darwin

package hub

import (
	"math"
	"path/filepath"
	"syscall"
)

// freeBytes is the room on the disk of a folder, or of the one that it will be in.
func freeBytes(dir string) int64 {
	for {
		var s syscall.Statfs_t
		if syscall.Statfs(dir, &s) == nil {
			return int64(min(s.Bavail, math.MaxInt64/uint64(max(1, s.Bsize)))) * int64(s.Bsize)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return math.MaxInt64
		}
		dir = up
	}
}
