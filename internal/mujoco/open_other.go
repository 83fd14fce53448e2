//go:build !(linux || darwin)

package mujoco

import "errors"

func load(string) (uintptr, error) { return 0, errors.New("only Linux and macOS are supported") }

func find(uintptr, string) (uintptr, error) {
	return 0, errors.New("only Linux and macOS are supported")
}

func silence(uintptr) {}
