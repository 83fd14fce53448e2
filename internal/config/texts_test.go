package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	var got map[string]any
	err := Decode("f.yaml", []byte("a: x y\nc: [one, 'two']\ni: |\n  l\n  m\n"), &got, false)
	if err != nil || fmt.Sprintf("%q", got) != `map["a":"x y" "c":["one" "two"] "i":"l\nm\n"]` {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"a: [", "a: b: c", strings.Repeat("[", 100)} {
		if err := Decode("f.yaml", []byte(text), &got, false); err == nil || !strings.HasPrefix(err.Error(), "f.yaml:") ||
			!strings.Contains(err.Error(), "not YAML") || strings.Contains(err.Error(), "\n") {
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
	spec := &Spec[options]{Command: "keep"}
	for _, text := range []string{"", "a b", "a\n \nb\n", "a\r\nb", "trail  \n  \n", " lead\n\n\n", "\\n \"q\" '\n",
		"{{range .A}}\n\t- {{.}}{{end}}", "# x: y\n---\n", "é \u2028\n"} {
		got, err := spec.Parse("config.yaml", spec.Resolve(&options{text, 3}), Input{})
		if err != nil || *got != (options{text, 3}) {
			t.Errorf("%q: %+v, %v\n%s", text, got, err, spec.Resolve(&options{text, 3}))
		}
	}
}

// TestListsKeepTexts: a list of texts comes back as it was, and a change of one is a difference.
func TestListsKeepTexts(t *testing.T) {
	type options struct {
		Stop []string `yaml:"stop" want:"@text"`
	}
	spec := &Spec[options]{Command: "keep"}
	for _, text := range []string{"", "a b", "\n", "\n\n", "a\r\nb", "\t", "a\tb", "trail  ", " lead", "# x: y", "1",
		"a, b"} {
		resolved := spec.Resolve(&options{[]string{text, "z"}})
		got, err := spec.Parse("config.yaml", resolved, Input{})
		if err != nil || !slices.Equal(got.Stop, []string{text, "z"}) {
			t.Errorf("%q: %+v, %v\n%s", text, got, err, resolved)
		}
	}
	diff := Diff([]byte("stop: [a b, c]"), []byte("stop: [a, b c, \"\\n\"]"))
	if want := `stop: ["a b" c], now [a "b c" "\n"]`; len(diff) != 1 || diff[0] != want {
		t.Errorf("%q, want %q", diff, want)
	}
}

// TestListsOfTheCommandLine: commas separate texts but for those in quotes and in the brackets of a pattern. [] is
// empty.
func TestListsOfTheCommandLine(t *testing.T) {
	type options struct {
		Texts []string `yaml:"texts" want:"@text"`
		Names Names    `yaml:"names"`
	}
	spec := &Spec[options]{Command: "lists"}
	read := func(key, text string) []string {
		set := Override{Flag: "--set", Key: key, Value: text}
		o, err := spec.Parse("", []byte("command: lists"), Input{Overrides: []Override{set}})
		if err != nil {
			t.Fatal(err)
		}
		return slices.Concat(o.Texts, o.Names)
	}
	for text, want := range map[string][]string{
		"a": {"a"}, "a, b c": {"a", "b c"}, "[a, b]": {"a", "b"}, "[]": {}, "a,": {"a", ""},
		`["a,b", "\n", 'é', c]`: {"a,b", "\n", "é", "c"}, `"a,b",c`: {"a,b", "c"}, `'it''s'`: {"it's"}, `it's`: {"it's"},
		`"`: {`"`}, "[1, 2a, 0x10, true]": {"1", "2a", "0x10", "true"}, "[http://a:1, h]": {"http://a:1", "h"},
		"x-[a,b].jsonl, y": {"x-[a,b].jsonl", "y"}, "x-{1,2}": {"x-{1,2}"}, "a],b": {"a]", "b"}, "[,b": {"[", "b"},
		`x={"a": 1, "b": 2}, y=3`: {`x={"a": 1, "b": 2}`, "y=3"}, `["a #b"]`: {"a #b"},
	} {
		for _, key := range []string{"texts", "names"} {
			if got := read(key, text); !slices.Equal(got, want) {
				t.Errorf("%s %s: %q, want %q", key, text, got, want)
			}
		}
	}
	if texts, names := read("texts", "[*]"), read("names", "[a-z][0-9]"); texts[0] != "*" || names[0] != "[a-z][0-9]" {
		t.Errorf("%q, %q", texts, names)
	}
}
