package backend

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// probeVariable names a plugin to the process that probes it.
const probeVariable = "POSTTRAIN_PROBE_PLUGIN"

// probes says that this program answers probes: a copy of it opens a plugin and ends.
var probes bool

// AnswerProbe opens the plugin that another process of this program wants to know about, and ends the process; a
// program calls it first in main. XLA ends a process that has a flag in XLA_FLAGS which it does not know. So, if
// XLA_FLAGS is set, a plugin is first opened in a process of its own, and this one can say what is wrong.
func AnswerProbe() {
	plugin := os.Getenv(probeVariable)
	if plugin == "" {
		probes = true
		return
	}
	e, err := Open("xla:" + plugin)
	if err != nil {
		os.Exit(0) // it says so itself
	}
	e.Close()
	os.Exit(0)
}

// probePlugin finds out whether opening a plugin would end the process.
func probePlugin(plugin string) error {
	if !probes || os.Getenv("XLA_FLAGS") == "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil // as without a probe
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), probeVariable+"="+plugin)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err == nil {
		return nil
	}
	return fmt.Errorf("the plugin ends the process with XLA_FLAGS=%s: %s: want flags that it knows",
		os.Getenv("XLA_FLAGS"), fatalLine(said.String()))
}

// fatalLine is XLA's reason for ending the process, without time and place.
func fatalLine(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "F") {
			_, last, _ = strings.Cut(strings.TrimSpace(line), "] ")
		}
	}
	if last == "" {
		return "it gives no reason"
	}
	return oneLine(last)
}
