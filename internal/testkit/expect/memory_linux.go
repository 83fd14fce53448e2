package expect

import (
	"flag"
	"syscall"
	"testing"
)

// LimitMemory lets a process that fuzzes die if it takes more than a GiB of memory: that is reported as a failure.
func LimitMemory(f *testing.F) {
	f.Helper()
	if worker := flag.Lookup("test.fuzzworker"); worker == nil || worker.Value.String() != "true" {
		return
	}
	limit := syscall.Rlimit{Cur: 1 << 30, Max: 1 << 30}
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &limit); err != nil {
		f.Fatal(err)
	}
}
