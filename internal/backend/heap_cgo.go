//go:build cgo && linux

package backend

/*
#include <malloc.h>
#include <stdint.h>

#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 33)
#define KEEPS 1
#endif
#endif

static void posttrain_trim(void) {
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

static uint64_t posttrain_used(void) {
#ifdef KEEPS
	return mallinfo2().uordblks;
#else
	return UINT64_MAX;
#endif
}

// Before there are threads, each of which would keep the heap that it has.
__attribute__((constructor)) static void posttrain_keep(void) {
#ifdef KEEPS
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, -1);
	mallopt(M_ARENA_MAX, 1);
#endif
}
*/
import "C"

// trimHeap returns memory to the system that engines freed and the C library kept.
//
// The library keeps all of it until then, in one heap. By itself it would give large blocks back at once, and the system
// would clear their pages again in the next run, which took a quarter of a training step. And it would keep a heap for
// each thread, in which another thread finds no room.
func trimHeap() { C.posttrain_trim() }

// usedHeap is what engines have of the C library's memory, in bytes; the greatest number: unknown.
func usedHeap() uint64 { return uint64(C.posttrain_used()) }
