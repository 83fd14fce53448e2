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

	"github.com/posttrain/posttrain/internal/config/fault"
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

// ValuesOf are the values of a resolved configuration as texts, by dotted key; a list has the texts of its items.
func ValuesOf(text []byte) (map[string][]string, error) {
	tree, err := treeOf(text)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	visit(tree, "", func(key string, value any) {
		list, is := value.([]any)
		if !is {
			list = []any{value}
		}
		for _, item := range list {
			out[key] = append(out[key], fmt.Sprint(item))
		}
	})
	return out, nil
}

// flat maps dotted keys to their values as text, in quotes where it is not plain.
func flat(text []byte) (map[string]string, error) {
	tree, err := treeOf(text)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	visit(tree, "", func(key string, value any) { out[key] = plainValue(value) })
	return out, nil
}

// plainValue is a value as text, each text of a list in its own quotes.
func plainValue(value any) string {
	odd := func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }
	switch v := value.(type) {
	case string:
		if v == "" || strings.ContainsFunc(v, odd) {
			return fmt.Sprintf("%q", v)
		}
	case []any:
		texts := make([]string, len(v))
		for i, item := range v {
			texts[i] = plainValue(item)
		}
		return "[" + strings.Join(texts, " ") + "]"
	}
	return fmt.Sprint(value)
}

func treeOf(text []byte) (tree map[string]any, err error) {
	file, err := syntax(text)
	if err != nil {
		return nil, err
	}
	for _, doc := range file.Docs {
		if doc.Body != nil && len(ast.Filter(ast.AliasType, doc.Body)) > 0 { // a few of them can name a great tree
			return nil, errors.New("it has aliases: want a config without")
		}
	}
	return tree, yaml.Unmarshal(text, &tree)
}

// visit hands on the values of a tree with their dotted keys, in any order.
func visit(tree map[string]any, prefix string, value func(key string, value any)) {
	for key, v := range tree {
		key = prefix + fault.Line(key)
		if inner, is := v.(map[string]any); is {
			visit(inner, key+".", value)
			continue
		}
		value(key, v)
	}
}
