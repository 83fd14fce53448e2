//go:build linux || darwin

package mujoco

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

func load(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func find(handle uintptr, symbol string) (uintptr, error) { return purego.Dlsym(handle, symbol) }

// silence makes MuJoCo call a function that does nothing on a warning. By default it writes MUJOCO_LOG.TXT into the
// current folder.
func silence(handle uintptr) {
	variable, err := find(handle, "mju_user_warning")
	nothing, missing := find(handle, "mj_version")
	if err == nil && missing == nil {
		*(*(**uintptr)(unsafe.Pointer(&variable))) = nothing // the variable is C's
	}
}
