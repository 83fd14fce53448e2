package config

import (
	"strings"
	"testing"
)

type model struct {
	Name string `yaml:"name"`
	URL  string `yaml:"url" default:"u"`
	Port int    `yaml:"port"`
}

// Defaults drops the file's URL where the command line names a model.
func (m *model) Defaults(g *Given) {
	if m.Port = 80; g.FromCommandLine("name") {
		g.Drop("url")
	}
}

func (m *model) Resolve(g *Given) {
	if m.Name != "" {
		m.URL = ""
	}
}

func (m *model) Idle(*Given) Idle {
	if m.URL == "" {
		return Idle{"port": "there is no server", "url": ""}
	}
	return nil
}

func (m *model) Validate(g *Given) {
	if g.Whole().(*asked).Strict && m.Name == "" {
		g.Fault("name", "%s is missing", g.Key("name"))
	}
}

type asked struct {
	Strict bool  `yaml:"strict"`
	Model  model `yaml:"model"`
}

// TestMethods: a section's methods have keys of the section; keys without effect are not written, and may not be given.
func TestMethods(t *testing.T) {
	spec := &Spec[asked]{Command: "ask"}
	named := Override{Flag: "--name", Key: "model.name", Value: "m"}
	o, err := spec.Parse("a.yaml", []byte("command: ask\nmodel: {url: v}\n"), Input{})
	if err != nil || o.Model != (model{"", "v", 80}) {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = spec.Parse("a.yaml", []byte("command: ask\nmodel: {url: v}\n"), Input{Overrides: []Override{named}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "command: ask\nstrict: false\nmodel:\n  name: m\n"
	if text := string(spec.Resolve(o)); text != want {
		t.Errorf("%q, want %q", text, want)
	}
	for text, want := range map[string]string{
		"model: {name: m, port: 3}": "a.yaml:2: model.port 3: there is no server",
		"strict: true":              "a.yaml: model.name is missing",
	} {
		_, err := spec.Parse("a.yaml", []byte("command: ask\n"+text), Input{})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
