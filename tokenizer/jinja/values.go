package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
)

type none struct{}

// None is Python's None. It is a nil pointer so that gonja takes it for false, yet tells it from undefined, which is nil.
var None = (*none)(nil)

// An Entry is one key of a dictionary with its value.
type Entry struct{ Key, Value any }

// A Dict is a dictionary in the order its keys were given. It is a slice so that gonja takes an empty one for false.
type Dict []Entry

func (d Dict) get(key any) (any, bool) {
	for _, e := range d {
		if equal(e.Key, key) {
			return e.Value, true
		}
	}
	return nil, false
}

// Of turns a Go value into a template's: nil, booleans, strings, numbers, slices, maps with string keys (sorted), Dict,
// and json.RawMessage, whose objects keep their order.
func Of(v any) (any, error) {
	switch v := v.(type) {
	case nil, *none:
		return None, nil
	case bool, string, Dict:
		return v, nil
	case json.RawMessage:
		return FromJSON(v)
	case json.Number:
		return fromNumber(v)
	}
	return ofKind(reflect.ValueOf(v))
}

func ofKind(v reflect.Value) (any, error) {
	switch {
	case v.Kind() == reflect.String:
		return v.String(), nil
	case v.CanInt():
		return int(v.Int()), nil
	case v.CanUint():
		return int(v.Uint()), nil
	case v.CanFloat():
		return v.Float(), nil
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Array:
		out := make([]any, v.Len())
		for i := range out {
			item, err := Of(v.Index(i).Interface())
			if err != nil {
				return nil, err
			}
			out[i] = item
		}
		return out, nil
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		return ofMap(v)
	}
	return nil, fmt.Errorf("value of type %s: want nil, bool, string, number, slice, map[string]..., jinja.Dict or json.RawMessage", v.Type())
}

func ofMap(v reflect.Value) (any, error) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	out := make(Dict, len(keys))
	for i, key := range keys {
		value, err := Of(v.MapIndex(key).Interface())
		if err != nil {
			return nil, err
		}
		out[i] = Entry{key.String(), value}
	}
	return out, nil
}

// FromJSON reads one JSON value; objects keep the order of their keys.
func FromJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := fromJSON(d)
	if err == nil && d.More() {
		err = fmt.Errorf("more than one JSON value")
	}
	return v, err
}

func fromJSON(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return dictFromJSON(d)
		}
		return listFromJSON(d)
	case json.Number:
		return fromNumber(t)
	case nil:
		return None, nil
	}
	return t, nil
}

func listFromJSON(d *json.Decoder) (any, error) {
	out := []any{}
	for d.More() {
		v, err := fromJSON(d)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := d.Token()
	return out, err
}

// dictFromJSON lets a repeated key replace the value in its first place, as Python does.
func dictFromJSON(d *json.Decoder) (any, error) {
	out, at := Dict{}, map[any]int{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := fromJSON(d)
		if err != nil {
			return nil, err
		}
		if i, repeated := at[key]; repeated {
			out[i].Value = v
			continue
		}
		at[key] = len(out)
		out = append(out, Entry{key, v})
	}
	_, err := d.Token()
	return out, err
}

func fromNumber(n json.Number) (any, error) {
	if i, err := strconv.Atoi(n.String()); err == nil {
		return i, nil
	}
	return n.Float64()
}

// plain takes a value out of gonja's wrapping.
func plain(v *exec.Value) any {
	if v == nil || !v.Val.IsValid() {
		return nil
	}
	switch x := v.Interface().(type) {
	case *exec.Value:
		return plain(x)
	case exec.ValuesList:
		out := make([]any, len(x))
		for i, item := range x {
			out[i] = plain(item)
		}
		return out
	default:
		return x
	}
}

// truth is Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case nil, *none:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case int:
		return v != 0
	case float64:
		return v != 0
	case []any:
		return len(v) > 0
	case Dict:
		return len(v) > 0
	}
	return true
}

// toNumber gives a boolean or number as a float64 and says whether it is whole.
func toNumber(v any) (f float64, whole, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true, true
		}
		return 0, true, true
	case int:
		return float64(v), true, true
	case float64:
		return v, false, true
	}
	return 0, false, false
}

// equal is Python's ==.
func equal(a, b any) bool {
	if x, _, ok := toNumber(a); ok {
		y, _, ok := toNumber(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		b, ok := b.(string)
		return ok && a == b
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case Dict:
		b, ok := b.(Dict)
		return ok && equalDicts(a, b)
	case *none:
		_, ok := b.(*none)
		return ok
	}
	return false
}

func equalDicts(a, b Dict) bool {
	for _, e := range a {
		if v, ok := b.get(e.Key); !ok || !equal(e.Value, v) {
			return false
		}
	}
	return len(a) == len(b)
}

// compareValues orders two numbers, strings or lists.
func compareValues(a, b any) (int, error) {
	if x, _, ok := toNumber(a); ok {
		if y, _, ok := toNumber(b); ok {
			return int(math.Copysign(1, x-y)) * btoi(x != y), nil
		}
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
	case []any:
		if y, ok := b.([]any); ok {
			for i := range min(len(x), len(y)) {
				if c, err := compareValues(x[i], y[i]); err != nil || c != 0 {
					return c, err
				}
			}
			return len(x) - len(y), nil
		}
	}
	return 0, fmt.Errorf("cannot order %s and %s", kindOf(a), kindOf(b))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// kindOf names a value's type as Python does.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "an undefined value"
	case *none:
		return "None"
	case bool:
		return "a bool"
	case string:
		return "a str"
	case int:
		return "an int"
	case float64:
		return "a float"
	case []any:
		return "a list"
	case Dict:
		return "a dict"
	case map[string]any:
		return "a namespace"
	case *controlStructures.LoopInfos:
		return "the loop"
	}
	return "a function"
}

// contains is Python's item in container.
func contains(container, item any) (bool, error) {
	switch c := container.(type) {
	case string:
		if s, ok := item.(string); ok {
			return strings.Contains(c, s), nil
		}
		return false, fmt.Errorf("cannot look for %s in a str", kindOf(item))
	case []any:
		return slices.ContainsFunc(c, func(x any) bool { return equal(x, item) }), nil
	case Dict:
		_, ok := c.get(item)
		return ok, nil
	case nil:
		return false, nil
	}
	return false, fmt.Errorf("cannot look for anything in %s", kindOf(container))
}

// iterate gives the items that a for loop sees.
func iterate(v any) ([]any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []any:
		return v, nil
	case string:
		out := make([]any, 0, len(v))
		for _, r := range v {
			out = append(out, string(r))
		}
		return out, nil
	case Dict:
		return v.keys(), nil
	}
	return nil, fmt.Errorf("cannot iterate over %s", kindOf(v))
}

func (d Dict) keys() []any {
	out := make([]any, len(d))
	for i, e := range d {
		out[i] = e.Key
	}
	return out
}

func (d Dict) items() []any {
	out := make([]any, len(d))
	for i, e := range d {
		out[i] = []any{e.Key, e.Value}
	}
	return out
}

// attribute is Jinja2's x.name without a call: a dictionary's or namespace's value, a property of the loop.
func attribute(v any, name string) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, fmt.Errorf("cannot read .%s of an undefined value", name)
	case Dict:
		value, _ := v.get(name)
		return value, nil
	case map[string]any:
		return plain(exec.ToValue(v[name])), nil
	case *controlStructures.LoopInfos:
		value, _ := v.GetAttribute(name)
		return plain(value), nil
	}
	return nil, nil
}

// item is Jinja2's x[key]; what is not there is undefined.
func item(v, key any) (any, error) {
	i, isInt := key.(int)
	switch x := v.(type) {
	case []any:
		if i += len(x) * btoi(i < 0); isInt && i >= 0 && i < len(x) {
			return x[i], nil
		}
		return nil, nil
	case string:
		runes := []rune(x)
		if i += len(runes) * btoi(i < 0); isInt && i >= 0 && i < len(runes) {
			return string(runes[i]), nil
		}
		return nil, nil
	case Dict:
		value, _ := x.get(key)
		return value, nil
	}
	if name, ok := key.(string); ok {
		return attribute(v, name)
	}
	if v == nil {
		return nil, fmt.Errorf("cannot take item %s of an undefined value", repr(key))
	}
	return nil, nil
}

// slice is Python's x[start:stop:step].
func slice(v any, bounds []any) (any, error) {
	switch x := v.(type) {
	case string:
		runes := []rune(x)
		at, err := sliceIndices(len(runes), bounds)
		return string(pick(runes, at)), err
	case []any:
		at, err := sliceIndices(len(x), bounds)
		return pick(x, at), err
	}
	return nil, fmt.Errorf("cannot slice %s", kindOf(v))
}

func pick[T any](from []T, at []int) []T {
	out := make([]T, len(at))
	for i, j := range at {
		out[i] = from[j]
	}
	return out
}

func sliceIndices(n int, bounds []any) ([]int, error) {
	var set [3]bool
	var at [3]int
	for i, b := range bounds {
		if b == any(None) {
			continue
		}
		x, ok := b.(int)
		if !ok {
			return nil, fmt.Errorf("slice bound is %s: want an int", kindOf(b))
		}
		at[i], set[i] = x, true
	}
	step := at[2]
	if !set[2] {
		step = 1
	}
	if step == 0 {
		return nil, fmt.Errorf("slice step is 0: want another")
	}
	step = max(-n-1, min(step, n+1))
	// Python clamps both bounds to 0..n forwards, and to -1..n-1 backwards.
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	clamp := func(i, open int) int {
		if !set[i] {
			return open
		}
		return max(low, min(high, at[i]+n*btoi(at[i] < 0)))
	}
	start, stop := clamp(0, low), clamp(1, high)
	if step < 0 {
		start, stop = clamp(0, high), clamp(1, low)
	}
	var out []int
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, i)
	}
	return out, nil
}

// str is Python's str(v); undefined is empty.
func str(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return repr(v)
}

// repr is Python's repr(v).
func repr(v any) string {
	switch v := v.(type) {
	case nil:
		return "Undefined"
	case *none:
		return "None"
	case bool:
		return strings.ToUpper(strconv.FormatBool(v)[:1]) + strconv.FormatBool(v)[1:]
	case string:
		return reprString(v)
	case int:
		return strconv.Itoa(v)
	case float64:
		return reprFloat(v)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = repr(x)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case Dict:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = repr(e.Key) + ": " + repr(e.Value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return "<" + kindOf(v) + ">"
}

func reprString(s string) string {
	mark := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = `"`
	}
	var b strings.Builder
	b.WriteString(mark)
	for _, r := range s {
		switch {
		case r == '\\' || string(r) == mark:
			b.WriteString(`\` + string(r))
		case r == '\n' || r == '\r' || r == '\t':
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		case strconv.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String() + mark
}

// reprFloat prints the shortest digits, with an exponent below 1e-4 and from 1e16 on.
func reprFloat(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// jsonStyle holds the options of Python's json.dumps that a template can give.
type jsonStyle struct {
	indent          string // of one level; empty with compact set for one line
	oneLine         bool
	comma, colon    string
	ascii, sortKeys bool
}

// dumps is Python's json.dumps.
func (j jsonStyle) dumps(v any, margin string) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", fmt.Errorf("cannot write an undefined value as JSON")
	case *none:
		return "null", nil
	case bool:
		return strconv.FormatBool(v), nil
	case string:
		return j.quote(v), nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		return jsonFloat(v), nil
	case []any:
		return j.join("[", "]", margin, len(v), func(i int, inner string) (string, error) { return j.dumps(v[i], inner) })
	case Dict:
		return j.dict(v, margin)
	}
	return "", fmt.Errorf("cannot write %s as JSON", kindOf(v))
}

func (j jsonStyle) dict(v Dict, margin string) (string, error) {
	if j.sortKeys {
		v = slices.Clone(v)
		slices.SortStableFunc(v, func(a, b Entry) int { return strings.Compare(str(a.Key), str(b.Key)) })
	}
	return j.join("{", "}", margin, len(v), func(i int, inner string) (string, error) {
		value, err := j.dumps(v[i].Value, inner)
		key, isString := v[i].Key.(string)
		if !isString {
			key, _ = jsonStyle{}.dumps(v[i].Key, "")
		}
		return j.quote(key) + j.colon + value, err
	})
}

func (j jsonStyle) join(open, end, margin string, n int, part func(i int, inner string) (string, error)) (string, error) {
	if n == 0 {
		return open + end, nil
	}
	inner, first, last := margin, "", ""
	if !j.oneLine {
		inner = margin + j.indent
		first, last = "\n"+inner, "\n"+margin
	}
	parts := make([]string, n)
	for i := range parts {
		p, err := part(i, inner)
		if err != nil {
			return "", err
		}
		parts[i] = p
	}
	return open + first + strings.Join(parts, j.comma+first) + last + end, nil
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return reprFloat(f)
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (j jsonStyle) quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch escape, ok := jsonEscapes[r]; {
		case ok:
			b.WriteString(escape)
		case r < 0x20 || j.ascii && r >= 0x7f && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case j.ascii && r >= 0x10000:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// names lists the names that a user may write, for messages.
func names[V any](m map[string]V) string {
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(k string) bool { return strings.HasPrefix(k, "_") })
	return strings.Join(keys, ", ")
}
