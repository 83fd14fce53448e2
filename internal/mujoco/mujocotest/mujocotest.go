// Package mujocotest is for tests that need MuJoCo.
package mujocotest

import (
	"testing"

	"github.com/posttrain/posttrain/internal/mujoco"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// Need ends a test where MuJoCo is not installed.
func Need(t testing.TB) {
	t.Helper()
	if _, err := mujoco.Find(); err != nil {
		need.Lack(t, "mujoco", err.Error())
	}
}
