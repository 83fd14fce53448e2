//go:build !(linux || darwin)

package mujoco

import "errors"

func openLibrary(string) (uintptr, error) { return 0, errors.New("only Linux and macOS are supported") }

func lookUp(uintptr, string) (uintptr, error) {
	return 0, errors.New("only Linux and macOS are supported")
}

func silence(uintptr) {}
