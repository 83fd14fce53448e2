package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

func attrFilter(c *call) any {
	name := c.textArg(0, "name")
	if c.self == nil {
		panic(faultf("cannot read .%s of an undefined value", name))
	}
	if _, isDict := c.self.(Dict); isDict && dictMethods[name] == nil {
		return nil
	}
	return c.attribute(c.self, name)
}

// batch makes lists of some items each, the last filled up.
func batch(c *call) any {
	size := toInt(c.arg(0, "linecount", None))
	items, fill := c.iterate(c.self), c.arg(1, "fill_with", None)
	if size < 1 {
		panic(faultf("batch: found %s, want an int from 1", c.repr(c.arg(0, "linecount", None))))
	}
	out := []any{}
	for part := range slices.Chunk(items, size) {
		part = slices.Clone(part)
		if lack := size - len(part); fill != any(None) && lack > 0 {
			c.step(min(lack, maxSteps+1))
			part = append(part, slices.Repeat([]any{fill}, lack)...)
		}
		out = append(out, part)
	}
	return generated(out)
}

// sliceFilter divides the items into a number of lists. What is left over goes to the first lists, one item each.
func sliceFilter(c *call) any {
	n := toInt(c.arg(0, "slices", None))
	items, fill := c.iterate(c.self), c.arg(1, "fill_with", None)
	if n < 1 {
		panic(faultf("slice: found %s, want an int from 1", c.repr(c.arg(0, "slices", None))))
	}
	c.step(n)
	out := make([]any, n)
	from, size, longer := 0, len(items)/n, len(items)%n
	for i := range out {
		end := from + size + btoi(i < longer)
		part := slices.Clone(items[from:end])
		if part == nil {
			part = []any{}
		}
		if fill != any(None) && i >= longer {
			part = append(part, fill)
		}
		out[i], from = part, end
	}
	return generated(out)
}

// groupBy makes a pair of each value of an attribute with the items that have it, in the values' order.
func groupBy(c *call) any {
	by, otherwise, sensitive := c.arg(0, "attribute", None), c.arg(1, "default", None), c.flag(2, "case_sensitive")
	key := func(v any) any { return fold(c.path(v, by, otherwise), sensitive) }
	out := []any{}
	var part []any
	for _, v := range c.sortBy(c.iterate(c.self), false, key).([]any) {
		if len(part) > 0 && c.equal(key(part[0]), key(v), 0) {
			part = append(part, v)
			out[len(out)-1] = group{c.path(part[0], by, otherwise), part}
			continue
		}
		part = []any{v}
		out = append(out, group{c.path(v, by, otherwise), part})
	}
	return out
}

func formatFilter(c *call) any {
	if len(c.args) > 0 && len(c.kwargs) > 0 {
		panic(faultf("format: found values with and without names, want one kind"))
	}
	args := any(tuple(c.args))
	if len(c.kwargs) > 0 {
		args = c.kwargs
	}
	text := any(c.str(c.self))
	if c.safe {
		text = markup(c.str(c.self))
	}
	s, _ := asText(c.percent(text, args))
	return s
}

func truncate(c *call) any {
	if !isText(c.self) {
		if length(c).(int) > toInt(c.arg(0, "length", 255))+toInt(c.arg(3, "leeway", 5)) {
			panic(faultf("truncate: found %s, want a str", kindOf(c.self)))
		}
		return c.self
	}
	s, end := c.runes(c.str(c.self)), c.str(c.arg(2, "end", "..."))
	most, leeway := toInt(c.arg(0, "length", 255)), toInt(c.arg(3, "leeway", 5))
	lack := most - utf8.RuneCountInString(end)
	switch {
	case lack < 0 || leeway < 0:
		panic(faultf("truncate: found a length of %d, want at least the %d of the end", most, most-lack))
	case len(s) <= most+leeway:
		return string(s)
	}
	text := string(s[:lack])
	if at := strings.LastIndexByte(text, ' '); at >= 0 && !c.flag(1, "killwords") {
		text = text[:at]
	}
	if c.safe {
		end = string(escape(c.run, c.arg(2, "end", "...")))
	}
	return text + end
}
