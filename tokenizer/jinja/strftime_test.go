package jinja

import (
	"testing"
	"time"
)

// TestMidnight: without leading zeros, 0 stays a 0.
func TestMidnight(t *testing.T) {
	at := time.Date(2001, 2, 3, 0, 0, 0, 0, time.UTC)
	if got := strftime(at, "%-d %-H:%-M:%-S %H"); got != "3 0:0:0 00" {
		t.Errorf("found %q", got)
	}
}
