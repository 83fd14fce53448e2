//go:build !linux

package backend

// HostMemory is more than the machine is likely to have, in bytes: other systems are not asked.
func HostMemory() uint64 { return 1 << 36 }
