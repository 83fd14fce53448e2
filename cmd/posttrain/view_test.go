package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestView: a page in a file, and what is no run in one line.
func TestView(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("runs/a", 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, "runs/a/config.yaml", "command: mappo\n")
	write(t, "runs/a/metrics.jsonl", `{"step":1,"epoch":0.5,"loss":0.25}`+"\n")
	if o := must(t, "view", "runs/a", "--out", "page.html"); o.out != "the page is written: page.html\n" {
		t.Errorf("%+v", o)
	}
	if page := read(t, "page.html"); !strings.Contains(page, "<title>a</title>") {
		t.Errorf("%.300s", page)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"view"}, exitUsage, "posttrain view wants one run folder or more, found 0"},
		{[]string{"view", "runs"}, exitFailed, "runs: there is no log of a run in it: want a run folder of posttrain"},
		{[]string{"view", "runs/a", "--listen", "7000"}, exitFailed, "--listen 7000: "},
		{[]string{"view", "runs/a", "--listen", ":0", "--out", "x"}, exitUsage, "--listen: with --out the page is"},
	} {
		if o := cli(t, c.args...); o.code != c.code || !strings.HasPrefix(o.err, "posttrain: "+c.want) ||
			strings.Count(o.err, "\n") != 1 {
			t.Errorf("%q: %+v", c.args, o)
		}
	}
	if _, err := os.Stat(filepath.Join("runs", "a", "lock")); err == nil {
		t.Error("a page has locked the run")
	}
}
