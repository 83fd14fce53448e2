package config

import "testing"

func TestCommandOf(t *testing.T) {
	for text, want := range map[string]string{"": "", "a: [": "", "model: x\n\"command\": 'sft'": "sft",
		"command: mappo": "mappo", "- command": ""} {
		if got := CommandOf([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
