//go:build !linux

package expect

import "testing"

// LimitMemory limits the memory of the process on Linux only.
func LimitMemory(*testing.F) {}
