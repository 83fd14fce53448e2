package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml"
)

// A Spec says how the configuration of a command is read into its options, a struct whose tags name the keys, their
// defaults and the values that they accept, and whose methods say what follows from several keys (methods.go).
type Spec[T any] struct {
	Command string // what the key command says: "mappo"

	// QuickStart gives the file that is read where the user names none, with its name; text nil: every key's default.
	QuickStart func(overrides []Override) (name string, text []byte)
	Without    []string // keys of T that the command does not have
	Like       []string // commands whose files it takes too, where keys that it lacks have no effect
}

// Input is what the user gave.
type Input struct {
	Path      string     // of the file; "": the quick start
	Overrides []Override // from the command line
	Flags     []Flag     // of the command, for messages about keys that are missing
	Allow     Grants     // what the file may have done
}

// Load reads a configuration. The error is a [Faults] where the file can be read and something is wrong with it.
func (s *Spec[T]) Load(in Input) (*T, error) {
	name, text := in.Path, []byte(nil)
	if in.Path != "" {
		var err error
		if text, err = Open(in.Path); err != nil {
			return nil, err
		}
	} else if s.QuickStart != nil {
		name, text = s.QuickStart(in.Overrides)
	}
	if text == nil {
		name, text = "", []byte("command: "+s.Command)
	}
	return s.Parse(name, text, in)
}

// Parse is Load of a text; name is the file's name in messages, "" if there is only the command line.
func (s *Spec[T]) Parse(name string, text []byte, in Input) (*T, error) {
	g := s.given(name)
	g.flags, g.like = in.Flags, s.Like
	if !g.parse(text) {
		return nil, g.err()
	}
	g.override(in.Overrides)
	c := s.defaults(g)
	g.decode(c)
	g.eachSection(c, (*Given).resolve)
	if err := s.check(g, c); err != nil {
		return nil, err
	}
	if err := s.permit(g, c, in.Allow); err != nil {
		return nil, err
	}
	return c, nil
}

// Defaults are the options where nothing is given.
func (s *Spec[T]) Defaults() T { return *s.defaults(s.given("")) }

// defaults are the options before the given values are written over them.
func (s *Spec[T]) defaults(g *Given) *T {
	c := Default[T]()
	g.eachSection(&c, (*Given).changeDefaults)
	return &c
}

// given has no values yet; name is the file's, for messages.
func (s *Spec[T]) given(name string) *Given {
	return &Given{&reading{name: name, command: s.Command, schema: s.schema(), values: map[string]given{},
		bad: map[string]bool{}}, ""}
}

// Verify checks options that a program made, as Load checks a user's.
func (s *Spec[T]) Verify(c *T) error { return s.check(s.given("options"), c) }

func (s *Spec[T]) check(g *Given, c *T) error {
	g.hold(c)
	g.eachSection(c, (*Given).validate)
	return g.err()
}

// Resolve writes every option in force as YAML, which loads to the same value.
func (s *Spec[T]) Resolve(c *T) []byte {
	idle := s.given("").idleKeys(c)
	tree := yaml.MapSlice{{Key: "command", Value: s.Command}}
	values := reflect.ValueOf(c).Elem()
	for _, l := range s.schema().leaves {
		v := values.FieldByIndex(l.index)
		_, none := idle.reason(l.key)
		if l.key == commandKey || none || l.omitEmpty && v.IsZero() {
			continue
		}
		tree = insert(tree, strings.Split(l.key, "."), plainText(v))
	}
	text, err := yaml.Marshal(tree)
	if err != nil {
		panic(fmt.Errorf("config: %w", err)) // plain structs of words and numbers
	}
	return text
}

// plainText quotes texts with line ends or other characters that do not print, in lists, too: YAML's plain form
// would lose \r, tabs, and blanks at the end of a line.
func plainText(v reflect.Value) any {
	text := reflect.Indirect(v)
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case text.Kind() == reflect.String && strings.ContainsFunc(text.String(), odd):
		return quoted(text.String())
	case text.Kind() == reflect.Slice && text.Type().Elem().Kind() == reflect.String:
		items := make([]any, text.Len())
		for i := range items {
			items[i] = plainText(text.Index(i))
		}
		if slices.ContainsFunc(items, func(item any) bool { _, is := item.(quoted); return is }) {
			return items
		}
	}
	return v.Interface()
}

type quoted string

// MarshalYAML uses Go's quotes, whose escapes are YAML's, too.
func (q quoted) MarshalYAML() ([]byte, error) { return []byte(strconv.Quote(string(q))), nil }

// insert adds a value to a tree at a path; the sections of a schema are contiguous.
func insert(tree yaml.MapSlice, path []string, value any) yaml.MapSlice {
	if len(path) == 1 {
		return append(tree, yaml.MapItem{Key: path[0], Value: value})
	}
	if n := len(tree); n == 0 || tree[n-1].Key != path[0] {
		tree = append(tree, yaml.MapItem{Key: path[0], Value: yaml.MapSlice(nil)})
	}
	section := &tree[len(tree)-1]
	section.Value = insert(section.Value.(yaml.MapSlice), path[1:], value)
	return tree
}

// Departures are the keys whose values are not the paper's, as the tags paper name it: Was is the paper's value.
func (s *Spec[T]) Departures(c *T) (all []Change) {
	for _, l := range s.schema().leaves {
		if was, now := l.departure(reflect.ValueOf(c).Elem()); was != now {
			all = append(all, Change{l.key, was, now})
		}
	}
	return all
}

// departure is the paper's value of the option beside that in options; both are "" where the paper has none.
func (l leaf) departure(options reflect.Value) (paper, value string) {
	if l.paper == nil {
		return "", ""
	}
	have := options.FieldByIndex(l.index)
	want := reflect.New(have.Type()).Elem()
	write(want, l.key, *l.paper)
	return l.text(want), l.text(have)
}

// text is the text of the option's value, as Diff has it.
func (l leaf) text(v reflect.Value) string {
	switch {
	case l.omitEmpty && v.IsZero():
		return "not given"
	case v.Kind() == reflect.Slice:
		return fmt.Sprintf("%q", v)
	}
	return plainValue(reflect.Indirect(v).Interface())
}

// schema has the keys of T and the key command, less the keys that the command does not have.
func (s *Spec[T]) schema() *schema { return schemaOf(reflect.TypeFor[T](), s.Without) }

// A Command is a registered Spec of whatever options.
type Command interface {
	Name() string
	HasKey(key string) bool
	Read(Input) (any, error) // a pointer to the options
	Table() []Key
}

func (s *Spec[T]) Name() string               { return s.Command }
func (s *Spec[T]) HasKey(key string) bool     { return s.schema().has(key) }
func (s *Spec[T]) Read(in Input) (any, error) { return s.Load(in) }

// Flags are the flags that the tags of T describe (see flagOf), with their defaults.
func (s *Spec[T]) Flags() (all []Flag) {
	defaults := reflect.ValueOf(s.Defaults())
	for _, l := range s.schema().leaves {
		if l.flag.Name == "" {
			continue
		}
		f := l.flag
		f.Help = l.about()
		if v := reflect.Indirect(defaults.FieldByIndex(l.index)); v.IsValid() && !v.IsZero() && f.Value == "" {
			f.Help += fmt.Sprintf(" (default %s)", l.byDefault(v))
		}
		all = append(all, f)
	}
	return all
}

// TypeOf names the type of a key's value as a help text does: bool, int, uint, float, duration, strings, numbers or
// string.
func (s *Spec[T]) TypeOf(key string) string {
	for _, l := range s.schema().leaves {
		if l.key == key && l.index != nil {
			return typeName(reflect.TypeFor[T]().FieldByIndex(l.index).Type)
		}
	}
	return "string"
}

func typeName(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return typeName(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.String:
		return "numbers"
	case t.Kind() == reflect.Slice:
		return "strings"
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	}
	return strings.TrimSuffix(t.Kind().String(), "64")
}

// commands are the registered ones.
var commands []Command

// Register makes a command known to the messages of all others, and to [Find]. Call it while packages initialise.
func Register[T any](s *Spec[T]) *Spec[T] {
	commands = append(commands, s)
	return s
}

// Find gives a registered command, nil if there is no command of that name.
func Find(name string) Command {
	for _, c := range commands {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// An Explainer says in words what its options put in force.
type Explainer interface{ Explain() string }

// CommandOf gives the command that a file says it is for, "" where it does not say so.
func CommandOf(text []byte) string {
	file, err := syntax(text)
	if err != nil || len(file.Docs) == 0 {
		return ""
	}
	for _, p := range pairs(file.Docs[0].Body) {
		if key, _ := keyOf(p); key == commandKey {
			return valueOf(p.Value).text
		}
	}
	return ""
}
