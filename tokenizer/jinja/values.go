package jinja

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
)

type noneType struct{}

// None is Python's None.
var None = noneType{}

// An Entry is one key of a dictionary with its value.
type Entry struct{ Key, Value any }

// A Dict is a dictionary in the order its keys were given.
type Dict []Entry

// A tuple prints and compares otherwise than a list.
type tuple []any

// A markup is text that |safe or |e has made: what is joined to it is escaped.
type markup string

// A group is what groupby makes: a tuple with names.
type group struct{ grouper, list any }

// A view is what Python hands out instead of a list: the keys of a dictionary, or a generator, which gives its items
// once.
type view struct {
	name  string
	items []any
}

const generator = "generator"

func isRange(v any) bool { of, ok := v.(*view); return ok && strings.HasPrefix(of.name, "range") }

func generated(items []any) any { return &view{generator, items} }

func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

func isText(v any) bool { _, ok := asText(v); return ok }

// asList gives the items of a list or tuple.
func asList(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case tuple:
		return v, true
	case group:
		return []any{v.grouper, v.list}, true
	}
	return nil, false
}

// A namespace is the one value that a template may change.
type namespace map[string]any

// A loop is what the name loop means inside a for.
type loop struct {
	items   []any
	at      int
	depth   int
	recur   func(c *call) any // what a call of it does; nil without recursive
	changed []any             // what loop.changed was last given; nil before
}

// get finds a name.
func (d Dict) get(name string) (any, bool) {
	for _, e := range d {
		if e.Key == name {
			return e.Value, true
		}
	}
	return nil, false
}

// find gives the place of a key, or -1.
func (r *run) find(d Dict, key any) int {
	r.hash(key, 0)
	r.step(len(d) / passSteps)
	if name, ok := asText(key); ok {
		return slices.IndexFunc(d, func(e Entry) bool { s, ok := asText(e.Key); return ok && s == name })
	}
	return slices.IndexFunc(d, func(e Entry) bool { return r.equal(e.Key, key, 0) })
}

// hash refuses what Python takes for no key.
func (r *run) hash(key any, depth int) {
	r.visit(depth)
	switch key := key.(type) {
	case []any, Dict:
		panic(faultf("%s cannot be a key", kindOf(key)))
	case tuple:
		for _, v := range key {
			r.hash(v, depth+1)
		}
	}
}

// with sets a key.
func (r *run) with(d Dict, key, value any) Dict {
	if i := r.find(d, key); i >= 0 {
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
		return narrow(new(big.Int).SetUint64(v.Uint())), nil
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
	if v, ok := readInt(n.String(), 10); ok {
		return v, nil
	}
	f, ok := readFloat(n.String())
	if !ok || !strings.ContainsAny(n.String(), ".eE") {
		return nil, fmt.Errorf("number of %d digits: want at most %d", len(n), maxDigits)
	}
	return f, nil
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
	case markup:
		return v != ""
	case Dict:
		return len(v) > 0
	case *view:
		return v.name == generator || len(v.items) > 0
	}
	items, ok := asList(v)
	return !ok || len(items) > 0
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// kindOf names a value's type as Python does.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "an undefined value"
	case noneType:
		return "None"
	case bool:
		return "a bool"
	case string, markup:
		return "a str"
	case int, *big.Int:
		return "an int"
	case float64:
		return "a float"
	case []any:
		return "a list"
	case Dict:
		return "a dict"
	case tuple, group:
		return "a tuple"
	case *view:
		return "a " + v.name
	case namespace:
		return "a namespace"
	case *loop:
		return "the loop"
	}
	return "a function"
}

// operate is a op b for the operators of arithmetic.
func (r *run) operate(op string, a, b any) any {
	if op == "~" {
		op, a, b = "+", r.str(a), r.str(b)
	}
	_, wholeX, okX := toNumber(a)
	_, wholeY, okY := toNumber(b)
	switch {
	case okX && okY:
		v := arithmetic(op, a, b)
		for _, n := range []any{a, b, v} {
			if isBig(n) {
				r.step(wide(n).BitLen() / stepBytes)
			}
		}
		return v
	case op == "%" && isText(a):
		return r.percent(a, b)
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
	x, okX := asText(a)
	y, okY := asText(b)
	switch {
	case okX && okY && (is[markup](a) || is[markup](b)):
		r.fits(6, len(x)+len(y))
		return escape(r, a) + escape(r, b)
	case okX && okY:
		r.fits(1, len(x)+len(y))
		return x + y
	case is[tuple](a) && is[tuple](b):
		return tuple(r.concat([]any(a.(tuple)), []any(b.(tuple))).([]any))
	case is[[]any](a) && is[[]any](b):
		r.step(len(a.([]any)) + len(b.([]any)))
		return slices.Concat(a.([]any), b.([]any))
	}
	panic(faultf("%s + %s: not defined", kindOf(a), kindOf(b)))
}

func (r *run) repeat(v, times any) any {
	n := max(0, toInt(times))
	switch v := v.(type) {
	case markup:
		return markup(r.repeat(string(v), times).(string))
	case string:
		r.fits(n, len(v))
		if v != "" {
			return strings.Repeat(v, n)
		}
		return ""
	case tuple:
		return tuple(r.repeat([]any(v), times).([]any))
	case []any:
		r.step(min(n, maxSteps) * min(len(v), maxSteps))
		if len(v) > 0 {
			return slices.Repeat(v, n)
		}
		return v
	}
	panic(faultf("%s * %s: not defined", kindOf(v), kindOf(times)))
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
	if isNaN(a) || isNaN(b) {
		return false
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
	if x, ok := asText(a); ok {
		y, ok := asText(b)
		if ok = ok && len(x) == len(y); ok {
			r.step(len(x) / stepBytes)
		}
		return ok && x == y
	}
	if x, ok := asList(a); ok {
		y, ok := asList(b)
		return ok && is[[]any](a) == is[[]any](b) &&
			slices.EqualFunc(x, y, func(a, b any) bool { return r.equal(a, b, depth+1) })
	}
	if _, _, ok := toNumber(a); ok {
		_, _, ok := toNumber(b)
		return ok && !isNaN(a) && !isNaN(b) && orderNumbers(a, b) == 0
	}
	switch x := a.(type) {
	case nil, noneType, *loop, *view, *cycler:
		return a == b
	case Dict:
		y, ok := b.(Dict)
		return ok && len(x) == len(y) && !slices.ContainsFunc(x, func(e Entry) bool {
			i := r.find(y, e.Key)
			return i < 0 || !r.equal(e.Value, y[i].Value, depth+1)
		})
	}
	return false
}

// order compares two numbers, strings, lists or tuples.
func (r *run) order(a, b any, depth int) int {
	r.visit(depth)
	if _, _, ok := toNumber(a); ok {
		if _, _, ok := toNumber(b); ok {
			return orderNumbers(a, b)
		}
	}
	if x, ok := asText(a); ok {
		if y, ok := asText(b); ok {
			r.step(min(len(x), len(y)) / stepBytes)
			return strings.Compare(x, y)
		}
	}
	if x, ok := asList(a); ok {
		if y, ok := asList(b); ok && is[[]any](a) == is[[]any](b) {
			return r.orderLists(x, y, depth)
		}
	}
	panic(faultf("cannot order %s and %s", kindOf(a), kindOf(b)))
}

// orderLists goes by the first items that are not equal, which alone must have an order.
func (r *run) orderLists(x, y []any, depth int) int {
	for i := range min(len(x), len(y)) {
		if !r.equal(x[i], y[i], depth+1) {
			return r.order(x[i], y[i], depth+1)
		}
	}
	return cmp.Compare(len(x), len(y))
}

// contains is Python's item in container.
func (r *run) contains(container, item any) bool {
	if text, ok := asText(container); ok {
		s, ok := asText(item)
		if !ok {
			panic(faultf("cannot look for %s in a str", kindOf(item)))
		}
		r.step(len(text) / stepBytes)
		return strings.Contains(text, s)
	}
	if d, ok := container.(Dict); ok {
		return r.find(d, item) >= 0
	}
	return slices.ContainsFunc(r.iterate(container), func(x any) bool { return r.equal(x, item, 0) })
}

func isIterable(v any) bool {
	switch v.(type) {
	case nil, Dict, *view:
		return true
	}
	_, ok := asList(v)
	return ok || isText(v)
}

// iterate gives the items that a for loop sees.
func (r *run) iterate(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case Dict:
		return r.pluck(v, func(e Entry) any { return e.Key })
	case *view:
		items := v.items
		if v.name == generator {
			v.items = nil
		}
		return items
	}
	if text, ok := asText(v); ok {
		r.step(len(text))
		out := make([]any, 0, len(text))
		for _, c := range text {
			out = append(out, string(c))
		}
		return out
	}
	if items, ok := asList(v); ok {
		return items
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
	return r.pluck(d, func(e Entry) any { return tuple{e.Key, e.Value} })
}

// attribute is Jinja2's x.name without a call: a method, a dictionary's or namespace's value, a property of the loop.
func (r *run) attribute(v any, name string) any {
	if v == nil {
		panic(faultf("cannot read .%s of an undefined value", name))
	}
	if f := methodsOf(v)[name]; f != nil {
		return function(func(c *call) any { c.self = v; return c.textually(name, methodRules, f) })
	}
	switch v := v.(type) {
	case Dict:
		if !changing[name] {
			return r.item(v, name)
		}
	case namespace:
		return v[name]
	case *loop:
		return v.attribute(name)
	case *cycler:
		if name == "current" {
			return v.items[v.at]
		}
	case group:
		return map[string]any{"grouper": v.grouper, "list": v.list}[name]
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
		"length": n, "depth": l.depth + 1, "depth0": l.depth,
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
	i, isInt := toInt(key), isWhole(key)
	if items, ok := asList(v); ok && isInt {
		return at(items, i+len(items)*btoi(i < 0))
	}
	if isRange(v) && isInt {
		items := v.(*view).items
		return at(items, i+len(items)*btoi(i < 0))
	}
	if text, ok := asText(v); ok && isInt {
		runes := r.runes(text)
		if i += len(runes) * btoi(i < 0); i < 0 || i >= len(runes) {
			return nil
		}
		return like(v, string(runes[i]))
	}
	if d, ok := v.(Dict); ok {
		if is[[]any](key) || is[Dict](key) {
			return nil
		}
		if i := r.find(d, key); i >= 0 {
			return d[i].Value
		}
	}
	if v == nil {
		panic(faultf("cannot take item %s of an undefined value", r.repr(key)))
	}
	name, isName := asText(key)
	if _, isDict := v.(Dict); isDict && methodsOf(v)[name] == nil || !isName {
		return nil
	}
	return r.attribute(v, name)
}

// like makes text as safe as v is.
func like(v any, text string) any {
	if is[markup](v) {
		return markup(text)
	}
	return text
}

func (r *run) runes(s string) []rune {
	r.step(len(s) / stepBytes)
	return []rune(s)
}

// slice is Python's x[start:stop:step].
func (r *run) slice(v any, bounds []any) any {
	if text, ok := asText(v); ok {
		return like(v, string(pick(r, r.runes(text), bounds)))
	}
	items, ok := asList(v)
	switch {
	case isRange(v):
		return pick(r, v.(*view).items, bounds)
	case !ok:
		panic(faultf("cannot slice %s", kindOf(v)))
	case is[[]any](v):
		return pick(r, items, bounds)
	}
	return tuple(pick(r, items, bounds))
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
	if !isWhole(bounds[i]) {
		panic(faultf("slice bound is %s: want an int", kindOf(bounds[i])))
	}
	return toInt(bounds[i]), true
}
