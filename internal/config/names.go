package config

import "strings"

// Names is a name or a list of names. A file gives one as a text, several as a list; on the command line commas
// separate them.
type Names []string

func (n Names) String() string { return strings.Join(n, ", ") }

// Are says that there is one name, this one.
func (n Names) Are(name string) bool { return len(n) == 1 && n[0] == name }

// MarshalYAML writes one name as a text.
func (n Names) MarshalYAML() (any, error) {
	if len(n) == 1 {
		return n[0], nil
	}
	return []string(n), nil
}
