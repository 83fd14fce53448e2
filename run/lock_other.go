//go:build !unix

package run

import "os"

// Lock does nothing: the standard library has no lock here that goes with its process.
func Lock(*os.File) error { return nil }
