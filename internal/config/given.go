package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// Given holds the values that the user gave, by key, and collects faults. In a section the keys are the section's own:
// "dtype" is train.dtype.
type Given struct {
	*reading
	prefix string // of the section's keys: "train."; "": the top
}

// reading is what one call of Load has read, of all sections.
type reading struct {
	name    string // of the file, for messages; "" without one
	command string
	schema  *schema
	flags   []Flag
	options any              // all of them, a pointer
	like    []string         // commands whose files count as this one's
	other   Command          // the one of them that the file is for, nil: this one
	values  map[string]given // by dotted key
	bad     map[string]bool  // keys whose value already has a fault
	faults  Faults
}

// In is the part of a section, whose keys begin with prefix.
func (g *Given) In(prefix string) *Given { return &Given{g.reading, g.prefix + prefix} }

// Has says that a key is given.
func (g *Given) Has(key string) bool {
	_, ok := g.values[g.prefix+key]
	return ok
}

// Text is a given value as text, "" where the key is not given.
func (g *Given) Text(key string) string { return g.values[g.prefix+key].text }

// Show is a given value as messages show it.
func (g *Given) Show(key string) string { return g.values[g.prefix+key].show() }

// FromCommandLine says that a flag or --set gives a key.
func (g *Given) FromCommandLine(key string) bool {
	return g.values[g.prefix+key].form == formRaw && g.Has(key)
}

// Drop forgets a given value.
func (g *Given) Drop(key string) { delete(g.values, g.prefix+key) }

// Keys are all keys of the command, in the order of its options.
func (g *Given) Keys() (keys []string) {
	for _, l := range g.schema.leaves {
		keys = append(keys, l.key)
	}
	return keys
}

// Bad says that a key has a fault already.
func (g *Given) Bad(key string) bool { return g.bad[g.prefix+key] }

func (g *reading) err() error {
	if len(g.faults) == 0 {
		return nil
	}
	return sortFaults(g.faults)
}

// fault adds a fault of the file, of its line where one is known.
func (g *reading) fault(line int, format string, args ...any) {
	place := g.name
	if line > 0 {
		place = fmt.Sprintf("%s:%d", g.name, line)
	} else {
		line = noLine
	}
	g.faults = append(g.faults, Fault{place, fmt.Sprintf(format, args...), line})
}

// Fault adds a fault of a key, at the place where that was given. A key has one fault at most.
func (g *Given) Fault(key, format string, args ...any) {
	key = g.prefix + key
	if g.bad[key] {
		return
	}
	g.bad[key] = true
	v, ok := g.values[key]
	if !ok {
		v.place = g.dirOf(key)
	}
	line := v.line
	if line == 0 {
		line = noLine
	}
	g.faults = append(g.faults, Fault{v.place, fmt.Sprintf(format, args...), line})
}

// Key is the whole key of one of a section.
func (g *Given) Key(key string) string { return g.prefix + key }

// Refuse is Fault in the usual form: the key and its value, then the problem.
func (g *Given) Refuse(key string, value any, format string, args ...any) {
	g.Fault(key, "%s%s %v: %s", g.prefix, key, value, fmt.Sprintf(format, args...))
}

// dirOf is where a missing key should be given: in the file, or on the command line if there is no file.
func (g *reading) dirOf(key string) string {
	if g.name != "" {
		return g.name
	}
	for _, f := range g.flags {
		if f.Key == key {
			return "--" + f.Name
		}
	}
	return "--set"
}

// parse reads the file's text. It is false when nothing more can be said about the file.
func (g *Given) parse(text []byte) bool {
	file, err := syntax(text)
	if err != nil {
		g.faultSyntax(err)
		return false
	}
	if len(file.Docs) == 0 || len(file.Docs) == 1 && file.Docs[0].Body == nil {
		g.fault(0, "the file is empty: want command: %s and what it needs", g.command)
		return false
	}
	if len(file.Docs) > 1 {
		g.fault(0, "%d documents divided by ---: want one", len(file.Docs))
		return false
	}
	top := pairs(file.Docs[0].Body)
	if top == nil {
		g.fault(1, "%s: want keys and values, such as command: %s", valueOf(file.Docs[0].Body).show(), g.command)
		return false
	}
	if !g.checkCommand(top) {
		return false
	}
	g.walk(top, "", map[string]int{})
	return true
}

// The bounds of a config. The parser takes some hundred bytes of memory for each of the text, time that grows with the
// square of the keys of a section, and calls itself for each level.
const (
	maxBytes = 256 << 10
	maxKeys  = 5000 // colons, and line ends
	maxDepth = 64
)

// Open is the text of a config file, or its beginning where it is longer than a config may be.
func Open(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxBytes+1))
}

// CheckBounds wants a text that the parser can take: not too long, and not nested too deep by brackets or indentation.
func CheckBounds(text []byte) error {
	if len(text) > maxBytes {
		return fmt.Errorf("longer than %d KiB: want a config", maxBytes>>10)
	}
	for _, sign := range []string{":", "\n", "\r"} {
		if bytes.Count(text, []byte(sign)) > maxKeys {
			return fmt.Errorf("more than %d lines or keys: want a config", maxKeys)
		}
	}
	depth := 0
	for i, line := range bytes.Split(text, []byte("\n")) {
		for _, c := range line {
			switch c {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(0, depth-1)
			}
		}
		if indent := len(line) - len(bytes.TrimLeft(line, " \t-?:!&*")); depth > maxDepth || indent > 4*maxDepth {
			return fmt.Errorf("line %d nests more than %d deep", i+1, maxDepth)
		}
	}
	return nil
}

// syntax parses YAML; the parser must not take the program down with it.
func syntax(text []byte) (file *ast.File, err error) {
	if err := CheckBounds(text); err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
}

func (g *Given) faultSyntax(err error) {
	if e, ok := errors.AsType[*yaml.SyntaxError](err); ok && e.Token != nil && e.Token.Position != nil {
		g.fault(e.Token.Position.Line, "not YAML: %s", oneLine(e.Message))
		return
	}
	g.fault(0, "not YAML: %s", oneLine(err.Error()))
}

// pairs are a mapping's keys and values, nil if the node is no mapping.
func pairs(node ast.Node) []*ast.MappingValueNode {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	case *ast.AnchorNode:
		return pairs(n.Value)
	}
	return nil
}

func keyOf(p *ast.MappingValueNode) (key string, line int) {
	if t := p.Key.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	if s, ok := p.Key.(*ast.StringNode); ok {
		return s.Value, line
	}
	return oneLine(p.Key.String()), line
}

// checkCommand wants the file to be for this command. It is false for the file of another: its other keys would all be
// faults.
func (g *Given) checkCommand(top []*ast.MappingValueNode) bool {
	for _, p := range top {
		key, line := keyOf(p)
		if key != commandKey {
			continue
		}
		switch v := valueOf(p.Value); {
		case v.text == g.command:
		case slices.Contains(g.like, v.text) && Find(v.text) != nil:
			g.other = Find(v.text)
		case Find(v.text) != nil:
			g.fault(line, "is a config for `posttrain %s`, not %s", v.text, g.command)
			return false
		default:
			g.fault(line, "command %s: want %s", v.show(), g.command)
		}
		return true
	}
	g.fault(0, "command is missing: want command: %s, the command that the file is for", g.command)
	return true
}

// walk collects the values of a mapping whose keys begin with prefix; lines has the line where each key came first.
func (g *Given) walk(mapping []*ast.MappingValueNode, prefix string, lines map[string]int) {
	for _, p := range mapping {
		word, line := keyOf(p)
		key := prefix + word
		if first, twice := lines[key]; twice {
			g.fault(line, "%s is given again: line %d has it already", key, first)
			continue
		}
		lines[key] = line
		if g.other != nil && !g.schema.has(key) && g.other.HasKey(key) {
			continue
		}
		switch {
		case g.schema.isSection(key):
			g.enter(p.Value, key, line, lines)
		case !g.schema.has(key) || strings.Contains(word, "."):
			g.fault(line, "%s", g.schema.unknownKey(key, g.command))
		case key != commandKey:
			v := valueOf(p.Value)
			v.place, v.line = fmt.Sprintf("%s:%d", g.name, line), line
			g.values[key] = v
		}
	}
}

// enter walks a section, which may be empty.
func (g *Given) enter(node ast.Node, key string, line int, lines map[string]int) {
	inner := pairs(node)
	if inner == nil && valueOf(node).form != formNull && !emptyMapping(node) {
		g.fault(line, "%s %s: want a section with %s", key, valueOf(node).show(), fault.Or(g.schema.within(key)))
		return
	}
	g.walk(inner, key+".", lines)
}

func emptyMapping(node ast.Node) bool {
	m, ok := node.(*ast.MappingNode)
	return ok && len(m.Values) == 0
}

// override puts the overrides in the place of what the file gives.
func (g *Given) override(overrides []Override) {
	for _, o := range overrides {
		wrong := func(format string, args ...any) {
			g.faults = append(g.faults, Fault{o.Flag, fmt.Sprintf(format, args...), noLine})
		}
		switch {
		case g.schema.isSection(o.Key):
			wrong("%s is a section: set one of its keys, such as %s.%s", o.Key, o.Key, g.schema.within(o.Key)[0])
		case o.Key == commandKey:
			wrong("command cannot be set: it says which command the file is for")
		case !g.schema.has(o.Key):
			wrong("%s", g.schema.unknownKey(o.Key, g.command))
		case o.Exact != nil:
			g.values[o.Key] = exactly(o)
		case o.Value == "" && o.Off != "" && g.Text(o.Key) != o.Off: // a switch that is off takes nothing else back
		case o.Value == "":
			delete(g.values, o.Key)
		default:
			v := given{place: o.Flag, form: formRaw, text: o.Value}
			if was, has := g.values[o.Key]; has && was.form != formRaw {
				v.file = &was.text
			}
			g.values[o.Key] = v
		}
	}
}

// Changed says that a flag or --set gives a key another value than the file, or than it has by default.
func (g *Given) Changed(key, byDefault string) bool {
	v := g.values[g.prefix+key]
	if v.file != nil {
		byDefault = *v.file
	}
	return g.FromCommandLine(key) && v.text != byDefault
}

// decode writes the given values over options.
func (g *Given) decode(options any) {
	top := reflect.ValueOf(options).Elem()
	for _, l := range g.schema.leaves {
		v, ok := g.values[l.key]
		if !ok || l.index == nil {
			continue
		}
		if !v.assign(top.FieldByIndex(l.index)) || !l.rule.Free && !v.printable() {
			g.Fault(l.key, "%s %s: want %s", l.key, v.show(), l.rule.Words)
		}
	}
}

// hold compares every option with its rule.
func (g *Given) hold(options any) {
	top := reflect.ValueOf(options).Elem()
	for _, l := range g.schema.leaves {
		if l.index == nil || l.rule.Accepts(top.FieldByIndex(l.index)) {
			continue
		}
		v, ok := g.values[l.key]
		switch {
		case !ok && top.FieldByIndex(l.index).IsZero():
			g.Fault(l.key, "%s is missing: want %s", l.key, l.rule.Words)
		case !ok && !l.rule.Secret:
			g.Fault(l.key, "%s %v: want %s", l.key, top.FieldByIndex(l.index), l.rule.Words)
		case l.rule.Secret:
			g.Fault(l.key, "%s …: want %s", l.key, l.rule.Words)
		default:
			g.Fault(l.key, "%s %s: want %s", l.key, v.show(), l.rule.Words)
		}
	}
}

// Take takes over faults that a section finds in itself.
func (g *Given) Take(faults ...fault.Fault) {
	for _, f := range faults {
		key, text := g.prefix+f.Key, g.prefix+f.Error()
		if !g.schema.has(key) {
			continue // a key that this command does not have
		}
		if strings.HasSuffix(text, "; remove it") && g.values[key].form != formRaw {
			text += fmt.Sprintf(" (for one run: --set %s=)", key)
		}
		g.Fault(f.Key, "%s", text)
	}
}
