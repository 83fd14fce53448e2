//go:build cgo && linux

package backend

import (
	"errors"
	"testing"

	"github.com/gomlx/go-xla/compute/xla"
)

// Trap 5. No package that downloads plugins is linked, as gomlx/backends/default and the autoinstall packages do.
func TestNoInstallerIsLinked(t *testing.T) {
	if err := xla.AutoInstall(); !errors.Is(err, xla.ErrNoAutoInstaller) {
		t.Errorf("got %v, want %v: something links an installer", err, xla.ErrNoAutoInstaller)
	}
}
