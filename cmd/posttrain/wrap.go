package main

import (
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// wrap breaks lines between words where they are longer than a width: below the text of a list's row, and a command line
// as a shell takes it. The last line, if it does not end, JSON, and what moves the cursor stay as they are.
func wrap(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		first := strings.TrimLeft(line, " ")
		hang, end := hanging(line, width), "\n"
		if strings.HasPrefix(line, "  posttrain ") {
			end = " \\\n"
		}
		whole := !strings.HasSuffix(line, "\n") || strings.ContainsAny(line, "\r\x1b") ||
			strings.ContainsAny(first[:min(1, len(first))], `{["`)
		for !whole && utf8.RuneCountInString(line) > width+1 {
			at := strings.LastIndexByte(string([]rune(line)[:width+2-len(end)]), ' ')
			if at <= len(hang) {
				break // a word that is too long
			}
			b.WriteString(strings.TrimRight(line[:at], " ") + end)
			line = hang + strings.TrimLeft(line[at:], " ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// hanging is the indentation of what follows the first line of a row: its text's, or a bit more than the row's.
func hanging(line string, width int) string {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	if indent == 0 {
		return ""
	}
	if gap := strings.LastIndex(line[:min(len(line), width/2)], "  "); gap >= indent {
		return strings.Repeat(" ", gap+2)
	}
	return strings.Repeat(" ", indent+2)
}

// within finds the line ends inside paragraphs. It keeps the end of a line before an indented one.
var within = regexp.MustCompile(`(\S)\n(\S)`)

// fill joins the lines of paragraphs, so that they can be wrapped anew.
func fill(text string) string { return within.ReplaceAllString(text, "$1 $2") }

// colours are for the beginnings of lines: warnings, errors, and where the result is.
var colours = strings.NewReplacer("\nwarning:", "\n\x1b[33mwarning:\x1b[0m",
	"\nposttrain:", "\n\x1b[31mposttrain:\x1b[0m", "\nModel:", "\n\x1b[32mModel:\x1b[0m",
	"\nAdapter:", "\n\x1b[32mAdapter:\x1b[0m")

// colour colours the beginnings of lines, unless NO_COLOR is set.
func colour(text string) string {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	return colours.Replace("\n" + text)[1:]
}
