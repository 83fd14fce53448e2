//go:build !windows

package files

import "syscall"

// Free is how many bytes a program may still write into a folder; ok is false where the system does not say.
func Free(dir string) (bytes uint64, ok bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0, false
	}
	return uint64(s.Bavail) * uint64(s.Bsize), true
}
