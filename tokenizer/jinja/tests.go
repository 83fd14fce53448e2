package jinja

import (
	"fmt"
	"strings"
)

// A test says whether it holds for v.
type test func(v any, args []any) (bool, error)

var tests map[string]test

func init() {
	tests = map[string]test{
		"boolean":     isKind(func(v any) bool { _, ok := v.(bool); return ok }),
		"callable":    isKind(func(v any) bool { return kindOf(v) == "a function" }),
		"defined":     isKind(func(v any) bool { return v != nil }),
		"divisibleby": divisible,
		"even":        isKind(func(v any) bool { n, ok := v.(int); return ok && n%2 == 0 }),
		"false":       isKind(func(v any) bool { return v == any(false) }),
		"float":       isKind(func(v any) bool { _, ok := v.(float64); return ok }),
		"in":          func(v any, args []any) (bool, error) { return contains(args[0], v) },
		"integer":     isKind(func(v any) bool { _, ok := v.(int); return ok }),
		"iterable":    isKind(func(v any) bool { _, err := iterate(v); return err == nil }),
		"lower":       isKind(func(v any) bool { s, ok := v.(string); return ok && s == strings.ToLower(s) && s != strings.ToUpper(s) }),
		"mapping":     isKind(func(v any) bool { _, ok := v.(Dict); return ok }),
		"none":        isKind(func(v any) bool { return v == any(None) }),
		"number":      isKind(func(v any) bool { _, _, ok := toNumber(v); return ok }),
		"odd":         isKind(func(v any) bool { n, ok := v.(int); return ok && n%2 != 0 }),
		"sameas":      func(v any, args []any) (bool, error) { return kindOf(v) == kindOf(args[0]) && equal(v, args[0]), nil },
		"sequence":    isKind(func(v any) bool { _, err := iterate(v); return err == nil }),
		"string":      isKind(func(v any) bool { _, ok := v.(string); return ok }),
		"true":        isKind(func(v any) bool { return v == any(true) }),
		"undefined":   isKind(func(v any) bool { return v == nil }),
		"upper":       isKind(func(v any) bool { s, ok := v.(string); return ok && s == strings.ToUpper(s) && s != strings.ToLower(s) }),
	}
	for op, spellings := range map[string]string{
		"==": "eq equalto ==", "!=": "ne !=", "<": "lt lessthan <", "<=": "le <=", ">": "gt greaterthan >", ">=": "ge >=",
	} {
		for name := range strings.FieldsSeq(spellings) {
			tests[name] = func(v any, args []any) (bool, error) { return compareWith(op, v, args[0]) }
		}
	}
}

func isKind(f func(v any) bool) test {
	return func(v any, _ []any) (bool, error) { return f(v), nil }
}

func divisible(v any, args []any) (bool, error) {
	n, ok := v.(int)
	by, okBy := args[0].(int)
	if !ok || !okBy || by == 0 {
		return false, fmt.Errorf("divisibleby: found %s and %s, want two ints, the second not 0", repr(v), repr(args[0]))
	}
	return n%by == 0, nil
}

var takesArgument = map[string]bool{"divisibleby": true, "in": true, "sameas": true}

func runTest(v, name any, args []any) (bool, error) {
	t := tests[str(name)]
	if t == nil {
		return false, fmt.Errorf("test %q: want one of %s", str(name), names(tests))
	}
	if len(args) == 0 && (takesArgument[str(name)] || isComparison(str(name))) {
		return false, fmt.Errorf("test %q: found no argument, want one", str(name))
	}
	return t(v, args)
}

func isComparison(name string) bool {
	return strings.Contains(" eq equalto == ne != lt lessthan < le <= gt greaterthan > ge >= ", " "+name+" ")
}
