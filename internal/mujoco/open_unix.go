//go:build linux || darwin

package mujoco

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

func openLibrary(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func lookUp(handle uintptr, symbol string) (uintptr, error) { return purego.Dlsym(handle, symbol) }

// silence makes MuJoCo call a function that does nothing on a warning. By default it writes MUJOCO_LOG.TXT into the
// current folder.
func silence(handle uintptr) {
	variable, err := lookUp(handle, "mju_user_warning")
	nothing, missing := lookUp(handle, "mj_version")
	if err == nil && missing == nil {
		*(*(**uintptr)(unsafe.Pointer(&variable))) = nothing // the variable is C's
	}
}
