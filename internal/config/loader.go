package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// loader turns one file and its overrides into a configuration, gathering faults on the way.
type loader struct {
	name   string // of the file, for messages; "" where there is none
	schema *schema
	given  map[string]given // by dotted key
	bad    map[string]bool  // keys whose value already has a fault
	faults []Fault
}

func newLoader(name string, schema *schema) *loader {
	return &loader{name: name, schema: schema, given: map[string]given{}, bad: map[string]bool{}}
}

func (l *loader) has(key string) bool {
	_, ok := l.given[key]
	return ok
}

// above0 says that a whole number above 0 is given.
func (l *loader) above0(key string) bool {
	var n int64
	g, ok := l.given[key]
	return ok && g.assign(reflect.ValueOf(&n).Elem()) && n > 0
}

func (l *loader) err() error {
	if len(l.faults) == 0 {
		return nil
	}
	return sorted(l.faults)
}

const noLine = 1 << 30 // sorts after every line

// fault adds a fault of the file, of its line where one is known.
func (l *loader) fault(line int, format string, args ...any) {
	place := l.name
	if line > 0 {
		place = fmt.Sprintf("%s:%d", l.name, line)
	} else {
		line = noLine
	}
	l.faults = append(l.faults, Fault{place, fmt.Sprintf(format, args...), line})
}

// faultOf adds a fault of a key's value, where that was given. A key has one fault at most.
func (l *loader) faultOf(key, format string, args ...any) {
	if l.bad[key] {
		return
	}
	l.bad[key] = true
	g, ok := l.given[key]
	if !ok {
		g.place = l.placeOf(key)
	}
	line := g.line
	if line == 0 {
		line = noLine
	}
	l.faults = append(l.faults, Fault{g.place, fmt.Sprintf(format, args...), line})
}

// placeOf is where a key that nobody gave should stand: in the file, or on the command line where there is no file.
func (l *loader) placeOf(key string) string {
	if l.name != "" {
		return l.name
	}
	for _, f := range Flags(l.schema.command) {
		if f.Key == key {
			return "--" + f.Name
		}
	}
	return "--set"
}

// parse reads the file's text. It is false when nothing more can be said about the file.
func (l *loader) parse(text []byte) bool {
	file, err := syntax(text)
	if err != nil {
		l.faultSyntax(err)
		return false
	}
	if len(file.Docs) == 0 || len(file.Docs) == 1 && file.Docs[0].Body == nil {
		l.fault(0, "the file is empty: want command: %s and what it needs", l.schema.command)
		return false
	}
	if len(file.Docs) > 1 {
		l.fault(0, "%d documents divided by ---: want one", len(file.Docs))
		return false
	}
	top := pairs(file.Docs[0].Body)
	if top == nil {
		l.fault(1, "%s: want keys and values, such as command: %s", valueOf(file.Docs[0].Body).show(), l.schema.command)
		return false
	}
	if !l.forThisCommand(top) {
		return false
	}
	l.walk(top, "", map[string]int{})
	return true
}

// syntax parses YAML; the parser must not take the program down with it.
func syntax(text []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
}

func (l *loader) faultSyntax(err error) {
	if e, ok := errors.AsType[*yaml.SyntaxError](err); ok && e.Token != nil && e.Token.Position != nil {
		l.fault(e.Token.Position.Line, "not YAML: %s", oneLine(e.Message))
		return
	}
	l.fault(0, "not YAML: %s", oneLine(err.Error()))
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

// forThisCommand is false for the file of another command: its other keys would all be faults.
func (l *loader) forThisCommand(top []*ast.MappingValueNode) bool {
	found := false
	for _, p := range top {
		if key, line := keyOf(p); key == "command" {
			found = true
			if other := valueOf(p.Value).text; other != l.schema.command && slices.Contains(commands, other) {
				l.fault(line, "is a config for `posttrain %s`, not %s", other, l.schema.command)
				return false
			}
		}
	}
	if !found {
		l.fault(0, "command is missing: want command: %s, the command that the file is for", l.schema.command)
	}
	return true
}

// walk gathers the values of a mapping whose keys begin with prefix; lines knows where each key stood first.
func (l *loader) walk(mapping []*ast.MappingValueNode, prefix string, lines map[string]int) {
	for _, p := range mapping {
		word, line := keyOf(p)
		key := prefix + word
		switch first, twice := lines[key]; {
		case twice:
			l.fault(line, "%s stands here again: it was given on line %d", key, first)
		case l.schema.isSection(key):
			lines[key] = line
			l.enter(p.Value, key, line, lines)
		case !l.schema.has(key) || strings.Contains(word, "."):
			lines[key] = line
			l.fault(line, "%s", unknown(key, l.schema))
		default:
			lines[key] = line
			g := valueOf(p.Value)
			g.place, g.line = fmt.Sprintf("%s:%d", l.name, line), line
			l.given[key] = g
		}
	}
}

// enter walks a section, which may be empty.
func (l *loader) enter(node ast.Node, key string, line int, lines map[string]int) {
	inner := pairs(node)
	if inner == nil && valueOf(node).form != formNull && !emptyMapping(node) {
		l.fault(line, "%s %s: want a section with %s", key, valueOf(node).show(), list(l.schema.within(key)))
		return
	}
	l.walk(inner, key+".", lines)
}

func emptyMapping(node ast.Node) bool {
	m, ok := node.(*ast.MappingNode)
	return ok && len(m.Values) == 0
}

// decode writes the given values over a configuration (a pointer to a struct of the schema).
func (l *loader) decode(config any) {
	top := reflect.ValueOf(config).Elem()
	for _, leaf := range l.schema.leaves {
		g, ok := l.given[leaf.key]
		if !ok {
			continue
		}
		if option := top.FieldByIndex(leaf.index); !g.assign(option) {
			l.faultOf(leaf.key, "%s %s: want %s", leaf.key, g.show(), rules[leaf.key].wants(leaf.kind))
		}
	}
}

// hold holds every value to its rule.
func (l *loader) hold(config any) {
	top := reflect.ValueOf(config).Elem()
	for _, leaf := range l.schema.leaves {
		r := rules[leaf.key]
		if v := top.FieldByIndex(leaf.index); r.ok != nil && !r.ok(v) {
			if g, given := l.given[leaf.key]; given {
				shown := g.show()
				if strings.HasSuffix(leaf.key, "_key_env") { // it may be the key itself
					shown = "…"
				}
				l.faultOf(leaf.key, "%s %s: want %s", leaf.key, shown, r.wants(leaf.kind))
			} else {
				l.faultOf(leaf.key, "%s is missing: want %s", leaf.key, r.wants(leaf.kind))
			}
		}
	}
}
