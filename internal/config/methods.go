package config

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// The methods that options and their sections may have, on their pointers. They are called for inner sections first;
// keys are the section's own. A method of an embedded section is called for the section, and again for the options that
// embed it, unless these have their own.
//
// Defaults changes the defaults of the tags, and drops given values that do not count; Resolve changes options that
// follow from others and are not given; Check and Validate find what is wrong across keys, Check for programs, too (see
// package fault); Idle names keys without effect.
type (
	defaulter interface{ Defaults(*Given) }
	resolver  interface{ Resolve(*Given) }
	checker   interface{ Check() []fault.Fault }
	validator interface{ Validate(*Given) }
	idler     interface{ Idle(*Given) Idle }
)

// Idle are keys and sections without effect, which resolved options leave out, with the reason: a given one is a fault
// that says it. One without a reason may be given.
type Idle map[string]string

// Add adds keys and sections.
func (idle Idle) Add(why string, keys ...string) {
	for _, key := range keys {
		idle[key] = why
	}
}

// reason says why a key, or a section that it is in, has no effect.
func (idle Idle) reason(key string) (why string, is bool) {
	for i := 0; i <= len(key); i++ {
		if i == len(key) || key[i] == '.' {
			text, has := idle[key[:i]]
			why, is = cmp.Or(text, why), is || has
		}
	}
	return why, is
}

// Whole is the options that the section is a part of, a pointer.
func (g *Given) Whole() any { return g.options }

// eachSection calls do with every section of options, inner ones first and the whole at last, each a pointer.
func (g *Given) eachSection(options any, do func(g *Given, section any)) {
	g.options = options
	g.visit(reflect.ValueOf(options).Elem(), do)
}

func (g *Given) visit(v reflect.Value, do func(g *Given, section any)) {
	for i, f := range fields(v.Type()) {
		switch {
		case !f.section:
		case f.inline:
			g.visit(v.Field(i), do)
		default:
			g.In(f.key+".").visit(v.Field(i), do)
		}
	}
	do(g, v.Addr().Interface())
}

func (g *Given) changeDefaults(section any) {
	if s, ok := section.(defaulter); ok {
		s.Defaults(g)
	}
}

func (g *Given) resolve(section any) {
	if s, ok := section.(resolver); ok {
		s.Resolve(g)
	}
}

func (g *Given) validate(section any) {
	if s, ok := section.(checker); ok {
		g.Take(s.Check()...)
	}
	if s, ok := section.(idler); ok {
		g.refuse(s.Idle(g))
	}
	if s, ok := section.(validator); ok {
		s.Validate(g)
	}
}

// refuse wants keys without effect not to be given.
func (g *Given) refuse(idle Idle) {
	for _, l := range g.schema.leaves {
		key, inside := strings.CutPrefix(l.key, g.prefix)
		if why, _ := idle.reason(key); inside && why != "" && g.values[l.key].says() {
			g.Fault(key, "%s %s: %s", l.key, g.Show(key), why)
		}
	}
}

// idleKeys are the keys and sections of options without effect.
func (g *Given) idleKeys(options any) Idle {
	all := Idle{}
	g.eachSection(options, func(g *Given, section any) {
		if s, ok := section.(idler); ok {
			for key, why := range s.Idle(g) {
				all[g.Key(key)] = why
			}
		}
	})
	return all
}
