package config

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Reference describes every key of every registered command, as a document in Markdown. A key that an earlier command
// has in the same way is only named.
func Reference() string {
	var b strings.Builder
	seen := map[string]string{} // the command that a row was printed for
	all := slices.Clone(commands)
	slices.SortStableFunc(all, func(a, b Command) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, c := range all {
		fmt.Fprintf(&b, "\n## posttrain %s\n\n", c.Name())
		known := map[string][]string{}
		var rows []string
		for _, row := range c.rows() {
			if first, has := seen[row.text]; has {
				known[first] = append(known[first], "`"+row.key+"`")
				continue
			}
			seen[row.text] = c.Name()
			rows = append(rows, row.text)
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
type row struct{ key, text string }

func (s *Spec[T]) rows() (rows []row) {
	defaults := reflect.ValueOf(s.defaults(newGiven("", s.Command, s.schema(), nil)))
	for _, l := range s.schema().leaves {
		if l.index == nil {
			continue
		}
		value := ""
		if v := reflect.Indirect(defaults.FieldByIndex(l.index)); v.IsValid() && !v.IsZero() {
			value = fmt.Sprint(v)
		}
		about := l.about()
		if about == "" {
			about = l.rule.Words
		}
		flag := ""
		if l.flag.Name != "" {
			flag = "`--" + l.flag.Name + "`"
		}
		if paper, here := l.departure(defaults); paper != here {
			about += "; the paper: " + paper
		}
		text := fmt.Sprintf("| `%s` | %s | %s | %s |\n", l.key, value, flag, strings.ReplaceAll(about, "|", `\|`))
		rows = append(rows, row{l.key, text})
	}
	return rows
}

// Comment writes the comments of a command's config file anew: what stands above the first key stays, a key has the
// help of its tags behind it, and one without help keeps what the file says. Values and their order stay.
func (s *Spec[T]) Comment(text []byte) []byte {
	w := commenter{schema: s.schema()}
	for line := range strings.Lines(string(text)) {
		w.add(strings.TrimRight(line, " \n"))
	}
	return []byte(w.String())
}

// commenter takes the lines of a file.
type commenter struct {
	schema *schema
	lines  []commented
	path   []string // the sections that the last key is in, with itself
	begun  bool     // a key was there
}

// commented is a line: what stays of it, and its comment.
type commented struct{ text, comment string }

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
	case path != nil && (parts[2] == "" || w.begun && w.schema.has(key)):
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
func (w *commenter) helped() bool { return w.help(strings.Join(w.path, ".")) != "" }

func (w *commenter) help(key string) string {
	i := slices.IndexFunc(w.schema.leaves, func(l leaf) bool { return l.key == key })
	if i < 0 {
		return ""
	}
	return w.schema.leaves[i].about()
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
	if help := w.help(key); help != "" {
		c.comment = help
	}
	return c
}

// String aligns the comments, and breaks them at 120 columns.
func (w *commenter) String() string {
	const most, far = 120, 36
	column := 0
	for _, l := range w.lines {
		if n := utf8.RuneCountInString(l.text); l.comment != "" && n <= far {
			column = max(column, n+2)
		}
	}
	var b strings.Builder
	for _, l := range w.lines {
		b.WriteString(l.text)
		if l.comment == "" {
			b.WriteString("\n")
			continue
		}
		at := utf8.RuneCountInString(l.text)
		b.WriteString(strings.Repeat(" ", max(1, column-at)) + "#")
		at = max(at+1, column) + 1
		for _, word := range strings.Fields(l.comment) {
			if at+1+utf8.RuneCountInString(word) > most {
				b.WriteString("\n" + strings.Repeat(" ", column) + "#")
				at = column + 1
			}
			b.WriteString(" " + word)
			at += 1 + utf8.RuneCountInString(word)
		}
		b.WriteString("\n")
	}
	return b.String()
}
