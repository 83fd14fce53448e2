package local

import "syscall"

// memory is what a process may take at most, in bytes: what the machine has, or less where a limit is set (ulimit).
func memory() uint64 {
	most := uint64(1) << 40
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		most = uint64(info.Totalram) * uint64(info.Unit)
	}
	for _, kind := range []int{syscall.RLIMIT_AS, syscall.RLIMIT_DATA} {
		var limit syscall.Rlimit
		if syscall.Getrlimit(kind, &limit) == nil {
			most = min(most, limit.Cur)
		}
	}
	return most
}
