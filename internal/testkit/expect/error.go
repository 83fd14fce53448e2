// Package expect has checks for tests of every floor, files that a test writes and reads, and for fuzz targets whole
// files with a few bytes changed and a limit of memory. It imports no package of this module, so that all may import it.
package expect

import (
	"strings"
	"testing"
)

// Error checks that an error is one line with these parts.
func Error(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q lacks %q", err, p)
		}
	}
}

// OK ends a test if a call failed.
func OK(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Must gives a call's value, or ends the test if the call failed: Must(os.Open(path))(t).
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return value
	}
}
