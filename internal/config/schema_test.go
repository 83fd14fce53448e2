package config

import "testing"

// A section whose keys a command lacks is an unknown key, on the command line as in a file.
func TestSectionsWithoutKeys(t *testing.T) {
	spec := &Spec[first]{Command: "first", Without: []string{"only.key"}}
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

// The key that is suggested is of the unknown key's section where it has one as near, else of the nearest section.
func TestNearestIsOfTheSection(t *testing.T) {
	keys := []string{"model", "agent.model", "agent.parallel", "judge.model", "judge.parallels", "loss.beta"}
	for key, want := range map[string]string{
		"judg.model": "judge.model", "judge.parallel": "judge.parallels", "judge.parallell": "judge.parallels",
		"agent.modl": "agent.model", "train.beta": "loss.beta", "judge.inner.model": "judge.model", "modl": "model",
		"judge.other": "",
	} {
		if got := Nearest(key, keys); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
