package eval

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Template is a prompt with fields such as {question}, as benchmarks write theirs; {{ and }} are braces.
type Template string

// Check wants every field in must, and allows those in may.
func (t Template) Check(must, may []string) error {
	known := append(slices.Clone(must), may...)
	var found []string
	err := t.walk(func(name string) error {
		if found = append(found, name); slices.Contains(known, name) {
			return nil
		}
		return fmt.Errorf("{%s} is no field: want {%s} (a brace is written {{)", name, strings.Join(known, "}, {"))
	}, func(string) {})
	for _, name := range must {
		if err == nil && !slices.Contains(found, name) {
			err = fmt.Errorf("there is no {%s} in it: want {%s}", name, strings.Join(must, "}, {"))
		}
	}
	return err
}

// Fill puts values in the place of the fields, each of which has one: see Check.
func (t Template) Fill(values map[string]string) string {
	var b strings.Builder
	write := func(text string) { b.WriteString(text) }
	_ = t.walk(func(name string) error { write(values[name]); return nil }, write)
	return b.String()
}

// walk visits the fields and the texts between them in turn.
func (t Template) walk(field func(name string) error, text func(string)) error {
	for rest := string(t); ; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			text(rest)
			return nil
		}
		text(rest[:i])
		brace, next := rest[i:i+1], rest[i+1:]
		if strings.HasPrefix(next, brace) {
			text(brace)
			rest = next[1:]
			continue
		}
		name, after, closed := strings.Cut(next, "}")
		if brace == "}" || !closed {
			return fmt.Errorf("a brace without its other one: %q (a brace is written {{ or }})",
				data.OneLine(rest[i:], 30))
		}
		if err := field(name); err != nil {
			return err
		}
		rest = after
	}
}
