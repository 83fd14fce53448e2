package backend

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
)

// FreeMemory is how much of HostMemory the process can still take now, in bytes, or of GOMEMLIMIT if that is less. What
// the system holds of files counts as free, and so does what engines have freed, which goes back to the system first.
func FreeMemory() uint64 {
	trimHeap()
	return availableMemory()
}

// availableMemory is FreeMemory beside what engines have freed and the C library keeps.
func availableMemory() uint64 {
	free := min(valueIn("/proc/meminfo", "MemAvailable:")*1024, freeOfContainer(), freeOfGo())
	for i, kind := range map[int]int{0: syscall.RLIMIT_AS, 5: syscall.RLIMIT_DATA} {
		var limit syscall.Rlimit
		if used, ok := ownMemory(i); ok && syscall.Getrlimit(kind, &limit) == nil {
			free = min(free, less(limit.Cur, used))
		}
	}
	return free
}

// ResidentMemory is what the process has of the machine's memory, in bytes.
func ResidentMemory() uint64 {
	used, _ := ownMemory(1)
	return used
}

// ownMemory is a column of /proc/self/statm (size resident shared text lib data dt) in bytes.
func ownMemory(column int) (uint64, bool) {
	pages, _ := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(pages))
	if column >= len(fields) {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[column], 10, 64)
	return n * uint64(os.Getpagesize()), err == nil
}

// valueIn is the number after a word at the start of a line. A file without that line gives 1<<53.
func valueIn(file, word string) uint64 {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == word {
			if n, err := strconv.ParseUint(fields[1], 10, 54); err == nil {
				return n
			}
		}
	}
	return 1 << 53
}

// freeOfContainer is what the process's control group may still take.
func freeOfContainer() uint64 {
	most := containerMemory()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/memory"} {
		for _, name := range []string{"memory.current", "memory.usage_in_bytes"} {
			text, err := os.ReadFile(dir + "/" + name)
			if err != nil {
				continue
			}
			used, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
			if files := valueIn(dir+"/memory.stat", "inactive_file"); err == nil {
				return less(most, less(used, min(used, files)))
			}
		}
	}
	return most
}

// freeOfGo is what the Go runtime may still take of its own limit.
func freeOfGo() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(samples)
	used := less(samples[0].Value.Uint64(), samples[1].Value.Uint64()+samples[2].Value.Uint64())
	return less(uint64(debug.SetMemoryLimit(-1)), used)
}

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
