package backend

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// HostMemory is what a process may take at most, in bytes: what the machine has, or less where a limit is set (ulimit,
// a container's).
func HostMemory() uint64 {
	most := containerMemory()
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		most = min(most, uint64(info.Totalram)*uint64(info.Unit))
	}
	for _, kind := range []int{syscall.RLIMIT_AS, syscall.RLIMIT_DATA} {
		var limit syscall.Rlimit
		if syscall.Getrlimit(kind, &limit) == nil {
			most = min(most, limit.Cur)
		}
	}
	return most
}

// containerMemory is the limit of the process's control group, version 2 or 1.
func containerMemory() uint64 {
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			return n
		}
	}
	return 1 << 40
}
