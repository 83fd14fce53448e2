package fault

import (
	"math"
	"strings"
	"testing"
	"time"
)

type inner struct {
	Share float64 `yaml:"share" want:">0 <1"`
}

type options struct {
	inner   `yaml:",inline"`
	Beta    float64       `yaml:"beta" want:">0"`
	Off     int           `yaml:"off" want:">=0" zero:"off"`
	Kind    string        `yaml:"kind" want:"a|b|c"`
	Gamma   *float64      `yaml:"gamma" want:">=0"`
	Folder  string        `yaml:"folder" want:"given" words:"a folder"`
	Levels  []string      `yaml:"levels" want:"x|y"`
	URL     string        `yaml:"url" want:"@url"`
	Key     string        `yaml:"key" want:"@variable"`
	Engine  string        `yaml:"engine" want:"@backend"`
	Timeout time.Duration `yaml:"timeout" want:">0"`
	Section inner         `yaml:"section"`
	Ignored chan int      `yaml:"-"`
}

func good() options {
	return options{
		inner: inner{0.5}, Beta: 1, Kind: "b", Folder: "f", Levels: []string{"x"}, URL: "http://h/v1", Key: "A_KEY",
		Engine:  "onnx:/lib",
		Timeout: time.Second, Section: inner{0.1},
	}
}

func TestCheck(t *testing.T) {
	if faults := Check(good()); faults != nil {
		t.Fatal(faults)
	}
	bad := options{
		inner: inner{1}, Beta: math.Inf(1), Off: -1, Kind: "d", Gamma: new(-1.0), Levels: []string{"z"},
		URL: "http://u:p@h", Key: "sk-secret",
		Engine: "go:x",
	}
	want := []string{
		"share 1: want a number above 0 and below 1",
		"beta +Inf: want a number above 0",
		"off -1: want a whole number, 0 (off) or more",
		`kind "d": want a, b or c`,
		"gamma -1: want a number, 0 or more",
		`folder "": want a folder`,
		"levels [z]: want some of x and y",
		`url "http://…@h": want the URL of an OpenAI-compatible server, such as http://localhost:8000/v1,` +
			` without a key in it`,
		"key …: want the name of an environment variable, such as OPENAI_API_KEY, not the key itself",
		`engine "go:x": want auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN`,
		"timeout 0s: want a time above 0, such as 90s or 5m",
		"section.share 0: want a number above 0 and below 1",
	}
	if got := Err("", Check(bad)).Error(); got != strings.Join(want, "; ") {
		t.Errorf("got\n%s\nwant\n%s", strings.ReplaceAll(got, "; ", "\n"), strings.Join(want, "\n"))
	}
}

func TestErr(t *testing.T) {
	if err := Err("loss", nil); err != nil {
		t.Error(err)
	}
	var l Faults
	l.Add("beta", 0.0, "want %s", "more")
	if err := Err("loss", l); err.Error() != "loss.beta 0: want more" {
		t.Error(err)
	}
}

func TestJoin(t *testing.T) {
	for n, want := range []string{"", "a", "a or b", "a, b or c"} {
		if got := Or([]string{"a", "b", "c"}[:n]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := And([]string{"a", "b"}); got != "a and b" {
		t.Error(got)
	}
}
