package confaide

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
)

// readLines reads a file as lines without their ends; a last line that ends has no empty one behind it.
func readLines(fsys fs.FS, path string) ([]string, error) {
	read := os.ReadFile
	if fsys != nil {
		read = func(name string) ([]byte, error) { return fs.ReadFile(fsys, name) }
	}
	b, err := read(path)
	text := strings.ReplaceAll(strings.TrimPrefix(string(b), "\ufeff"), "\r\n", "\n")
	switch {
	case err != nil:
	case !utf8.ValidString(text) || strings.Contains(text, "\x00"):
		err = errors.New("no text: want UTF-8")
	case strings.TrimSpace(text) == "":
		err = errors.New("the file is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, run.Cause(err))
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n"), nil
}

// readEntries reads a file with something on each line, without the white space around it.
func readEntries(fsys fs.FS, path, what string) ([]string, error) {
	lines, err := readLines(fsys, path)
	for i, line := range lines {
		if lines[i] = strings.TrimSpace(line); lines[i] == "" {
			return nil, fmt.Errorf("%s:%d: the line is empty: want %s", path, i+1, what)
		}
	}
	return lines, err
}

// The marks at the beginning of a line.
const (
	beginMark = "<BEGIN>"
	endMark   = "<END>"
)

// block is what is between two marks.
type block struct {
	begin, end string // places of the marks
	head, foot string // what follows the marks
	text       string // each line with its end
}

// readBlocks reads a file of blocks. Between them there are only empty lines.
func readBlocks(fsys fs.FS, path string) ([]block, error) {
	lines, err := readLines(fsys, path)
	if err != nil {
		return nil, err
	}
	var all []block
	var open *block
	from := 0 // line behind the open mark
	for i, line := range lines {
		place := fmt.Sprintf("%s:%d", path, i+1)
		head, begins := strings.CutPrefix(line, beginMark)
		foot, ends := strings.CutPrefix(line, endMark)
		switch {
		case begins && open != nil:
			return nil, fmt.Errorf("%s: %s before the %s of %s: want one for each", place, beginMark, endMark,
				open.begin)
		case begins:
			open, from = &block{begin: place, head: strings.TrimSpace(head)}, i+1
		case ends && open == nil:
			return nil, fmt.Errorf("%s: %s without a %s: want one before it", place, endMark, beginMark)
		case ends:
			open.end, open.foot = place, strings.TrimSpace(foot)
			if from < i {
				open.text = strings.Join(lines[from:i], "\n") + "\n"
			}
			all, open = append(all, *open), nil
		case open == nil && strings.TrimSpace(line) != "":
			return nil, fmt.Errorf("%s: %q: want %s", place, data.OneLine(line, 40), beginMark)
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s: no %s follows: want one; the file is cut short", open.begin, endMark)
	}
	return all, nil
}
