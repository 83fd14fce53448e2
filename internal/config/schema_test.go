package config

import "testing"

// A section whose keys a command lacks is an unknown key, on the command line as in a file.
func TestSectionsWithoutKeys(t *testing.T) {
	spec := &Spec[first]{Command: "first", Without: []string{"only.key"}, Defaults: func(*Given) first { return first{} }}
	const text = `unknown key "only": want command or shared`
	_, err := spec.Parse("a.yaml", []byte("command: first\nonly: 3\n"), Input{})
	if err == nil || err.Error() != "a.yaml:2: "+text {
		t.Error(err)
	}
	set := Override{Flag: "--set", Key: "only", Value: "3"}
	_, err = spec.Parse("a.yaml", []byte("command: first\n"), Input{Overrides: []Override{set}})
	if err == nil || err.Error() != "--set: "+text {
		t.Error(err)
	}
}
