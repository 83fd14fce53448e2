package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/goccy/go-yaml"
)

// Diff names the keys in which two resolved configurations differ, each with both values: "loss.beta: 0.1, now 0.2".
// a is the older one. It is empty when they say the same.
func Diff(a, b []byte) []string {
	was, err := flat(a)
	if err != nil {
		return []string{fmt.Sprintf("the older configuration cannot be read: %s", oneLine(err.Error()))}
	}
	now, err := flat(b)
	if err != nil {
		return []string{fmt.Sprintf("the newer configuration cannot be read: %s", oneLine(err.Error()))}
	}
	var out []string
	both := maps.Clone(was)
	maps.Copy(both, now)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		if x, y := valueText(was, key), valueText(now, key); x != y {
			out = append(out, fmt.Sprintf("%s: %s, now %s", key, x, y))
		}
	}
	return out
}

func valueText(values map[string]string, key string) string {
	if v, ok := values[key]; ok {
		return v
	}
	return "not given"
}

// flat maps dotted keys to their values as text.
func flat(text []byte) (map[string]string, error) {
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
		switch v := value.(type) {
		case map[string]any:
			flatten(v, prefix+key+".", out)
		case string:
			out[prefix+key] = fmt.Sprintf("%q", v)
			if slices.Contains([]rune(v), ' ') || v == "" {
				continue
			}
			out[prefix+key] = v
		default:
			out[prefix+key] = fmt.Sprint(v)
		}
	}
}
