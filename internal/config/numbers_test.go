package config

import (
	"slices"
	"strings"
	"testing"
)

type lists struct {
	Times []float64 `yaml:"times" want:">0" default:"9"`
	Sizes []int     `yaml:"sizes" want:">=1"`
}

// Lists of numbers come from a file and from the command line; each number is checked.
func TestListsOfNumbers(t *testing.T) {
	spec := &Spec[lists]{Command: "lists"}
	read := func(text string, sets ...Override) (*lists, error) {
		return spec.Parse("a.yaml", []byte("command: lists\n"+text), Input{Overrides: sets})
	}
	o, err := read("times: [1, 2.5, 1e-3]\n", Override{Flag: "--set", Key: "sizes", Value: "[64, 32]"})
	if err != nil || !slices.Equal(o.Times, []float64{1, 2.5, 1e-3}) || !slices.Equal(o.Sizes, []int{64, 32}) {
		t.Fatalf("%v, %v", o, err)
	}
	again, err := spec.Parse("a.yaml", spec.Resolve(o), Input{})
	if err != nil || !slices.Equal(again.Times, o.Times) || !slices.Equal(again.Sizes, o.Sizes) {
		t.Errorf("resolved: %v, %v", again, err)
	}
	if o, err := read("times: []\n"); err != nil || len(o.Times) != 0 {
		t.Errorf("an empty list: %v, %v", o, err)
	}
	for text, want := range map[string]string{
		"times: [1, 0]\n":    "a.yaml:2: times [1, 0]: want a list, each item a number above 0",
		"times: [1, a]\n":    "a.yaml:2: times [1, a]: want a list, each item a number above 0",
		"sizes: [1.5]\n":     "a.yaml:2: sizes [1.5]: want a list, each item a whole number, 1 or more",
		"sizes: 3\n":         "a.yaml:2: sizes 3: want a list, each item a whole number, 1 or more",
		"sizes: [1, .inf]\n": "a.yaml:2: sizes",
	} {
		if _, err := read(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
