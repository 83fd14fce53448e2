//go:build cgo && linux

package backend

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

// The start of PJRT's table of functions, which is the same in all versions.
typedef struct {
	size_t size;
	void *extensions;
	struct { size_t size; void *extensions; int major, minor; } version;
} posttrain_pjrt_api;

// posttrain_pjrt_version gives the version of a plugin's table; both numbers are -1 if there is no table.
static void posttrain_pjrt_version(void *get, int *major, int *minor) {
	posttrain_pjrt_api *api = ((posttrain_pjrt_api *(*)(void))get)();
	*major = api ? api->version.major : -1;
	*minor = api ? api->version.minor : -1;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// oldestPJRT is the oldest minor version of PJRT 0 that the tests were run on. go-xla checks no version, and calls
// through empty entries if a plugin's table of functions is shorter than its own.
const oldestPJRT = 81

// checkPlugin loads a library and says why it is no plugin that go-xla can use. go-xla then loads it again, which costs
// nothing.
func checkPlugin(path string) error {
	name, symbol := C.CString(path), C.CString("GetPjrtApi")
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(symbol))
	library := C.dlopen(name, C.RTLD_LAZY|C.RTLD_LOCAL)
	if library == nil {
		return fmt.Errorf("the library does not load: %s", strings.TrimPrefix(C.GoString(C.dlerror()), path+": "))
	}
	get := C.dlsym(library, symbol)
	if get == nil {
		C.dlclose(library)
		return errors.New("it is no PJRT plugin: found a library without GetPjrtApi")
	}
	var major, minor C.int
	C.posttrain_pjrt_version(get, &major, &minor)
	switch {
	case major < 0:
		return errors.New("it is no PJRT plugin: its GetPjrtApi gives nothing")
	case major > 0, minor < oldestPJRT:
		return fmt.Errorf("it has PJRT %d.%d: want 0.%d or newer, and below 1.0", major, minor, oldestPJRT)
	}
	return nil
}
