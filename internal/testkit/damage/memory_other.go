//go:build !linux

package damage

import "testing"

// LimitMemory limits the memory of the process on Linux only.
func LimitMemory(*testing.F) {}
