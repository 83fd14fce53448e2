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
