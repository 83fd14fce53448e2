package config

import (
	"reflect"
	"slices"
	"strings"
)

// schema lists the keys of a command's configuration, read from its struct's yaml tags.
type schema struct {
	command  string
	leaves   []leaf
	sections []string // "data", "loss", "train"
}

// leaf is one option: its dotted key and where it lives in the struct.
type leaf struct {
	key   string
	index []int // for reflect.Value.FieldByIndex
	kind  reflect.Type
}

func schemaOf(command string, config any) *schema {
	s := &schema{command: command}
	s.walk(reflect.TypeOf(config), "", nil)
	return s
}

// schemaFor is the schema of a command.
func schemaFor(command string) *schema {
	switch command {
	case CommandSFT:
		s := schemaOf(CommandSFT, SFT{})
		// A demonstration has one answer: nothing to share its prompt with.
		s.leaves = slices.DeleteFunc(s.leaves, func(l leaf) bool { return l.key == "train.share_prefix" })
		return s
	case CommandCIRL:
		return schemaOf(CommandCIRL, CIRL{})
	case CommandPrivacyLens:
		return schemaOf(CommandPrivacyLens, PrivacyLens{})
	}
	return schemaOf(CommandMappo, Mappo{})
}

// commands are all that have a configuration.
var commands = []string{CommandMappo, CommandSFT, CommandCIRL, CommandPrivacyLens}

// othersWith names the other commands that have a key, as a user writes them.
func (s *schema) othersWith(key string) (names []string) {
	for _, c := range commands {
		if c != s.command && schemaFor(c).has(key) {
			names = append(names, "`posttrain "+c+"`")
		}
	}
	return names
}

func (s *schema) walk(t reflect.Type, prefix string, index []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(append([]int(nil), index...), i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			s.walk(f.Type, prefix, at)
		case f.Type.Kind() == reflect.Struct:
			s.sections = append(s.sections, prefix+name)
			s.walk(f.Type, prefix+name+".", at)
		default:
			s.leaves = append(s.leaves, leaf{prefix + name, at, f.Type})
		}
	}
}

func (s *schema) keys() []string {
	var keys []string
	for _, l := range s.leaves {
		keys = append(keys, l.key)
	}
	return append(keys, s.sections...)
}

// has says that a key, or a section, exists.
func (s *schema) has(key string) bool {
	for _, k := range s.keys() {
		if k == key {
			return true
		}
	}
	return false
}

func (s *schema) isSection(key string) bool {
	for _, k := range s.sections {
		if k == key {
			return true
		}
	}
	return false
}

// within lists the last words of the keys of a section ("loss"; "" is the top).
func (s *schema) within(name string) []string {
	prefix := ""
	if name != "" {
		prefix = name + "."
	}
	var words []string
	for _, k := range s.keys() {
		if rest, ok := strings.CutPrefix(k, prefix); ok && !strings.Contains(rest, ".") {
			words = append(words, rest)
		}
	}
	return words
}

// siblings are the keys that stand where a key does, or the top ones where its section does not exist.
func (s *schema) siblings(key string) []string {
	if words := s.within(strings.TrimSuffix(section(key), ".")); words != nil {
		return words
	}
	return s.within("")
}
