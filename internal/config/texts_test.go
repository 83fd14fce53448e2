package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestTexts(t *testing.T) {
	got, err := Texts([]byte("a: x y\nb: \"q\"\nc: [one, 'two']\nd: 3\ne: {f: g}\nh: [1]\ni: |\n  l\n  m\nj:\n"))
	if err != nil || fmt.Sprintf("%q", got) != `map["a":["x y"] "b":["q"] "c":["one" "two"] "i":["l\nm\n"]]` {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"a: [", "a: b: c", strings.Repeat("[", 100)} {
		if _, err := Texts([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "not YAML: ") {
			t.Errorf("%.10q: %v", text, err)
		}
	}
}

// TestResolveKeepsTexts: what Resolve writes of a text reads back to its last blank and line end.
func TestResolveKeepsTexts(t *testing.T) {
	type options struct {
		Text string `yaml:"text" want:"@text"`
		N    int    `yaml:"n"`
	}
	spec := &Spec[options]{Command: "keep", Defaults: func(*Given) options { return options{} }}
	for _, text := range []string{"", "a b", "a\n \nb\n", "a\r\nb", "trail  \n  \n", " lead\n\n\n", "\\n \"q\" '\n",
		"{{range .A}}\n\t- {{.}}{{end}}", "# x: y\n---\n", "é \u2028\n"} {
		got, err := spec.Parse("config.yaml", spec.Resolve(&options{text, 3}), Input{})
		if err != nil || *got != (options{text, 3}) {
			t.Errorf("%q: %+v, %v\n%s", text, got, err, spec.Resolve(&options{text, 3}))
		}
	}
}
