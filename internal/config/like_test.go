package config

import (
	"strings"
	"testing"
)

type first struct {
	Shared int   `yaml:"shared"`
	Only   inner `yaml:"only"`
}

type inner struct {
	Key int `yaml:"key"`
}

type second struct {
	Shared int `yaml:"shared"`
}

// A command takes the file of a like one, whose other keys have no effect; unknown keys are faults all the same.
func TestLike(t *testing.T) {
	before := commands
	defer func() { commands = before }()
	Register(&Spec[first]{Command: "first"})
	spec := Register(&Spec[second]{Command: "second", Like: []string{"first"}})
	o, err := spec.Parse("a.yaml", []byte("command: first\nshared: 3\nonly: {key: 4}\n"), Input{})
	if err != nil || o.Shared != 3 {
		t.Errorf("%+v, %v", o, err)
	}
	for text, want := range map[string]string{
		"command: first\nother: 1\n":        `unknown key "other"`,
		"command: second\nonly: {key: 4}\n": `unknown key "only"`,
		"command: third\n":                  `command "third"`,
	} {
		if _, err := spec.Parse("a.yaml", []byte(text), Input{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
