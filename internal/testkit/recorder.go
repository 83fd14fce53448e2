package testkit

import (
	"fmt"
	"os"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// Recorder is a reporter that prints nothing and keeps the lines that it gets.
type Recorder struct{ Said, Warned []string }

// Say keeps a line.
func (r *Recorder) Say(format string, args ...any) {
	r.Said = append(r.Said, fmt.Sprintf(format, args...))
}

// Warn keeps a warning.
func (r *Recorder) Warn(format string, args ...any) {
	r.Warned = append(r.Warned, fmt.Sprintf(format, args...))
}

// Progress shows nothing.
func (*Recorder) Progress(unit string, start, total int) run.Bar {
	return run.Listen(nil).Progress(unit, start, total)
}

// Overrides are arguments of --set.
func Overrides(t testing.TB, texts ...string) (all []config.Override) {
	t.Helper()
	for _, text := range texts {
		o := expect.Must(config.ParseSet(text))(t)
		all = append(all, o)
	}
	return all
}

// Resident is the memory of this process in bytes.
func Resident(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	need.Linux(t, err)
	var total, pages int
	expect.Must(fmt.Sscan(string(b), &total, &pages))(t)
	return pages * os.Getpagesize()
}
