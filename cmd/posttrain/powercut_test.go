//go:build linux

package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestPowerCut repeats the file operations of small runs up to a cut, without what was not flushed to the disk, and
// continues from there: each must end in the folder that an undisturbed run leaves, bit for bit.
func TestPowerCut(t *testing.T) {
	need.Ask(t, "slow")
	need.Path(t, "strace") // notes the operations
	work(t, "qwen2-newer")
	for _, r := range smallRuns() {
		t.Run(r.name, func(t *testing.T) { cutSome(t, r) })
	}
}

// mostCuts are the cuts that are tried of a run.
const mostCuts = 40

// cutSome continues a run after some of its cuts, drawn at random.
func cutSome(t *testing.T, r smallRun) {
	const calls = "trace=openat,close,write,pwrite64,fsync,?rename,renameat,?renameat2,?unlink,unlinkat,?rmdir,?mkdir," +
		"mkdirat,ftruncate,?truncate,lseek"
	if out, err := traced(r.start, "-o", "calls", "-xx", "-s", "100000000", "-e", calls).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	whole, cuts := "whole "+r.name, cutsOf(t, read(t, "calls"))
	if err := os.Rename("out", whole); err != nil {
		t.Fatal(err)
	}
	keys := slices.Sorted(maps.Keys(cuts))
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, key := range keys[:min(mostCuts, len(keys))] {
		for name, text := range cuts[key] {
			if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
				t.Fatal(err)
			}
			write(t, name, text)
		}
		r.continues(t, "a cut at "+key, whole)
	}
	t.Logf("%d of %d cuts: same bits", min(mostCuts, len(keys)), len(keys))
}

// node is a file or folder: what it has now, and what is on the disk.
type node struct {
	names, flushedNames map[string]*node // of a folder
	data, flushed       []byte
}

func newFolder() *node { return &node{names: map[string]*node{}, flushedNames: map[string]*node{}} }

// opened is a file or folder that is open.
type opened struct {
	*node
	at     int
	append bool
}

// disk is the working directory under the operations of a process.
type disk struct {
	root *node
	fds  map[string]*opened
	dir  string
}

var (
	threadLine = regexp.MustCompile(`^(\d+) +(?:<\.\.\. \w+ resumed>)?(.*?)( <unfinished \.\.\.>)?$`)
	callOf     = regexp.MustCompile(`^(\w+)\((.*)\) += (\d+)`)
	pathOf     = regexp.MustCompile(`(?:(AT_FDCWD|\d+), )?"((?:\\x[0-9a-f]{2})*)"`)
)

// cutsOf gives the files that are left after each operation, by its number and what else is left: nothing that was not
// flushed; all names; all names and lengths, with zeros for what was not flushed. Those that are equal are there once.
func cutsOf(t *testing.T, calls string) map[string]map[string]string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{newFolder(), map[string]*opened{}, dir}
	cuts, seen, halves := map[string]map[string]string{}, map[string]bool{}, map[string]string{}
	for i, line := range strings.Split(calls, "\n") {
		m := threadLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		halves[m[1]] += m[2]
		if m[3] != "" { // another thread's call comes before its end
			continue
		}
		c := callOf.FindStringSubmatch(halves[m[1]])
		if halves[m[1]] = ""; c == nil || !d.do(c[1], c[2], c[3]) {
			continue
		}
		for how := range 3 {
			left := map[string]string{}
			d.root.left(how, "", left)
			maps.DeleteFunc(left, func(name, _ string) bool { return !strings.HasPrefix(name, "out/") })
			if text := fmt.Sprint(left); !seen[text] {
				seen[text] = true
				cuts[fmt.Sprintf("%04d %s, %d", i, c[1], how)] = left
			}
		}
	}
	return cuts
}

// left collects the files that a cut leaves. A folder without files is left out.
func (n *node) left(how int, path string, all map[string]string) {
	names := n.names
	if how == 0 {
		names = n.flushedNames
	}
	for name, child := range names {
		switch path := filepath.Join(path, name); {
		case child.names != nil:
			child.left(how, path, all)
		case how == 2 && !bytes.Equal(child.data, child.flushed):
			same := child.flushed[:min(len(child.flushed), len(child.data))]
			all[path] = string(same) + strings.Repeat("\x00", len(child.data)-len(same))
		default:
			all[path] = string(child.flushed)
		}
	}
}

// find is the folder and the name of a path of a call; nil outside of the working directory.
func (d *disk) find(args string, which int) (*node, string) {
	m := pathOf.FindAllStringSubmatch(args, -1)[which]
	text, _ := hex.DecodeString(strings.ReplaceAll(m[2], `\x`, ""))
	path, folder := string(text), d.root
	if open := d.fds[m[1]]; open != nil {
		folder = open.node
	} else if m[1] != "" && m[1] != "AT_FDCWD" {
		return nil, ""
	} else if filepath.IsAbs(path) {
		if path, _ = filepath.Rel(d.dir, path); !filepath.IsLocal(path) {
			return nil, ""
		}
	}
	parts := strings.Split(filepath.Clean(path), "/")
	for _, part := range parts[:len(parts)-1] {
		if folder = folder.names[part]; folder == nil {
			return nil, ""
		}
	}
	return folder, parts[len(parts)-1]
}

// do repeats a call, and says whether it changes what a cut leaves.
func (d *disk) do(call, args, result string) bool {
	fd, _, _ := strings.Cut(args, ",")
	last, _ := strconv.Atoi(args[strings.LastIndex(args, " ")+1:])
	f := d.fds[fd]
	switch call {
	case "openat":
		return d.open(args, result)
	case "rename", "renameat", "renameat2":
		from, name := d.find(args, 0)
		to, next := d.find(args, 1)
		if from == nil || to == nil {
			return false
		}
		n := from.names[name]
		delete(from.names, name)
		to.names[next] = n
		return true
	case "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat":
		folder, name := d.find(args, 0)
		if folder == nil {
			return false
		}
		if delete(folder.names, name); strings.HasPrefix(call, "mkdir") {
			folder.names[name] = newFolder()
		}
		return true
	}
	if f == nil {
		return false
	}
	switch n, _ := strconv.Atoi(result); call {
	case "close":
		delete(d.fds, fd)
	case "lseek":
		f.at = n
	case "fsync":
		f.flushed, f.flushedNames = bytes.Clone(f.data), maps.Clone(f.names)
		return true
	case "ftruncate":
		f.data = append(f.data[:min(last, len(f.data))], make([]byte, max(0, last-len(f.data)))...)
		return true
	case "write", "pwrite64":
		text, _ := hex.DecodeString(strings.ReplaceAll(pathOf.FindStringSubmatch(args)[2], `\x`, ""))
		at := f.at
		if call == "pwrite64" {
			at = last
		} else if f.append {
			at = len(f.data)
		}
		f.data = append(f.data, make([]byte, max(0, at+n-len(f.data)))...)
		if copy(f.data[at:], text[:n]); call == "write" {
			f.at = at + n
		}
		return true
	}
	return false
}

func (d *disk) open(args, result string) (changed bool) {
	delete(d.fds, result)
	folder, name := d.find(args, 0)
	if folder == nil {
		return false
	}
	n := folder.names[name]
	switch {
	case name == ".":
		n = folder
	case n == nil && strings.Contains(args, "O_CREAT"):
		n, changed = &node{}, true
		folder.names[name] = n
	case n == nil: // it was there before
		return false
	case strings.Contains(args, "O_TRUNC"):
		n.data, changed = nil, true
	}
	d.fds[result] = &opened{node: n, append: strings.Contains(args, "O_APPEND")}
	return changed
}
