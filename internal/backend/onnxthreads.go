//go:build cgo && linux

package backend

// #include <stdlib.h>
// int posttrain_spare(const char *path, int processors);
import "C"

import (
	"runtime"
	"unsafe"
)

// spareProcessors makes the sessions of the library at path share the machine with other work. ONNX Runtime's threads
// spin while they wait for each other: beside two busy processes on two cores a step takes eight times as long as alone,
// where a fair share would be twice (grpo's BenchmarkBesideOthers). It also has a thread for each core of the machine,
// whatever the process may use; Go's number follows the affinity and the limit of a container. compute-onnx sets no
// options of sessions, so that the library's own table gets a function that makes them with these. It is false where that
// cannot be: then the threads spin.
func spareProcessors(path string) bool {
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	return C.posttrain_spare(text, C.int(runtime.GOMAXPROCS(0))) != 0
}
