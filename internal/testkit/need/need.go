// Package need says what tests want beyond Go and this repository: an engine's library, a real model, another program.
//
// Where a need is missing, its tests are left out, and say for want of what; `make test` counts them in its last lines.
// The environment variable POSTTRAIN_NEEDS lists the needs that must be there, with commas between them, such as
//
//	POSTTRAIN_NEEDS=onnx,xla,data=/srv/data
//
// A test that lacks one of these fails. name=place says where a file or folder is, if it is not where it is looked for.
package need

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Variable lists the needs that must be there.
const Variable = "POSTTRAIN_NEEDS"

// FoundVariable has what [Found] gives. gotest sets it: go test runs a test again if a variable has changed that the
// test read, but not if a file outside this module has. So what was left out runs once its need is installed.
const FoundVariable = "POSTTRAIN_NEEDS_FOUND"

// LeftOut begins the line of a test, or of a part of it, that lacks a need. The need's name and a colon follow.
const LeftOut = "left out for want of "

// A Need is something that tests want.
type Need struct {
	Name string
	Get  string // how to get it, in one sentence

	place string                  // where it is looked for: in the folder of Installed, or from this repository's root
	check func(path string) error // what is wrong with a place
}

// Needs are all needs. Those without a check are found, or asked for, by the test.
var Needs = []Need{
	{Name: "cc", Get: "install a C compiler, and build the tests with CGO_ENABLED=1", place: "cc", check: onPath},
	{Name: "onnx", Get: "run scripts/install-onnxruntime.sh"},
	{Name: "xla", Get: "run scripts/install-pjrt-cpu.sh, and list xla in " + Variable +
		": its programs compile for minutes"},
	{Name: "cuda-compiler", Get: "run scripts/install-cuda-compiler.sh, and list cuda-compiler and xla in " + Variable},
	{Name: "mujoco", Get: "run scripts/install-mujoco.sh"},
	{Name: "python3", Get: "install Python", place: "python3", check: onPath},
	{Name: "strace", Get: "install strace", place: "strace", check: onPath},
	{Name: "huggingface_hub", Get: install, place: "huggingface_hub/bin/python", check: onPath},
	{Name: "openai-node", Get: install, place: "openai-node", check: nodePackage("openai")},
	{Name: "openai-python", Get: install, place: "openai-python/bin/python", check: onPath},
	{Name: "model", Get: install, place: "model", check: holds("model.safetensors", "tokenizer.json")},
	{Name: "templates", Get: install, place: "templates.json", check: holds("")},
	{Name: "data", Get: "name a folder with the public data sets of CONTRIBUTING.md: data=DIR", place: "../shared/data",
		check: holds("contextual-integrity/dataset.json", "privacylens/main_data.json")},
	{Name: "oracle", Get: "name the folder of the formulas' float64 cases, which is not public: oracle=DIR",
		place: "../shared/oracle", check: holds("losses.json", "federated.json")},
	{Name: "linux", Get: "run the tests on Linux, and not under nohup"},
	{Name: "amd64", Get: "run the tests on a processor of this kind"},
	{Name: "slow", Get: "run make slow"},
	{Name: "idle", Get: "list idle in " + Variable + " on a machine that does nothing else: these measure times"},
}

const install = "run scripts/install-test-needs.sh"

// Path is where a need is found. Without it the test ends here: it is left out, or fails if the need must be there.
func Path(t testing.TB, name string) string {
	t.Helper()
	n := find(t, name)
	if n.check == nil {
		t.Fatalf("need %s has no place", name)
	}
	path := n.path()
	if err := n.check(path); err != nil {
		Lack(t, name, err.Error())
	}
	return path
}

// Lack ends a test that lacks a need: it is left out, or fails if the need must be there. why says what is missing.
func Lack(t testing.TB, name, why string) {
	t.Helper()
	Miss(t, name, why)
	t.SkipNow()
}

// Miss notes that a part of a test lacks a need, and lets the rest go on. The test fails if the need must be there.
func Miss(t testing.TB, name, why string) {
	t.Helper()
	n := find(t, name)
	if Required(name) {
		t.Fatalf("%s names %s: %s: %s", Variable, name, why, n.Get)
	}
	t.Logf("%s%s: %s", LeftOut, name, why)
}

// Ask ends a test unless a need is listed: for needs that nobody can look for, such as time.
func Ask(t testing.TB, name string) {
	t.Helper()
	if !Required(name) {
		Lack(t, name, name+" is not listed in "+Variable)
	}
}

// Linux ends a test that uses what only Linux has, such as /proc. err says what is missing.
func Linux(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		Lack(t, "linux", err.Error())
	}
}

// Required reports whether a need must be there.
func Required(name string) bool {
	_, listed := lookUp(name)
	return listed
}

// lookUp gives the place that the variable has for a need.
func lookUp(name string) (place string, listed bool) {
	os.Getenv(FoundVariable) // for go test's cache
	for _, item := range strings.Split(os.Getenv(Variable), ",") {
		if n, p, _ := strings.Cut(item, "="); n == name {
			return p, true
		}
	}
	return "", false
}

// find also tests the variable, whose misspelt name would leave tests out unseen.
func find(t testing.TB, name string) (found Need) {
	t.Helper()
	for _, item := range append(strings.Split(os.Getenv(Variable), ","), name) {
		n, _, _ := strings.Cut(item, "=")
		i := slices.IndexFunc(Needs, func(need Need) bool { return need.Name == n })
		switch {
		case i >= 0:
			found = Needs[i]
		case n != "":
			t.Fatalf("%s: found %q: want some of %s, with commas between them", Variable, n, Names())
		}
	}
	return found
}

// Names are the needs' names.
func Names() string {
	var names []string
	for _, n := range Needs {
		names = append(names, n.Name)
	}
	return strings.Join(names, ", ")
}

// Found lists the needs that are in their places, and what lies beside the folder of Installed, such as libraries.
func Found() string {
	var found []string
	for _, n := range Needs {
		if n.check != nil && n.check(n.path()) == nil {
			found = append(found, n.Name)
		}
	}
	entries, _ := os.ReadDir(filepath.Dir(Installed()))
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return strings.Join(found, ",")
}

func (n Need) path() string {
	given, _ := lookUp(n.Name)
	switch {
	case given != "":
		return given
	case strings.HasPrefix(n.place, "../"):
		return filepath.Join(Root, n.place)
	case n.Get == install:
		return filepath.Join(Installed(), n.place)
	}
	return n.place
}

// Installed is the folder into which scripts/install-test-needs.sh puts what it gets.
func Installed() string {
	data := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) { // as posttrain and the scripts do
		data = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(data, "posttrain", "tests")
}

// Root is the folder of this repository. It and the home are read before tests change the working folder and HOME.
var Root, home = func() (string, string) {
	home, _ := os.UserHomeDir()
	dir, _ := os.Getwd()
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || dir == filepath.Dir(dir) {
			return dir, home
		}
		dir = filepath.Dir(dir)
	}
}()

func onPath(program string) error {
	_, err := exec.LookPath(program)
	return err
}

func holds(files ...string) func(string) error {
	return func(path string) error {
		for _, f := range files {
			if _, err := os.Stat(filepath.Join(path, f)); err != nil {
				return err
			}
		}
		return nil
	}
}

func nodePackage(name string) func(string) error {
	return func(path string) error {
		if err := onPath("node"); err != nil {
			return err
		}
		return holds("node_modules/" + name)(path)
	}
}

// File is a file or folder in the place of a need, by a path with slashes.
func File(t testing.TB, name, path string) string {
	t.Helper()
	path = filepath.Join(Path(t, name), filepath.FromSlash(path))
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("need %s: %v", name, err)
	}
	return path
}

// Oracle reads a file of the oracle, or one section of it.
func Oracle(t testing.TB, file, section string, into any) {
	t.Helper()
	text, err := os.ReadFile(File(t, "oracle", file))
	if err == nil && section != "" {
		var all map[string]json.RawMessage
		err = json.Unmarshal(text, &all)
		text = all[section]
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %s: %v", file, section, err)
	}
}
