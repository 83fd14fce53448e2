//go:build !linux

package backend

// HostMemory is more than the machine is likely to have, in bytes: other systems are not asked.
func HostMemory() uint64 { return 1 << 36 }

// FreeMemory is what a process can take, in bytes.
func FreeMemory() uint64 { return HostMemory() }

func availableMemory() uint64 { return HostMemory() }

// ResidentMemory is what the process has of the machine's memory, in bytes; 0: unknown.
func ResidentMemory() uint64 { return 0 }
