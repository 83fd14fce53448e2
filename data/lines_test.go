package data

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

type step struct {
	Step int `json:"step"`
}

func TestReadLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	for content, want := range map[string]string{
		"\ufeff{\"step\":1}\n\n {\"step\":3}": "[1:1 3:3]",
		"":                                    "[]",
		"{\"step\":1}\n{\"step\":\"2\"}\n":    "x.jsonl:2: step is of JSON type string: want int",
		"{\"step\":1}\n5":                     "x.jsonl:2: JSON type number: want an object",
		"{\"step\":":                          "x.jsonl:1: bad JSON: the object is not closed",
		"{\"step\":1}\n\xff":                  "x.jsonl:2: invalid UTF-8: want JSON in UTF-8",
	} {
		expect.Write(t, path, content)
		got := []string{}
		err := ReadLines(path, func(line int, s step) error {
			got = append(got, fmt.Sprintf("%d:%d", line, s.Step))
			return nil
		})
		if err != nil && !strings.HasSuffix(err.Error(), want) || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v, want %s", content, got, err, want)
		}
	}
	wantError(t, ReadLines(filepath.Join(path, "none"), func(int, step) error { return nil }), "none: ")
}

// A line that a killed process left without its end does not count, even where it could be decoded.
func TestReadJournal(t *testing.T) {
	for content, want := range map[string]struct {
		steps []step
		end   int64
	}{
		"":                             {nil, 0},
		"{\"step\":1}\n\n{\"step\":2}": {[]step{{1}}, 11},
		"{\"step\":1}\n{\"st":          {[]step{{1}}, 11},
		"{\"step\":1}\n{\"step\":2}\n": {[]step{{1}, {2}}, 22},
	} {
		steps, end, err := ReadJournal[step]("x.jsonl", strings.NewReader(content))
		if err != nil || !slices.Equal(steps, want.steps) || end != want.end {
			t.Errorf("%q: %v, %d, %v, want %v", content, steps, end, err, want)
		}
	}
}
