//go:build cgo && linux

package backend

/*
#include <malloc.h>

static void posttrain_trim(void) {
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}
*/
import "C"

// trimHeap returns memory to the system that engines freed and the C library kept: XLA frees a training step's
// gigabytes in pieces, and programs of other shapes do not take them again.
func trimHeap() { C.posttrain_trim() }
