package jinja

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

var clock = time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)

type fixture struct {
	Variables map[string]json.RawMessage
	Rows      []struct {
		Source      string
		Text, Error *string
	}
}

func readFixture(t testing.TB) (fixture, map[string]any) {
	t.Helper()
	data, err := os.ReadFile("testdata/templates.json")
	if err != nil {
		t.Fatal(err)
	}
	var f fixture
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	vars := map[string]any{}
	for name, v := range f.Variables {
		vars[name] = v
	}
	return f, vars
}

func render(source string, vars map[string]any) (string, error) {
	t, err := Compile(source)
	if err != nil {
		return "", err
	}
	return t.Render(vars, clock)
}

// Every row was rendered by the Jinja environment of transformers (scripts/oracle/tokenizer_cases.py).
func TestSameAsTransformers(t *testing.T) {
	f, vars := readFixture(t)
	for _, row := range f.Rows {
		got, err := render(row.Source, vars)
		switch {
		case row.Text != nil && err != nil:
			t.Errorf("%s\n  error %v\n  want  %q", row.Source, err, *row.Text)
		case row.Text != nil && got != *row.Text:
			t.Errorf("%s\n  got  %q\n  want %q", row.Source, got, *row.Text)
		case row.Error != nil && err == nil:
			t.Errorf("%s\n  got  %q\n  want the error %q", row.Source, got, *row.Error)
		}
		if _, compileErr := Compile(row.Source); row.Error != nil && *row.Error == "syntax" && compileErr == nil {
			t.Errorf("%s compiled: want a syntax error", row.Source)
		}
	}
	if len(f.Rows) < 100 {
		t.Errorf("%d rows: want the whole fixture", len(f.Rows))
	}
}

func TestRaisedMessage(t *testing.T) {
	f, vars := readFixture(t)
	seen := 0
	for _, row := range f.Rows {
		if row.Error == nil || !strings.Contains(row.Source, "raise_exception(") {
			continue
		}
		_, err := render(row.Source, vars)
		var raised *Exception
		if !errors.As(err, &raised) || raised.Message != *row.Error {
			t.Errorf("%s: error %v, want the exception %q", row.Source, err, *row.Error)
		}
		seen++
	}
	if seen < 3 {
		t.Errorf("%d templates raise: want 3 or more", seen)
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{{ 1 + }}":                  `line 2: found the end of the tag, want an expression`,
		"\n\n{% include 'x' %}":         `line 3: statement "include": want one of break`,
		"{% if a %}\n{% for b in c %}":  `line 2: {% for %} is not closed: want {% endfor %}`,
		"{{ x|nope }}":                  `line 1: filter "nope": want one of abs`,
		"{{ a.b().c[0](1) }}":           `line 1: call of something that is neither a function nor a method`,
		"{{ missing.role }}":            `cannot read .role of an undefined value`,
		"{{ missing('x') }}":            `missing is not callable`,
		"{{ 'a'.nope() }}":              `a str has no method "nope": want one of capitalize`,
		"{% for i in range(9999999) %}": `is not closed`,
		"{{ range(9999999) }}":          `template loops more than 262144 times`,
		"{{ 'a' * 99999999 }}":          `template builds a str of more than 67108864 bytes`,
		"{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}":             `template builds a str of more than`,
		"{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x|replace('a', ns.x) %}{% endfor %}": `template builds a str of more than`,
		"{{ 7 ** 99 }}": `result of more than 62 bits`,
		"{{ " + strings.Repeat("(", 200) + strings.Repeat(")", 200) + "}}":           `nested more than 100 deep`,
		strings.Repeat("{% if 1 %}", 200):                                            `blocks nested more than 100 deep`,
		strings.Repeat("x", maxSource+1):                                             `template of 1048577 bytes: want at most 1048576`,
		"{{ 1 " + strings.Repeat("+1", 9999):                                         `tag of more than 10000 tokens`,
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":                            `macro f: more than 100 calls within calls`,
		"{% for a in range(600) %}{% for b in range(600) %}{% endfor %}{% endfor %}": `template loops more than`,
	} {
		_, err := render(source, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: error %v, want one line with %q", source, err, want)
		}
	}
}

func TestOf(t *testing.T) {
	type name string
	for _, c := range []struct {
		in   any
		want string // as tojson prints it
	}{
		{nil, "null"},
		{map[string]any{"b": 1, "a": []string{"x"}}, `{"a": ["x"], "b": 1}`},
		{json.RawMessage(`{"b": 1.0, "a": [true, null], "b": 2}`), `{"b": 2, "a": [true, null]}`},
		{[]map[string]string{{"k": "v"}}, `[{"k": "v"}]`},
		{Dict{{"z", 1}, {"y", 2.5}}, `{"z": 1, "y": 2.5}`},
		{name("n"), `"n"`},
		{uint8(3), "3"},
		{float32(0.5), "0.5"},
	} {
		if got, err := render("{{ v | tojson }}", map[string]any{"v": c.in}); err != nil || got != c.want {
			t.Errorf("%#v: got %s, %v, want %s", c.in, got, err, c.want)
		}
	}
	for _, bad := range []any{struct{}{}, make(chan int), map[int]int{1: 2}, json.RawMessage("{"), json.RawMessage("1 2")} {
		if _, err := render("{{ v }}", map[string]any{"v": bad}); err == nil || !strings.Contains(err.Error(), "template variable v") {
			t.Errorf("%#v: error %v, want one that names the variable", bad, err)
		}
	}
}

func TestRenderConcurrently(t *testing.T) {
	tmpl, err := Compile("{% macro m(x) %}<{{ x }}>{% endmacro %}{% set ns = namespace(n=0) %}{% for i in items %}{% set ns.n = ns.n + i %}{{ m(i) }}{% endfor %}{{ ns.n }}")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 20 {
				got, err := tmpl.Render(map[string]any{"items": []int{n, 1}}, clock)
				if want := strings.NewReplacer("N", string(rune('0'+n)), "S", string(rune('1'+n))).Replace("<N><1>S"); err != nil || got != want {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzTemplate(f *testing.F) {
	fix, vars := readFixture(f)
	for _, row := range fix.Rows {
		f.Add(row.Source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 2000 {
			t.Skip()
		}
		_, err := render(source, vars)
		// Our own functions and the translation must not rely on the recovery that gonja needs.
		if err != nil && strings.HasPrefix(err.Error(), "template engine:") {
			t.Errorf("%q: %v", source, err)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	tmpl, err := Compile("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m['content'] | trim + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
	if err != nil {
		b.Fatal(err)
	}
	turns := []map[string]string{}
	for range 6 {
		turns = append(turns, map[string]string{"role": "user", "content": strings.Repeat("word ", 50)})
	}
	for b.Loop() {
		if _, err := tmpl.Render(map[string]any{"messages": turns, "add_generation_prompt": true}, clock); err != nil {
			b.Fatal(err)
		}
	}
}
