package main

import (
	"strings"
	"testing"
)

// TestOtherNames: what stands for another tool's flag or command is a flag, or a command line whose command and flags exist.
func TestOtherNames(t *testing.T) {
	root := newRoot(streams{})
	for name, own := range flagNames {
		if len(commandsWithFlag(root, own)) == 0 {
			t.Errorf("--%s: no command has --%s", name, own)
		}
	}
	for name, line := range commandLines {
		for _, one := range strings.Split(strings.ReplaceAll(line, " or ", ", "), ", ") {
			cmd, flags, err := root.Find(strings.Fields(one))
			if err != nil || cmd == root {
				t.Errorf("%s: posttrain %s: %v", name, one, err)
				continue
			}
			if err := cmd.ParseFlags(flags); err != nil {
				t.Errorf("%s: posttrain %s: %v", name, one, err)
			}
		}
	}
}

// TestUnderscores: a flag with underscores is the one with hyphens.
func TestUnderscores(t *testing.T) {
	work(t, "qwen2-newer")
	o := cli(t, "mappo", "--explain", "--max_steps", "7", "--learning_rate", "3e-4")
	if o.code != 0 || !strings.Contains(o.out, "7") || !strings.Contains(o.out, "0.0003") {
		t.Errorf("%+v", o)
	}
}
