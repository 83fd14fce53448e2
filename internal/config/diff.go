package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/posttrain/posttrain/internal/plain"
)

// A Change is a key with its values in two configurations, "not given" where one of them lacks it.
type Change struct{ Key, Was, Now string }

func (c Change) String() string { return fmt.Sprintf("%s: %s, now %s", c.Key, c.Was, c.Now) }

// Diff names the keys in which two resolved configurations differ, each with both values: "loss.beta: 0.1, now 0.2".
// a is the older one. It is empty when they say the same.
func Diff(a, b []byte) []string {
	changes, err := Changes(a, b)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, c := range changes {
		out = append(out, c.String())
	}
	return out
}

// Changes are the keys in which two configurations differ, in alphabetical order. a is the older one.
func Changes(a, b []byte) (changes []Change, err error) {
	was, err := flat(a)
	if err != nil {
		return nil, fmt.Errorf("the older configuration cannot be read: %s", oneLine(err.Error()))
	}
	now, err := flat(b)
	if err != nil {
		return nil, fmt.Errorf("the newer configuration cannot be read: %s", oneLine(err.Error()))
	}
	both := maps.Clone(was)
	maps.Copy(both, now)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		if x, y := valueText(was, key), valueText(now, key); x != y {
			changes = append(changes, Change{key, x, y})
		}
	}
	return changes, nil
}

func valueText(values map[string]string, key string) string {
	if v, ok := values[key]; ok {
		return v
	}
	return "not given"
}

// flat maps dotted keys to their values as text.
func flat(text []byte) (map[string]string, error) {
	file, err := syntax(text)
	if err != nil {
		return nil, err
	}
	for _, doc := range file.Docs {
		if doc.Body != nil && len(ast.Filter(ast.AliasType, doc.Body)) > 0 { // a few of them can name a great tree
			return nil, errors.New("it has aliases: want a config without")
		}
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	out := map[string]string{}
	flatten(tree, "", out)
	return out, nil
}

func flatten(tree map[string]any, prefix string, out map[string]string) {
	for key, value := range tree {
		key = plain.Line(key)
		switch v := value.(type) {
		case map[string]any:
			flatten(v, prefix+key+".", out)
		case string:
			out[prefix+key] = v
			if strings.ContainsFunc(v, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }) || v == "" {
				out[prefix+key] = fmt.Sprintf("%q", v)
			}
		default:
			out[prefix+key] = fmt.Sprint(v)
		}
	}
}
