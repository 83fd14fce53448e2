package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// commandKey is the key that every file has: the command that it is for.
const commandKey = "command"

// schema lists the keys of a command's configuration, read from the yaml tags of its options.
type schema struct {
	leaves   []leaf
	sections []string // "data", "loss", "train"
}

// leaf is one option: its dotted key and where it lives in the struct.
type leaf struct {
	key       string
	index     []int // for reflect.Value.FieldByIndex; nil for the key command
	rule      fault.Constraint
	omitEmpty bool // a zero value is left out of what Resolve writes
	flag      Flag // that sets the key; without a name: none
	help      string
	paper     *string // the paper's value; nil: it has none
	needs     string  // see Grants; "": nothing
	chosen    string  // what follows from the data where nobody gives the key, %v: the default; "": the default
}

// about is the help of the key. The accepted values follow a help that ends in a colon.
func (l leaf) about() string {
	if strings.HasSuffix(l.help, ":") {
		return l.help + " " + l.rule.Words
	}
	return l.help
}

// byDefault is the key's default in words.
func (l leaf) byDefault(v reflect.Value) string {
	return strings.ReplaceAll(cmp.Or(l.chosen, "%v"), "%v", fmt.Sprint(v))
}

// field is what the yaml tag of a struct's field says.
type field struct {
	key             string // "": it is no option
	section, inline bool
}

func fields(t reflect.Type) []field {
	all := make([]field, t.NumField())
	for i := range all {
		f := t.Field(i)
		name, kind, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if all[i].inline = kind == "inline"; name != "-" {
			all[i].key, all[i].section = name, f.Type.Kind() == reflect.Struct
		}
	}
	return all
}

// flagOf reads the tags flag and help of a field. before is what the sections that the field is in put before the
// name. A flag is written as its name, as name=value where it is a switch that sets the key to the value, and as
// name,exact where blanks and commas of its value count.
func flagOf(field reflect.StructField, key, before string) Flag {
	name, exact := strings.CutSuffix(field.Tag.Get("flag"), ",exact")
	if name == "" || before == "-" {
		return Flag{}
	}
	name, value, _ := strings.Cut(name, "=")
	return Flag{Name: before + name, Key: key, Help: field.Tag.Get("help"), Exact: exact, Value: value}
}

// schemas are those that schemaOf has read: every flag of every command asks for one.
var schemas sync.Map // of schemaKey to *schema

// schemaKey is what a schema depends on.
type schemaKey struct {
	options reflect.Type
	without string
}

// schemaOf is the schema of options, which nobody changes.
func schemaOf(options reflect.Type, without []string) *schema {
	key := schemaKey{options, strings.Join(without, " ")}
	if known, ok := schemas.Load(key); ok {
		return known.(*schema)
	}
	s := &schema{leaves: []leaf{{key: commandKey}}}
	s.walk(options, "", "", nil)
	s.leaves = slices.DeleteFunc(s.leaves, func(l leaf) bool { return slices.Contains(without, l.key) })
	s.sections = slices.DeleteFunc(s.sections, s.isEmpty)
	schemas.Store(key, s)
	return s
}

// walk adds the fields of a struct. The tag flags of a section is what it puts before the names of its flags; "-" takes
// them away, and "base_url=judge-base-url" names the only ones. Its tag paper has the paper's values of keys within it:
// "batch_size=128 learning_rate=5e-7".
func (s *schema) walk(t reflect.Type, prefix, flags string, index []int) {
	for i, known := range fields(t) {
		f, at, key := t.Field(i), append(slices.Clone(index), i), prefix+known.key
		switch {
		case known.section:
			before, inner := flags+f.Tag.Get("flags"), prefix
			if own := f.Tag.Get("flags"); own == "-" || flags == "-" || strings.Contains(own, "=") {
				before = "-"
			}
			if !known.inline {
				s.sections, inner = append(s.sections, key), key+"."
			}
			from := len(s.leaves)
			s.walk(f.Type, inner, before, at)
			s.publish(s.leaves[from:], inner, f.Tag.Get("paper"))
			if flags != "-" {
				s.nameFlags(s.leaves[from:], inner, f.Tag.Get("flags"))
			}
		case known.key != "":
			_, kind, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			var paper *string
			if value, has := f.Tag.Lookup("paper"); has {
				paper = &value
			}
			s.leaves = append(s.leaves, leaf{key, at, fault.ConstraintOf(f), kind == "omitempty", flagOf(f, key, flags),
				f.Tag.Get("help"), paper, f.Tag.Get("needs"), f.Tag.Get("chosen")})
		}
	}
}

// nameFlags gives leaves of a section the flags that its tag names: "base_url=judge-base-url".
func (s *schema) nameFlags(leaves []leaf, prefix, names string) {
	for i, l := range leaves {
		if name, has := fieldOf(names, strings.TrimPrefix(l.key, prefix)); has {
			leaves[i].flag = Flag{Name: name, Key: l.key, Help: l.help}
		}
	}
}

// publish gives leaves of a section the paper's values.
func (s *schema) publish(leaves []leaf, prefix, values string) {
	for _, word := range strings.Fields(values) {
		key, value, _ := strings.Cut(word, "=")
		for i := range leaves {
			if leaves[i].key == prefix+key {
				leaves[i].paper = &value
			}
		}
	}
}

// isEmpty says that a section has no leaf, at any depth.
func (s *schema) isEmpty(section string) bool {
	return !slices.ContainsFunc(s.leaves, func(l leaf) bool { return strings.HasPrefix(l.key+".", section+".") })
}

func (s *schema) keys() []string {
	var keys []string
	for _, l := range s.leaves {
		keys = append(keys, l.key)
	}
	return append(keys, s.sections...)
}

// has says that a key, or a section, exists.
func (s *schema) has(key string) bool { return slices.Contains(s.keys(), key) }

func (s *schema) isSection(key string) bool { return slices.Contains(s.sections, key) }

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

// siblings are the keys of the section that a key is in, or the top ones where that section does not exist.
func (s *schema) siblings(key string) []string {
	if words := s.within(strings.TrimSuffix(section(key), ".")); words != nil {
		return words
	}
	return s.within("")
}

// unknownKey says what to write instead of a key that does not exist.
func (s *schema) unknownKey(key, command string) string {
	text := fmt.Sprintf("unknown key %q: ", key)
	if s.has(key) {
		return text + fmt.Sprintf("write %s within the section %s", last(key), strings.TrimSuffix(section(key), "."))
	}
	if others := commandsWith(key, command); len(others) > 0 {
		return text + fmt.Sprintf("only %s %s it", fault.And(others),
			map[bool]string{true: "has", false: "have"}[len(others) == 1])
	}
	if best := Nearest(key, s.keys()); best != "" {
		return text + "did you mean " + best + "?"
	}
	return text + "want " + fault.Or(s.siblings(key))
}

// commandsWith names the commands other than one that have a key, as a user writes them.
func commandsWith(key, command string) (names []string) {
	for _, c := range commands {
		if c.Name() != command && c.HasKey(key) {
			names = append(names, "`posttrain "+c.Name()+"`")
		}
	}
	slices.Sort(names)
	return names
}

// Nearest is the key that a misspelt one most likely meant, "" if none is near. Of keys that are equally near, it is
// the one in the nearest section. The same last word in another section counts as near.
func Nearest(key string, keys []string) string {
	best, least, apart := "", 1+len(last(key))/3, 0
	for _, candidate := range keys {
		d, away := distance(last(key), last(candidate)), sectionsApart(key, candidate)
		if away > 0 {
			d++
		}
		if d < least || d == least && (best == "" || away < apart) {
			best, least, apart = candidate, d, away
		}
	}
	return best
}

// sectionsApart is 0 for keys of one section, and 1 where one key's section has the other's.
func sectionsApart(a, b string) int {
	a, b = section(a), section(b)
	switch {
	case a == b:
		return 0
	case a != "" && b != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)):
		return 1
	}
	return distance(a, b)
}

// last is the last word of a dotted key, section what comes before it.
func last(key string) string { return key[strings.LastIndex(key, ".")+1:] }

func section(key string) string { return key[:strings.LastIndex(key, ".")+1] }

// distance is the number of letters to insert, delete or replace between two words.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		next := make([]int, len(y)+1)
		next[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
		}
		row = next
	}
	return row[len(y)]
}
