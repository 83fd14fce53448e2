package metered

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout/remote"
)

func nameNumber(i int) (n name) {
	n[0], n[1] = byte(i), byte(i>>8)
	return n
}

func put(t *testing.T, path string, from, to int) {
	t.Helper()
	c := expect.Must(openCache(path, ""))(t)
	var wg sync.WaitGroup
	for i := from; i < to; i++ {
		wg.Go(func() {
			if err := c.add(nameNumber(i), entry{Model: "m", Reply: fmt.Sprintf("reply\n%d", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// holds opens a cache and checks that it has exactly the replies 0 to n-1.
func holds(t *testing.T, path string, n int) {
	t.Helper()
	c := expect.Must(openCache(path, ""))(t)
	defer c.close()
	if len(c.replies) != n {
		t.Errorf("%d replies, want %d", len(c.replies), n)
	}
	for i := range n {
		if reply, found := c.get(nameNumber(i)); !found || reply.Text != fmt.Sprintf("reply\n%d", i) {
			t.Errorf("%d: %q, %v", i, reply.Text, found)
		}
	}
}

// TestTornCache cuts a cache at every byte of its first and last lines: whole lines stay, and writing continues.
func TestTornCache(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "whole")
	put(t, path, 0, 2)
	put(t, path, 2, 3)
	whole := expect.Bytes(t, path)
	last := len(strings.Join(strings.SplitAfter(string(whole), "\n")[:3], ""))
	for at := 0; at <= len(whole); at++ {
		kept := 2
		switch {
		case at <= len(header):
			kept = 0
		case at < last:
			continue
		case at == len(whole):
			kept = 3
		}
		torn := filepath.Join(dir, fmt.Sprint(at))
		expect.Write(t, torn, whole[:at])
		if kept < 2 {
			put(t, torn, 0, 2)
			kept = 2
		}
		holds(t, torn, kept)
		put(t, torn, kept, 5)
		holds(t, torn, 5)
	}
}

// TestNoCache: a file that is not a cache is reported in one line and stays unchanged.
func TestNoCache(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ content, want string }{
		"other lines":      {`{"a": 1}` + "\n", "is not a cache of replies: its first line is not {"},
		"one line, no end": {`{"a": 1}`, "is not a cache of replies"},
		"a later version":  {strings.Replace(header, "1}", "2}", 1), "is not a cache of replies"},
		"bytes":            {"\x00\x01\x02", "is not a cache of replies"},
		"a broken line":    {header + "\n{\n" + `{"name":"`, ":2: "},
		"another line": {header + "\n" + `{"name":"00","reply":""}` + "\n",
			`:2: not a reply (name "00": want 64 hex digits): remove the line`},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		expect.Write(t, path, c.content)
		_, err := Open(Options{Server: remote.Server{BaseURL: "http://localhost/v1"}, Model: "m", Cache: path})
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if b, _ := os.ReadFile(path); string(b) != c.content {
			t.Errorf("%s: the file was changed to %q", name, b)
		}
	}
	for path, want := range map[string]string{
		dir: "is a directory", filepath.Join(dir, "none", "judge.jsonl"): "no such file or directory",
	} {
		if _, err := openCache(path, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// TestCacheOfTwo: a second process cannot open the cache.
func TestCacheOfTwo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "judge.jsonl")
	c := expect.Must(openCache(path, ""))(t)
	if _, err := openCache(path, ""); err == nil || !strings.Contains(err.Error(),
		"in use by another process: wait for the other process") {
		t.Error(err)
	}
	c.close()
	holds(t, path, 0)
}

// TestReplyNotWritten: a reply that is not on disk is not in memory either; the error is one line, and the file stays
// whole.
func TestReplyNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "judge.jsonl")
	c := expect.Must(openCache(path, ""))(t)
	if err := c.close(); err != nil { // takes no rows, as a full disk does
		t.Fatal(err)
	}
	expect.Error(t, c.add(nameNumber(0), entry{}), "the cache of replies: judge.jsonl: not written")
	if _, kept := c.get(nameNumber(0)); kept {
		t.Error("a reply that is not written is kept")
	}
	holds(t, path, 0)
}

// TestCacheOfServer: a client that wants this server's replies alone does not see the replies of another server's model
// of the same name.
func TestCacheOfServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache")
	first := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "first" }})
	second := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "second" }})
	for i, ask := range []struct {
		server   *testkit.JudgeServer
		ofServer bool
		want     string
	}{{first, true, "first"}, {second, true, "second"}, {first, true, "first"}, {first, false, "second"}} {
		c := expect.Must(Open(Options{Server: remote.Server{BaseURL: ask.server.URL}, Model: "m", Cache: path,
			OfServer: ask.ofServer}))(t)
		if got, err := c.Ask(t.Context(), "?"); err != nil || got != ask.want {
			t.Errorf("%d: %q, %v, want %q", i, got, err, ask.want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n, _ := first.Requests(); n != 1 {
		t.Errorf("%d requests to the first server", n)
	}
}
