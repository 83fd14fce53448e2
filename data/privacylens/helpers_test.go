package privacylens

import (
	"strings"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// wantError checks that an error is one line that holds every one of the parts.
var wantError = expect.Error

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }
