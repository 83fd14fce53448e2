package config

import (
	"fmt"
	"strings"
)

// An Override is a value from the command line, which wins over the file. An empty value takes the key back to its
// default, whatever the file says.
type Override struct {
	Flag  string // as the user wrote it, for messages: "--prior", "--set"
	Key   string // dotted: "loss.prior"
	Value string // text; a list has commas
}

// ParseSet reads the argument of --set: key=value.
func ParseSet(text string) (Override, error) {
	key, value, ok := strings.Cut(text, "=")
	if key = strings.TrimSpace(key); !ok || key == "" {
		return Override{}, fmt.Errorf("--set %s: want key=value, such as --set train.learning_rate=1e-6", text)
	}
	return Override{"--set", key, strings.TrimSpace(value)}, nil
}

// A Flag is a command line flag that sets a key.
type Flag struct {
	Name string // without dashes: "prior"
	Key  string
	Help string
}

// Override is the flag with a value.
func (f Flag) Override(value string) Override { return Override{"--" + f.Name, f.Key, value} }
