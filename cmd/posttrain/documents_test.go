package main

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

// This file finds the command lines of this repository's documents.
//
// A fenced block without a language, or one of sh or bash, holds commands alone, one a line; or, where a line begins
// with "$ ", a transcript, whose other lines are output. Blocks of any other language (text, json, go) hold none, but
// for the arguments of posttrain's image in YAML. Between backquotes a text mentions a command where it begins as one.

// made are folders of what posttrain and its build write, where a model's card is a README.md.
var made = []string{"runs", "models", "build", "dist", "testdata", "node_modules"}

// documents are the documents by name, such as docs/data.md.
func documents(t testing.TB) map[string]string {
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

// A commandLine is a command line, without what its shell does: prompt, variables, redirections, comments.
type commandLine struct {
	Place   string // "README.md:12"
	Words   []string
	Mention bool // between backquotes, perhaps without all that it needs
}

func (c commandLine) String() string { return c.Place + ": " + strings.Join(c.Words, " ") }

// documentCommands are the command lines of all documents.
func documentCommands(t testing.TB) (all []commandLine) {
	t.Helper()
	for name, text := range documents(t) {
		all = append(all, commandLinesIn(name, text)...)
	}
	return all
}

var (
	fenceLine = regexp.MustCompile("^\\s*(?:```|~~~)(.*)")
	mentioned = regexp.MustCompile(
		"`((?:(?:posttrain|make|go (?:build|install|run|test|vet))\\s|(?:python |node )?scripts/)[^`]+)`")
	imageArgs = regexp.MustCompile(`\bargs: \[(.*?)\]`)
)

// commandLinesIn finds the command lines of a document.
func commandLinesIn(name, text string) (found []commandLine) {
	add := func(at int, line string, mention bool) {
		for _, words := range splitWords(line) {
			found = append(found, commandLine{fmt.Sprintf("%s:%d", name, at), words, mention})
			if mention { // a | belongs to a table
				return
			}
		}
	}
	prose := fencedBlocks(text, func(from int, language string, block []string) {
		for i, line := range commandsOfBlock(language, block) {
			add(from+i, line, false)
		}
	})
	for _, at := range mentioned.FindAllStringSubmatchIndex(prose, -1) {
		add(1+strings.Count(prose[:at[0]], "\n"), strings.ReplaceAll(prose[at[2]:at[3]], "\n", " "), true)
	}
	return found
}

// fencedBlocks calls do for each fenced block, with the number of its first line, and gives the text without them.
func fencedBlocks(text string, do func(from int, language string, block []string)) (prose string) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		m := fenceLine.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		from := i + 1
		for i++; i < len(lines) && !fenceLine.MatchString(lines[i]); i++ {
		}
		do(from+1, m[1], lines[from:i])
		clear(lines[from-1 : min(i+1, len(lines))])
	}
	return strings.Join(lines, "\n")
}

// commandsOfBlock gives one text for each line of a block: the command that ends on this line, or "".
func commandsOfBlock(language string, block []string) []string {
	lines := make([]string, len(block))
	transcript := slices.ContainsFunc(block, func(line string) bool { return strings.HasPrefix(line, "$ ") })
	joined := ""
	for i, line := range block {
		if m := imageArgs.FindStringSubmatch(line); language == "yaml" && m != nil {
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
	lineWord        = regexp.MustCompile(`\d?>&\d|(?:'[^']*'|"[^"]*"|[^\s'";|&])+|[;|&]+`)
	betweenCommands = regexp.MustCompile(`^[;|&]+$`)
	redirection     = regexp.MustCompile(`^\d?[<>]`)
	aheadOfCommand  = regexp.MustCompile(`^(\w+=.*|time|nice|env|srun|do|then)$`) // a command
)

// splitWords gives the words of each command of a line, without quotes, … and the brackets of [--options].
func splitWords(line string) (all [][]string) {
	var words []string
	cut, last := false, ""
	for _, w := range append(lineWord.FindAllString(line, -1), ";") {
		optional := strings.HasPrefix(w, "[-") || strings.HasSuffix(w, "]") && !strings.ContainsAny(w, `['"`)
		switch {
		case betweenCommands.MatchString(w) || strings.HasPrefix(w, "#"):
			if len(words) > 0 {
				all = append(all, words)
			}
			if words, cut = nil, false; w[0] == '#' {
				return all
			}
		case redirection.MatchString(w):
			cut = true
		case cut || w == "…" && !strings.HasPrefix(last, "-") || words == nil && aheadOfCommand.MatchString(w):
		case optional:
			words = append(words, strings.Trim(w, "[]"))
		default:
			words = append(words, strings.Trim(w, `'"`))
		}
		last = w
	}
	return all
}

// TestCommandLines: commands are found in blocks, transcripts, manifests and between backquotes; output is left alone.
func TestCommandLines(t *testing.T) {
	text := strings.Join([]string{
		"posttrain mappo outside of a block, and `posttrain mappo",
		"--out x` in a line and a half; `make` alone, `data pairs --input` and `make test` of `a | b`",
		"```sh",
		"go run ./cmd/posttrain mappo",
		"POSTTRAIN_X=1 posttrain sft --model 'my model' > log 2>&1   # comment; with a semicolon",
		"cd posttrain && time ./posttrain version | head -1",
		"for i in 1 2; do posttrain eval ci --seed \"$i\" & done",
		"go run ./internal/speed trl … --pairs 3 [--large] [--data FILE] --set 'a=[b]'",
		"```",
		"~~~",
		"$ posttrain mappo --prior none \\",
		"    --out runs/dpo",
		"continue with posttrain mappo --resume out",
		"~~~",
		"```text",
		"posttrain: output",
		"```",
		"```yaml",
		`  args: [serve, --addr, "0.0.0.0:1"]`,
		"```",
	}, "\n")
	var got []string
	for _, c := range commandLinesIn("a.md", text) {
		got = append(got, strings.TrimPrefix(c.Place, "a.md:")+" "+strings.Join(c.Words, "|"))
	}
	want := []string{
		"4 go|run|./cmd/posttrain|mappo", "5 posttrain|sft|--model|my model", "6 cd|posttrain",
		"6 ./posttrain|version", "6 head|-1", "7 for|i|in|1|2", "7 posttrain|eval|ci|--seed|$i", "7 done",
		"8 go|run|./internal/speed|trl|--pairs|3|--large|--data|FILE|--set|a=[b]",
		"12 posttrain|mappo|--prior|none|--out|runs/dpo", "19 posttrain|serve|--addr|0.0.0.0:1", "1 posttrain|mappo|--out|x", "2 make|test",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
