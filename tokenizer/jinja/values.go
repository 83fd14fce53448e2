package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

type noneType struct{}

// None is Python's None.
var None = noneType{}

// An Entry is one key of a dictionary with its value.
type Entry struct{ Key, Value any }

// A Dict is a dictionary in the order its keys were given.
type Dict []Entry

// A namespace is the one value that a template may change.
type namespace map[string]any

// A loop is what the name loop means inside a for.
type loop struct {
	items   []any
	at      int
	changed []any // what loop.changed was last given; nil before
}

func (d Dict) get(key any) (any, bool) {
	for _, e := range d {
		if sameKey(e.Key, key) {
			return e.Value, true
		}
	}
	return nil, false
}

// sameKey is == of two values that may be keys: a list never is.
func sameKey(a, b any) bool {
	if is[int](a) && is[int](b) {
		return a == b
	}
	x, _, isNumber := toNumber(a)
	if y, _, ok := toNumber(b); isNumber || ok {
		return isNumber && ok && x == y
	}
	switch a.(type) {
	case string, noneType:
		return a == b
	}
	return false
}

// with sets a key.
func (r *run) with(d Dict, key, value any) Dict {
	r.step(len(d) / passSteps)
	if i := slices.IndexFunc(d, func(e Entry) bool { return sameKey(e.Key, key) }); i >= 0 {
		d[i].Value = value
		return d
	}
	return append(d, Entry{key, value})
}

// Of turns a Go value into a template's: nil, booleans, strings, numbers, slices, maps with string keys (sorted), Dict,
// and json.RawMessage, whose objects keep their order.
func Of(v any) (any, error) {
	switch v := v.(type) {
	case nil, noneType:
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
	return nil, fmt.Errorf("value of type %s: want nil, bool, string, number, slice, map[string]..., jinja.Dict or "+
		"json.RawMessage", v.Type())
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
	v, err := decodeJSON(d, 0)
	if err == nil && d.More() {
		err = fmt.Errorf("more than one JSON value")
	}
	return v, err
}

func decodeJSON(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err == nil && depth > maxNested {
		err = fmt.Errorf("JSON value nested more than %d deep", maxNested)
	}
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return dictFromJSON(d, depth+1)
		}
		out := []any{}
		for d.More() && err == nil {
			var v any
			v, err = decodeJSON(d, depth+1)
			out = append(out, v)
		}
		return out, readEnd(d, err)
	case json.Number:
		return fromNumber(t)
	case nil:
		return None, nil
	}
	return t, nil
}

// readEnd reads the end of a list or object, unless there is an error already.
func readEnd(d *json.Decoder, err error) error {
	if err == nil {
		_, err = d.Token()
	}
	return err
}

// dictFromJSON lets a repeated key replace the value in its first place, as Python does.
func dictFromJSON(d *json.Decoder, depth int) (out Dict, err error) {
	out, at := Dict{}, map[any]int{}
	for d.More() && err == nil {
		var e Entry
		if e.Key, err = d.Token(); err == nil {
			e.Value, err = decodeJSON(d, depth)
		}
		if i, repeated := at[e.Key]; repeated {
			out[i] = e
			continue
		}
		at[e.Key] = len(out)
		out = append(out, e)
	}
	return out, readEnd(d, err)
}

func fromNumber(n json.Number) (any, error) {
	if i, err := strconv.Atoi(n.String()); err == nil {
		return i, nil
	}
	return n.Float64()
}

// truth is Python's bool(v).
func truth(v any) bool {
	if f, _, ok := toNumber(v); ok {
		return f != 0
	}
	switch v := v.(type) {
	case nil, noneType:
		return false
	case string:
		return v != ""
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
		return float64(btoi(v)), true, true
	case int:
		return float64(v), true, true
	case float64:
		return v, false, true
	}
	return 0, false, false
}

// toInt is the int that a boolean or int is.
func toInt(v any) int {
	if b, ok := v.(bool); ok {
		return btoi(b)
	}
	n, _ := v.(int)
	return n
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
	case noneType:
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
	case namespace:
		return "a namespace"
	case *loop:
		return "the loop"
	}
	return "a function"
}

func (r *run) sign(sign string, v any) any {
	f, whole, ok := toNumber(v)
	times := 1 - 2*btoi(sign == "-")
	switch {
	case !ok:
		panic(faultf("cannot put a sign before %s", kindOf(v)))
	case whole:
		return times * toInt(v)
	}
	return float64(times) * f
}

// operate is a op b for the operators of arithmetic.
func (r *run) operate(op string, a, b any) any {
	if op == "~" {
		op, a, b = "+", r.str(a), r.str(b)
	}
	x, wholeX, okX := toNumber(a)
	y, wholeY, okY := toNumber(b)
	switch {
	case okX && okY && wholeX && wholeY && op != "/":
		return integerOp(op, toInt(a), toInt(b))
	case okX && okY:
		return floatOp(op, x, y)
	case op == "*" && wholeX:
		return r.repeat(b, a)
	case op == "*" && wholeY:
		return r.repeat(a, b)
	case op == "+":
		return r.concat(a, b)
	}
	panic(faultf("%s %s %s: not defined", kindOf(a), op, kindOf(b)))
}

func (r *run) concat(a, b any) any {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			r.fits(1, len(x)+len(y))
			return x + y
		}
	case []any:
		if y, ok := b.([]any); ok {
			r.step(len(x) + len(y))
			return slices.Concat(x, y)
		}
	}
	panic(faultf("%s + %s: not defined", kindOf(a), kindOf(b)))
}

func (r *run) repeat(v, times any) any {
	n := max(0, toInt(times))
	switch v := v.(type) {
	case string:
		r.fits(n, len(v))
		if v != "" {
			return strings.Repeat(v, n)
		}
		return ""
	case []any:
		r.step(min(n, maxSteps) * min(len(v), maxSteps))
		if len(v) > 0 {
			return slices.Repeat(v, n)
		}
		return v
	}
	panic(faultf("%s * %s: not defined", kindOf(v), kindOf(times)))
}

func integerOp(op string, a, b int) any {
	if op == "**" && b < 0 {
		return math.Pow(float64(a), float64(b))
	}
	if op == "//" || op == "%" {
		return divide(op, a, b)
	}
	result := new(big.Int)
	tooBig := op == "**" && float64(b)*math.Log2(math.Max(1, math.Abs(float64(a)))) > 64
	if !tooBig {
		exact[op](result, big.NewInt(int64(a)), big.NewInt(int64(b)))
	}
	if tooBig || !result.IsInt64() {
		panic(faultf("%d %s %d: result of more than 64 bits", a, op, b))
	}
	return int(result.Int64())
}

var exact = map[string]func(z, x, y *big.Int) *big.Int{
	"+": (*big.Int).Add, "-": (*big.Int).Sub, "*": (*big.Int).Mul,
	"**": func(z, x, y *big.Int) *big.Int { return z.Exp(x, y, nil) },
}

// divide rounds towards minus infinity, as Python does.
func divide(op string, a, b int) int {
	if b == 0 {
		panic(faultf("%d %s 0: division by zero", a, op))
	}
	quotient := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		quotient--
	}
	if op == "//" {
		return quotient
	}
	return a - quotient*b
}

func floatOp(op string, a, b float64) float64 {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "**":
		return math.Pow(a, b)
	}
	switch {
	case b == 0:
		panic(faultf("%s %s 0: division by zero", reprFloat(a), op))
	case op == "/":
		return a / b
	case op == "//":
		return math.Floor(a / b)
	}
	return a - math.Floor(a/b)*b
}

func (r *run) compare(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b, 0)
	case "!=":
		return !r.equal(a, b, 0)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	order := r.order(a, b, 0)
	return order < 0 && op[0] == '<' || order > 0 && op[0] == '>' || order == 0 && len(op) == 2
}

// visit counts a value of a nested one, and bounds the nesting.
func (r *run) visit(depth int) {
	if r.step(1); depth > maxNested {
		panic(faultf("value nested more than %d deep", maxNested))
	}
}

// equal is Python's ==; depth is how deep the two are nested in what is compared.
func (r *run) equal(a, b any, depth int) bool {
	r.visit(depth)
	switch x := a.(type) {
	case nil:
		return b == nil
	case string:
		y, ok := b.(string)
		if ok = ok && len(x) == len(y); ok {
			r.step(len(x) / stepBytes)
		}
		return ok && x == y
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, func(a, b any) bool { return r.equal(a, b, depth+1) })
	case Dict:
		y, ok := b.(Dict)
		return ok && len(x) == len(y) && !slices.ContainsFunc(x, func(e Entry) bool {
			r.step(len(y) / passSteps)
			v, ok := y.get(e.Key)
			return !ok || !r.equal(e.Value, v, depth+1)
		})
	}
	return sameKey(a, b)
}

// order compares two numbers, strings or lists.
func (r *run) order(a, b any, depth int) int {
	r.visit(depth)
	if x, _, ok := toNumber(a); ok {
		if y, _, ok := toNumber(b); ok {
			return int(math.Copysign(1, x-y)) * btoi(x != y)
		}
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			r.step(min(len(x), len(y)) / stepBytes)
			return strings.Compare(x, y)
		}
	case []any:
		if y, ok := b.([]any); ok {
			return slices.CompareFunc(x, y, func(a, b any) int { return r.order(a, b, depth+1) })
		}
	}
	panic(faultf("cannot order %s and %s", kindOf(a), kindOf(b)))
}

// contains is Python's item in container.
func (r *run) contains(container, item any) bool {
	switch c := container.(type) {
	case string:
		s, ok := item.(string)
		if !ok {
			panic(faultf("cannot look for %s in a str", kindOf(item)))
		}
		r.step(len(c) / stepBytes)
		return strings.Contains(c, s)
	case []any:
		return slices.ContainsFunc(c, func(x any) bool { return r.equal(x, item, 0) })
	case Dict:
		r.step(len(c) / passSteps)
		_, ok := c.get(item)
		return ok
	case nil:
		return false
	}
	panic(faultf("cannot look for anything in %s", kindOf(container)))
}

func isIterable(v any) bool {
	switch v.(type) {
	case nil, []any, string, Dict:
		return true
	}
	return false
}

// iterate gives the items that a for loop sees.
func (r *run) iterate(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	case string:
		r.step(len(v))
		out := make([]any, 0, len(v))
		for _, c := range v {
			out = append(out, string(c))
		}
		return out
	case Dict:
		return r.pluck(v, func(e Entry) any { return e.Key })
	}
	panic(faultf("cannot iterate over %s", kindOf(v)))
}

// pluck makes a list of something of every entry.
func (r *run) pluck(d Dict, f func(e Entry) any) []any {
	r.step(len(d))
	out := make([]any, len(d))
	for i, e := range d {
		out[i] = f(e)
	}
	return out
}

func (r *run) pairs(d Dict) []any {
	return r.pluck(d, func(e Entry) any { return []any{e.Key, e.Value} })
}

// attribute is Jinja2's x.name without a call: a dictionary's or namespace's value, a property of the loop.
func (r *run) attribute(v any, name string) any {
	switch v := v.(type) {
	case nil:
		panic(faultf("cannot read .%s of an undefined value", name))
	case Dict:
		return r.item(v, name)
	case namespace:
		return v[name]
	case *loop:
		return v.attribute(name)
	}
	return nil
}

func (l *loop) attribute(name string) any {
	n := len(l.items)
	switch name {
	case "first":
		return l.at == 0
	case "last":
		return l.at == n-1
	case "previtem":
		return at(l.items, l.at-1)
	case "nextitem":
		return at(l.items, l.at+1)
	}
	count, ok := map[string]int{
		"index": l.at + 1, "index0": l.at, "revindex": n - l.at, "revindex0": n - l.at - 1,
		"length": n, "depth": 1, "depth0": 0,
	}[name]
	if !ok {
		return nil
	}
	return count
}

// at is undefined outside of the list.
func at(items []any, i int) any {
	if i < 0 || i >= len(items) {
		return nil
	}
	return items[i]
}

// item is Jinja2's x[key]; what is not there is undefined.
func (r *run) item(v, key any) any {
	i, isInt := key.(int)
	switch x := v.(type) {
	case []any:
		if isInt {
			return at(x, i+len(x)*btoi(i < 0))
		}
		return nil
	case string:
		if isInt {
			runes := r.runes(x)
			if i += len(runes) * btoi(i < 0); i >= 0 && i < len(runes) {
				return string(runes[i])
			}
		}
		return nil
	case Dict:
		r.step(len(x) / passSteps)
		value, _ := x.get(key)
		return value
	case nil:
		panic(faultf("cannot take item %s of an undefined value", r.repr(key)))
	}
	name, _ := key.(string)
	return r.attribute(v, name)
}

func (r *run) runes(s string) []rune {
	r.step(len(s) / stepBytes)
	return []rune(s)
}

// slice is Python's x[start:stop:step].
func (r *run) slice(v any, bounds []any) any {
	switch x := v.(type) {
	case string:
		return string(pick(r, r.runes(x), bounds))
	case []any:
		return pick(r, x, bounds)
	}
	panic(faultf("cannot slice %s", kindOf(v)))
}

func pick[T any](r *run, from []T, bounds []any) []T {
	start, stop, step := sliceBounds(len(from), bounds)
	out := []T{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, from[i])
	}
	r.step(len(out) / passSteps)
	return out
}

// sliceBounds clamps as Python does: to 0..n forwards, and to -1..n-1 backwards.
func sliceBounds(n int, bounds []any) (start, stop, step int) {
	step, ok := sliceBound(bounds, 2)
	switch step = max(-n-1, min(step, n+1)); {
	case !ok:
		step = 1
	case step == 0:
		panic(faultf("slice step is 0: want another"))
	}
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	clamp := func(i, open int) int {
		at, ok := sliceBound(bounds, i)
		if !ok {
			return open
		}
		return max(low, min(high, at+n*btoi(at < 0)))
	}
	if step < 0 {
		return clamp(0, high), clamp(1, low), step
	}
	return clamp(0, low), clamp(1, high), step
}

func sliceBound(bounds []any, i int) (n int, ok bool) {
	if i >= len(bounds) || bounds[i] == any(None) {
		return 0, false
	}
	if n, ok = bounds[i].(int); !ok {
		panic(faultf("slice bound is %s: want an int", kindOf(bounds[i])))
	}
	return n, true
}
