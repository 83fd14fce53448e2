package testkit

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

// This file finds the command lines of this repository's documents, for the tests of the programs that they name.
//
// A fenced block without a language, or one of sh or bash, holds commands alone, one a line; or, where a line begins
// with "$ ", a transcript, whose other lines are output. Blocks of any other language (text, json, go) hold none, but
// for the arguments of posttrain's image in YAML. Between backquotes a text mentions a command where it begins as one.

// made are folders of what posttrain and its build write, where a model's card is a README.md.
var made = []string{"runs", "models", "build", "dist", "testdata", "node_modules"}

// Documents are the documents by name, such as docs/data.md.
func Documents(t testing.TB) map[string]string {
	t.Helper()
	texts, root := map[string]string{}, os.DirFS(need.Root)
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) == ".md" {
			text, _ := fs.ReadFile(root, path)
			texts[path] = string(text)
			return err
		}
		if d.IsDir() && path != "." && (d.Name()[0] == '.' || slices.Contains(made, d.Name())) {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// A Command is a command line, without what its shell does: prompt, variables, redirections, comments.
type Command struct {
	Place   string // "README.md:12"
	Words   []string
	Mention bool // between backquotes, perhaps without all that it needs
}

func (c Command) String() string { return c.Place + ": " + strings.Join(c.Words, " ") }

// Commands are the command lines of all documents.
func Commands(t testing.TB) (all []Command) {
	t.Helper()
	for name, text := range Documents(t) {
		all = append(all, CommandsIn(name, text)...)
	}
	return all
}

// Running are the arguments of the commands of all documents that begin with words, such as go run ./bench.
func Running(t testing.TB, words ...string) (all []Command) {
	t.Helper()
	for _, c := range Commands(t) {
		if n := len(words); len(c.Words) >= n && slices.Equal(c.Words[:n], words) {
			c.Words = c.Words[n:]
			all = append(all, c)
		}
	}
	return all
}

var (
	fence  = regexp.MustCompile("^\\s*(?:```|~~~)(.*)")
	quoted = regexp.MustCompile(
		"`((?:(?:posttrain|make|go (?:build|install|run|test|vet))\\s|(?:python |node )?scripts/)[^`]+)`")
	args = regexp.MustCompile(`\bargs: \[(.*?)\]`)
)

// CommandsIn finds the command lines of a document.
func CommandsIn(name, text string) (found []Command) {
	add := func(at int, line string, mention bool) {
		for _, words := range split(line) {
			found = append(found, Command{fmt.Sprintf("%s:%d", name, at), words, mention})
			if mention { // a | is that of a table
				return
			}
		}
	}
	prose := blocks(text, func(from int, language string, block []string) {
		for i, line := range commands(language, block) {
			add(from+i, line, false)
		}
	})
	for _, at := range quoted.FindAllStringSubmatchIndex(prose, -1) {
		add(1+strings.Count(prose[:at[0]], "\n"), strings.ReplaceAll(prose[at[2]:at[3]], "\n", " "), true)
	}
	return found
}

// blocks calls do for each fenced block, with the number of its first line, and gives the text without them.
func blocks(text string, do func(from int, language string, block []string)) (prose string) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		m := fence.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		from := i + 1
		for i++; i < len(lines) && !fence.MatchString(lines[i]); i++ {
		}
		do(from+1, m[1], lines[from:i])
		clear(lines[from-1 : min(i+1, len(lines))])
	}
	return strings.Join(lines, "\n")
}

// commands gives one text for each line of a block: the command that ends on this line, or "".
func commands(language string, block []string) []string {
	lines := make([]string, len(block))
	transcript := slices.ContainsFunc(block, func(line string) bool { return strings.HasPrefix(line, "$ ") })
	joined := ""
	for i, line := range block {
		if m := args.FindStringSubmatch(line); language == "yaml" && m != nil {
			lines[i] = "posttrain " + strings.ReplaceAll(m[1], ",", "")
		}
		if language != "" && language != "sh" && language != "bash" {
			continue
		}
		line, prompted := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if transcript && !prompted && joined == "" {
			continue
		}
		rest, more := strings.CutSuffix(line, `\`)
		if joined += rest; !more {
			lines[i], joined = joined, ""
		}
	}
	return lines
}

var (
	word     = regexp.MustCompile(`\d?>&\d|(?:'[^']*'|"[^"]*"|[^\s'";|&])+|[;|&]+`)
	between  = regexp.MustCompile(`^[;|&]+$`)
	redirect = regexp.MustCompile(`^\d?[<>]`)
	before   = regexp.MustCompile(`^(\w+=.*|time|nice|env|srun|do|then)$`) // a command
)

// split gives the words of each command of a line, without quotes, … and the brackets of [--options].
func split(line string) (all [][]string) {
	var words []string
	cut, last := false, ""
	for _, w := range append(word.FindAllString(line, -1), ";") {
		optional := strings.HasPrefix(w, "[-") || strings.HasSuffix(w, "]") && !strings.ContainsAny(w, `['"`)
		switch {
		case between.MatchString(w) || strings.HasPrefix(w, "#"):
			if len(words) > 0 {
				all = append(all, words)
			}
			if words, cut = nil, false; w[0] == '#' {
				return all
			}
		case redirect.MatchString(w):
			cut = true
		case cut || w == "…" && !strings.HasPrefix(last, "-") || words == nil && before.MatchString(w):
		case optional:
			words = append(words, strings.Trim(w, "[]"))
		default:
			words = append(words, strings.Trim(w, `'"`))
		}
		last = w
	}
	return all
}
