package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestUnknownXLAFlags: XLA ends a process that has a flag which it does not know. The program says so in one line.
func TestUnknownXLAFlags(t *testing.T) {
	plugin := ""
	for _, s := range backend.List() {
		if strings.HasPrefix(s.Name, "xla:") && s.Present {
			plugin = s.Name
		}
	}
	if plugin == "" {
		need.Lack(t, "xla", "no PJRT plugin is here")
	}
	run := func(args ...string) (code int, out, said string) {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), childVar+"="+wholeProgram, "XLA_FLAGS=--xla_nonsense=1")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run() // the exit code says how it went
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	const reason = "Unknown flag in XLA_FLAGS: --xla_nonsense=1"
	code, out, said := run("version")
	if code != 0 || said != "" || !strings.Contains(out, "broken") || !strings.Contains(out, reason) {
		t.Errorf("backends: code %d, %q, %q: want a broken plugin and %q", code, out, said, reason)
	}
	code, _, said = run("generate", "--backend", plugin, "--prompt", "a")
	if code != exitFailed || strings.Count(said, "\n") != 1 || !strings.Contains(said, reason) {
		t.Errorf("generate: code %d, %q: want one line with %q", code, said, reason)
	}
}
