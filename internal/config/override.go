package config

import (
	"fmt"
	"strings"
)

// An Override is a value from the command line, which wins over the file. An empty value takes the key back to its
// default, whatever the file says.
type Override struct {
	Flag  string   // as the user wrote it, for messages: "--prior", "--set"
	Key   string   // dotted: "loss.prior"
	Value string   // text; a list has commas
	Exact []string // if not nil: the texts of a list, or the one text, taken as they are, in the place of Value
	Off   string   // with an empty Value: the only value that is taken back; "": any
}

// ParseSet reads the argument of --set: key=value.
func ParseSet(text string) (Override, error) {
	key, value, ok := strings.Cut(text, "=")
	if key = strings.TrimSpace(key); !ok || key == "" {
		return Override{}, fmt.Errorf("--set %s: want key=value, such as --set train.learning_rate=1e-6", text)
	}
	return Override{Flag: "--set", Key: key, Value: strings.TrimSpace(value)}, nil
}

// A Flag is a command line flag that sets a key.
type Flag struct {
	Name  string // without dashes: "prior"
	Key   string
	Help  string
	Exact bool // a text in which blanks and commas count; for a list the flag is repeated

	Value string // what a switch sets the key to; "": the flag has a value
}

// Override is the flag with the values that it was given, of which the last counts where the flag is not exact.
func (f Flag) Override(values ...string) Override {
	o := Override{Flag: "--" + f.Name, Key: f.Key, Value: values[len(values)-1]}
	if f.Value != "" {
		o.Value, o.Off = map[string]string{"true": f.Value}[o.Value], f.Value
	}
	if f.Exact {
		o.Exact = values
	}
	return o
}
