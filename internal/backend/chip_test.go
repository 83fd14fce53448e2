package backend

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestReadDevice: chips, numbers of devices and hosts, and files of facts.
func TestReadDevice(t *testing.T) {
	text := expect.Must(chips.ReadFile("chips/l40s.json"))(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		expect.Write(t, path, text)
		return path
	}
	mine := write("mine.json", string(text))
	for _, c := range Chips() {
		for spec, want := range map[string][2]int{c: {1, 1}, c + ":8": {8, 1}, c + ":2x8": {8, 2}, mine + ":4": {4, 1}} {
			d, err := ReadDevice(spec)
			if err != nil || d.Count != want[0] || d.Hosts != want[1] || d.Bandwidth == 0 {
				t.Errorf("%s: %+v, %v", spec, d, err)
			}
		}
	}
	for spec, want := range map[string]string{
		"h1000":                                  "unknown chip: want a100, b200, h100",
		"h100:":                                  `found "" behind the chip`,
		"h100:8x":                                "such as 8, or of hosts and devices, such as 2x8",
		"h100:9x9":                               "at most 64 in all",
		"h100:0":                                 "at most 64 in all",
		filepath.Join(dir, "nothing.json"):       "no such file",
		write("text.json", "speed"):              "not the facts of a chip: ",
		write("key.json", `{"flops": 1}`):        `unknown field "flops"`,
		write("less.json", `{"name": "mine"}`):   "capability: found , want a value above 0",
		write("many.json", with(text, "-5")):     "multiprocessors: found -5, want a value above 0",
		write("cc.json", with(text, "142", "9")): `capability: found "9", want one such as 9.0`,
	} {
		if _, err := ReadDevice(spec); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v lacks %q", spec, err, want)
		}
	}
}

// with puts a number of multiprocessors, and perhaps a capability, into the facts of an L40S.
func with(text []byte, multiprocessors string, capability ...string) string {
	s := strings.Replace(string(text), `"multiprocessors": 142`, `"multiprocessors": `+multiprocessors, 1)
	for _, c := range capability {
		s = strings.Replace(s, "8.9", c, 1)
	}
	return s
}
