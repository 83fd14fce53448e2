package config

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestCommandOf(t *testing.T) {
	for text, want := range map[string]string{"": "", "a: [": "", "model: x\n\"command\": 'sft'": "sft",
		"command: mappo": "mappo", "- command": ""} {
		if got := CommandOf([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// A config at its bounds is read in little memory and time; beyond them it is refused in one line.
func TestBoundsOfConfigs(t *testing.T) {
	fill := func(text string, n int) string { return strings.Repeat(text, n) }
	for name, text := range map[string]string{
		"keys": fill("a: b\n", maxKeys), "list": "a: [" + fill("a,", maxBytes/2-8) + "]",
		"lines": fill("- a\n", maxKeys),
		"text":  "a: " + fill("x", maxBytes-8), "quoted": "a: \"" + fill("\\n", maxBytes/2-8) + "\"",
		"brackets": fill("[", maxDepth), "maps": "a: [" + fill("{},", maxBytes/3-8) + "]",
		"flow":   "{" + fill("a: b,", maxKeys) + "}",
		"blocks": fill("a: |\n b\n", maxKeys/2), "tags": fill("a: !!b c\n", maxKeys),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := syntax([]byte(text)); err != nil && strings.Contains(err.Error(), "more than") {
				t.Error(err)
			}
			if runtime.ReadMemStats(&after); after.Sys > before.Sys+200<<20 {
				t.Errorf("%d MiB", (after.Sys-before.Sys)>>20)
			}
		})
	}
	for want, text := range map[string]string{
		"longer than 256 KiB":          "a: " + fill("x", maxBytes),
		"more than 5000 lines or keys": fill("a: b\n", maxKeys+1),
		"line 2 nests more than 64":    "a:\n" + fill("[", 100000),
		"line 1 nests more than 64":    fill("- ", 1000) + "a",
		"line 66 nests more than 64":   nest(70),
	} {
		if _, err := syntax([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}

// nest is a mapping in a mapping and so on.
func nest(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("    ", i) + "a:\n")
	}
	return b.String()
}

// Ten lines of aliases name a tree of 10^9 leaves.
func TestDiffOfAliases(t *testing.T) {
	text := "a0: &a0 x\n"
	for i := 1; i < 10; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	if d := Diff([]byte(text), []byte("a: 1")); len(d) != 1 || !strings.Contains(d[0], "aliases") {
		t.Errorf("%.200q", d)
	}
}

// FuzzYAML wants a tree or an error of every text, within the memory of a fuzz target, and the same of its comparison.
func FuzzYAML(f *testing.F) {
	expect.LimitMemory(f)
	f.Add([]byte("command: mappo\nmodel: &a x\ndata: {train: *a}\n<<: {seed: 1}\n? z\n: 2\n"), uint16(1))
	f.Add([]byte("a: [{b: 'c', d: \"e\"}, !!str 5, 0x10]\nf: |\n  g\nh: >-\n  i\n---\n"), uint16(300))
	f.Fuzz(func(t *testing.T, text []byte, times uint16) {
		text = bytes.Repeat(text, 1+int(times)%16)
		defer expect.Within(string(text[:min(len(text), 200)]))()
		CommandOf(text)
		for _, line := range Diff(text, []byte("a: 1")) {
			if strings.ContainsAny(line, "\n\r") {
				t.Fatalf("%q", line)
			}
		}
	})
}
