//go:build cgo && linux

package backend

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "xlatable.h"

static posttrain_table *posttrain_get(void *get) { return ((posttrain_table *(*)(void))get)(); }
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

// loadPlugin loads a library and gives its table of functions, or says why it is no plugin that go-xla can use.
func loadPlugin(path string) (*C.posttrain_table, error) {
	name, symbol := C.CString(path), C.CString("GetPjrtApi")
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(symbol))
	library := C.dlopen(name, C.RTLD_LAZY|C.RTLD_LOCAL)
	if library == nil {
		return nil, fmt.Errorf("the library does not load: %s", strings.TrimPrefix(C.GoString(C.dlerror()), path+": "))
	}
	get := C.dlsym(library, symbol)
	if get == nil {
		C.dlclose(library)
		return nil, errors.New("it is no PJRT plugin: found a library without GetPjrtApi")
	}
	table := C.posttrain_get(get)
	if table == nil {
		return nil, errors.New("it is no PJRT plugin: its GetPjrtApi gives nothing")
	}
	if v := table.version; v.major > 0 || v.minor < oldestPJRT {
		return nil, fmt.Errorf("it has PJRT %d.%d: want 0.%d or newer, and below 1.0", v.major, v.minor, oldestPJRT)
	}
	return table, nil
}
