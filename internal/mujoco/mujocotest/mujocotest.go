// Package mujocotest is for tests that need MuJoCo.
package mujocotest

import (
	"os"
	"testing"

	"github.com/posttrain/posttrain/internal/mujoco"
)

// Need skips a test where MuJoCo is not installed. With POSTTRAIN_REQUIRE_MUJOCO=1 it fails.
func Need(t testing.TB) {
	t.Helper()
	if _, err := mujoco.Find(); err != nil {
		if os.Getenv("POSTTRAIN_REQUIRE_MUJOCO") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}
