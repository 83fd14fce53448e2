//go:build !unix

package privacylens

import "os"

// lock does nothing: Go's standard library has no such lock here.
func lock(*os.File) error { return nil }
