package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
)

var update = flag.Bool("update", false, "write what is generated: the comments of configs/, and the keys in docs/commands.md")

// TestGenerated: the comments of the config files, and the page of all keys, are what the tags of the options say.
func TestGenerated(t *testing.T) {
	t.Chdir(root)
	paths, err := filepath.Glob("configs/*.yaml")
	presets, _ := filepath.Glob("configs/*/*.yaml")
	if paths = append(paths, presets...); err != nil || len(presets) < 8 || len(paths) < 14 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text := read(t, path)
		if c := config.Find(config.CommandOf([]byte(text))); c != nil {
			checkGenerated(t, path, text, comment(c.Table(), text))
		}
	}
	const page, last = "docs/commands.md", "-run TestGenerated -update`.\n"
	text := read(t, page)
	head, _, found := strings.Cut(text, last)
	if !found {
		t.Fatalf("%s: want the line that ends in %s", page, last)
	}
	checkGenerated(t, page, text, head+last+reference())
}

// checkGenerated compares a file with what it should be, and writes that with -update.
func checkGenerated(t *testing.T, path, have, want string) {
	switch {
	case have == want:
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Error(err)
		}
	default:
		t.Errorf("%s is not as the tags have it: go test ./cmd/posttrain -run TestGenerated -update", path)
	}
}

// reference describes every key of every command, as a document in Markdown. A key that an earlier command has in the
// same way is only named.
func reference() string {
	var b strings.Builder
	seen := map[string]string{} // the command that a row was printed for
	all := config.Commands()
	slices.SortStableFunc(all, func(a, b config.Command) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, c := range all {
		if strings.Contains(c.Name(), "--") { // of a sweep's folder, which the program alone writes
			continue
		}
		fmt.Fprintf(&b, "\n## posttrain %s\n\n", c.Name())
		known := map[string][]string{}
		var rows []string
		for _, k := range c.Table() {
			text := row(k)
			if first, has := seen[text]; has {
				known[first] = append(known[first], "`"+k.Name+"`")
				continue
			}
			seen[text] = c.Name()
			rows = append(rows, text)
		}
		if len(rows) > 0 {
			b.WriteString("| key | default | flag | what it is |\n|---|---|---|---|\n" + strings.Join(rows, ""))
		}
		for _, first := range all {
			if keys := known[first.Name()]; len(keys) > 0 {
				fmt.Fprintf(&b, "\nAs for `posttrain %s`: %s.\n", first.Name(), strings.Join(keys, ", "))
			}
		}
	}
	return b.String()
}

// row is the line of a key in the reference.
func row(k config.Key) string {
	flag := ""
	if k.Flag != "" {
		flag = "`--" + k.Flag + "`"
	}
	if k.Paper != "" {
		k.About += "; the paper: " + k.Paper
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", k.Name, k.Default, flag, strings.ReplaceAll(k.About, "|", `\|`))
}

// comment writes the comments of a command's config file anew: what stands above the first key stays, a key has the
// help of its tags behind it, and one without help keeps what the file says. Values and their order stay.
func comment(keys []config.Key, text string) string {
	w := commenter{about: map[string]string{"command": ""}}
	for _, k := range keys {
		w.about[k.Name] = k.About
	}
	for line := range strings.Lines(text) {
		w.add(strings.TrimRight(line, " \n"))
	}
	return layComments(w.lines)
}

// commenter takes the lines of a file.
type commenter struct {
	about map[string]string // of keys
	lines []commented
	path  []string // the sections that the last key is in, with itself
	begun bool     // a key was there
}

var (
	keyLine    = regexp.MustCompile(`^( *)(# )?([a-z_0-9]+):( .*)?$`)
	endComment = regexp.MustCompile(`^((?:[^"'#]|"(?:[^"\\]|\\.)*"|'[^']*'|[^ ]#)*?) +# (.*)$`)
)

func (w *commenter) add(line string) {
	trimmed := strings.TrimLeft(line, " ")
	parts := keyLine.FindStringSubmatch(line)
	var path []string // of a key; one that is commented out stands where a key does
	if parts != nil && len(parts[1])/2 <= len(w.path) {
		path = append(slices.Clone(w.path[:len(parts[1])/2]), parts[3])
	}
	key := strings.Join(path, ".")
	switch {
	case path != nil && (parts[2] == "" || w.begun && w.has(key)):
		w.begun, w.path = true, path
		w.lines = append(w.lines, w.comment(line, key))
	case w.begun && strings.HasPrefix(trimmed, "#"): // continues the comment above
		last := &w.lines[len(w.lines)-1]
		if !w.helped() && last.comment != "" {
			last.comment += " " + strings.TrimPrefix(trimmed, "# ")
		}
	default:
		w.lines = append(w.lines, commented{text: line})
	}
}

// helped says that the last key has help, so that the file's comment goes.
func (w *commenter) helped() bool { return w.about[strings.Join(w.path, ".")] != "" }

// has says that a key, or a section, exists.
func (w *commenter) has(key string) bool {
	for name := range w.about {
		if name == key || strings.HasPrefix(name, key+".") {
			return true
		}
	}
	return false
}

// comment is the line of a key with its comment.
func (w *commenter) comment(line, key string) commented {
	c := commented{text: line}
	hidden := strings.HasPrefix(strings.TrimLeft(line, " "), "# ")
	if hidden { // a key that is commented out
		line = strings.Replace(line, "# ", "\x00", 1)
		c.text = line
	}
	if parts := endComment.FindStringSubmatch(line); parts != nil {
		c = commented{parts[1], parts[2]}
	}
	c.text = strings.Replace(c.text, "\x00", "# ", 1)
	if help := w.about[key]; help != "" {
		c.comment = help
	}
	return c
}
