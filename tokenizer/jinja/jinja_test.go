package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
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
	var f fixture
	expect.Decode(t, "testdata/templates.json", &f)
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

// TestReleasedTemplates: templates of released models give what transformers gives, or an error where it has one.
// scripts/oracle/released_templates.py makes the cases of templates that are not in this repository.
func TestReleasedTemplates(t *testing.T) {
	var f struct {
		Sources map[string]string
		Cases   []struct {
			File, Chat  string
			Variables   map[string]json.RawMessage
			Text, Error *string
		}
	}
	expect.Decode(t, need.Path(t, "templates"), &f)
	if len(f.Cases) == 0 {
		t.Fatal("no cases")
	}
	texts := 0
	for _, c := range f.Cases {
		vars := map[string]any{}
		for name, v := range c.Variables {
			vars[name] = v
		}
		got, err := render(f.Sources[c.File], vars)
		switch {
		case c.Text != nil && err != nil:
			t.Errorf("%s, %s: error %v\n  want  %q", c.File, c.Chat, err, *c.Text)
		case c.Text != nil && got != *c.Text:
			t.Errorf("%s, %s:\n  got  %q\n  want %q", c.File, c.Chat, got, *c.Text)
		case c.Error != nil && err == nil:
			t.Errorf("%s, %s:\n  got  %q\n  want the error %q", c.File, c.Chat, got, *c.Error)
		case c.Text != nil:
			texts++
		}
	}
	t.Logf("%d templates: %d texts are equal, %d refused alike", len(f.Sources), texts, len(f.Cases)-texts)
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
	grow := "{% set ns = namespace(x='aa') %}{% for i in range(99) %}"
	for _, c := range [][2]string{
		{"a\n{{ 1 + }}", `line 2: found the end of the tag, want an expression`},
		{"\n\n{% include 'x' %}", `line 3: statement "include": want one of break`},
		{"{% if a %}\n{% for b in c %}", `line 2: {% for %} is not closed: want {% endfor %}`},
		{"{{ x|nope }}", `line 1: filter "nope": want one of abs`},
		{"{{ a.b().c[0](1) }}", `line 1: call of something that is neither a function nor a method`},
		{"a\n{% if true %}\n{{ 'a' + 1 }}\n{% endif %}", `line 3: a str + an int: not defined`},
		{"{% macro f(a) %}\n{{ a }}{% endmacro %}\n{{ f(1) }}{{ f(1, 2) }}",
			`line 3: macro f: found 2 arguments, want at most 1`},
		{"{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", `line 1: macro f has no parameter b`},
		{"{{ 1 }}\n{% if %}{% endif %}", `line 2: {% if %}: found the end of the tag, want an expression`},
		{"{{ missing.role }}", `cannot read .role of an undefined value`},
		{"{{ missing('x') }}", `missing is not callable`},
		{"{{ 'a'.nope() }}", `a str has no method "nope": want one of capitalize`},
		{"{% for i in range(9999999) %}", `is not closed`},
		{"{{ range(9999999) }}", `template takes more than 4194304 steps`},
		{"{{ 'a' * 99999999 }}", `template builds a str of more than 67108864 bytes`},
		{grow + "{% set ns.x = ns.x + ns.x %}{% endfor %}", `template builds a str of more than`},
		{grow + "{% set ns.x = ns.x|replace('a', ns.x) %}{% endfor %}", `template builds a str of more than`},
		{"{{ 1 -+}}", `line 1: found the end of the tag, want an expression`},
		{"{{ raise_exception('a\\nb\\x1b[31m') }}", `the chat template refuses: a b [31m`},
		{"{{ [].index('x' * 5000) }}", `xxx ...`},
		{"{{ 7 ** 99999 }}", `result of more than 65536 bits`},
		{"{{ " + strings.Repeat("(", 200) + strings.Repeat(")", 200) + "}}", `nested more than 100 deep`},
		{strings.Repeat("{% if 1 %}", 200), `blocks nested more than 100 deep`},
		{strings.Repeat("x", maxSource+1), `template of 1048577 bytes: want at most 1048576`},
		{"{{ 1 " + strings.Repeat("+1", 9999), `tag of more than 10000 tokens`},
		{"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", `macro f: more than 100 calls within calls`},
		{"{% for a in range(600) %}{% for b in range(600) %}{% endfor %}{% endfor %}",
			`template takes more than 4194304 steps`},
	} {
		source, want := c[0], c[1]
		_, err := render(source, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: error %v, want one line with %q", source, err, want)
		}
	}
}

// Templates that would run for ever, fill the memory or the stack end in one line instead.
func TestHostileTemplates(t *testing.T) {
	tuples := "{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}"
	double := "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
	deep := "{% set ns = namespace(x=1) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}"
	long := "{% set s = 'x' * 60000000 %}"
	lists := long + "{% set ns = namespace(l=[s]) %}{% for i in range(12) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"
	const steps, size = "template takes more than 4194304 steps", "template builds a str of more than"
	const nested = "nested more than 1000 deep"
	for _, c := range [][2]string{
		{"{% macro f(n) %}{% if n > 0 %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}", steps},
		{"{% set ns = namespace(x=[1]) %}" + double + "{{ ns.x|tojson }}", steps},
		{"{% set ns = namespace(x=[1]) %}" + double + "{{ ns.x|string|length }}", steps},
		{"{% set ns = namespace(x=[1]) %}" + double + "{{ ns.x == ns.x }}", steps},
		{"{% set ns = namespace(x=[1]) %}" + double + "{{ ns.x < ns.x }}", steps},
		{"{% set l = range(200000) %}{{ l|unique|length }}", steps},
		{"{% set l = range(9000) %}{% for i in range(9000) %}{% set y = l|sort %}{% endfor %}", steps},
		{long + "{% for i in range(90000) %}{% set y = s|replace('y', 'z') %}{% endfor %}", steps},
		{long + "{% for i in range(90000) %}{% set y = 'y' in s %}{% endfor %}", steps},
		{long + "{{ s.split('x')|length }}", steps},
		{"{{ 'a'.center(2 ** 60) }}", size},
		{"{{ 'a'|center(2 ** 40) }}", size},
		{"{{ '%999999999d' % 1 }}", "width 999999999: want an int up to"},
		{"{{ '%.*f' % (2 ** 40, 1.5) }}", "width 1099511627776: want an int up to"},
		{"{{ '\t'.expandtabs(2 ** 60) }}", size},
		{"{% for i in range(20000) %}{% set x = (7 ** 10000) * (7 ** 10000) %}{% endfor %}", "template takes more"},
		{"{{ 7 ** 20000 }}", "int of more than 4300 digits"},
		{"{% set s = '%' * 60000000 %}{{ s % 1 }}", steps},
		{long + "{{ s.swapcase()|length }}", steps},
		{long + "{{ '%a' % s }}", size},
		{"{{ [1]|batch(2 ** 30, 0)|list|length }}", steps},
		{"{{ [1]|slice(2 ** 60)|list|length }}", steps},
		{"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "loop: more than 100 calls within calls"},
		{"{% macro m() %}{{ caller() }}{{ m() }}{% endmacro %}{% call m() %}{% endcall %}", "caller is not callable"},
		{"{% set ns = namespace(x=(1,)) %}" + tuples + "{{ {ns.x: 1}|length }}", steps},
		{lists + "{{ ns.l|map('e')|join|length }}", size},
		{long + "{{ s|list|length }}", steps},
		{"{{ [1] * 2 ** 60 }}", steps},
		{"{% set l = [1] %}{% for i in range(99) %}{% set l = l * 9999999 %}{% endfor %}", steps},
		{lists + "{{ ns.l|join|length }}", size},
		{lists + "{{ ''.join(ns.l)|length }}", size},
		{lists + "{{ ns.l|string|length }}", size},
		{lists + "{{ ns.l|tojson|length }}", size},
		{long + "{{ s|replace('', 'yyyy')|length }}", size},
		{long + "{{ (s ~ s)|length }}", size},
		{long + "{% set y %}{{ s }}{{ s }}{% endset %}", size},
		{"{{ 'x' * 2 ** 62 }}", size},
		{"{{ ('a\n' * 9999999)|indent(1000) }}", "template"},
		{"{{ strftime_now('%c' * 9999999) }}", size},
		{deep + "{{ ns.x|tojson }}", nested},
		{deep + "{{ ns.x }}", nested},
		{deep + "{{ ns.x == ns.x }}", nested},
		{deep + "{{ ns.x < ns.x }}", nested},
		{"{{ 10 ** 18000 * 10 ** 18000 }}", "result of more than 65536 bits"},
		{"{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns|tojson }}", "cannot write a namespace as JSON"},
	} {
		source, want := c[0], c[1]
		_, err := render(source, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.100q: error %.200v, want one line with %q", source, err, want)
		}
	}
	for _, c := range [][2]string{
		{"{{ 1.5|round(1000000000) }} {{ 25|round(-1) }} {{ 1.5|round(-9) }}", "1.5 20 0.0"},
		{"{{ '' * 10 ** 18 }}{{ 'x' * -5 }}{{ range(9223372036854775800, 9223372036854775807, 5)|length }}", "2"},
		{"{{ 'abc'[9223372036854775807:-9223372036854775807:-1] }}", "cba"},
		{"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x.x.x }}", "<a namespace>"},
		{"{% set d = dict.fromkeys(range(2000)|map('string')) %}{{ d|length }}", "2000"},
		{long + "{{ s|int(5) }}{{ s|float(6) }}", "56"},
	} {
		source, want := c[0], c[1]
		if got, err := render(source, nil); err != nil || got != want {
			t.Errorf("%q: got %.200q, %v, want %q", source, got, err, want)
		}
	}
	if _, err := FromJSON([]byte(strings.Repeat("[", 1<<20))); err == nil || !strings.Contains(err.Error(), nested) {
		t.Errorf("deep JSON: error %v", err)
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
	raw := func(s string) any { return json.RawMessage(s) }
	for _, bad := range []any{struct{}{}, make(chan int), map[int]int{1: 2}, raw("{"), raw("1 2")} {
		_, err := render("{{ v }}", map[string]any{"v": bad})
		if err == nil || !strings.Contains(err.Error(), "template variable v") {
			t.Errorf("%#v: error %v, want one that names the variable", bad, err)
		}
	}
}

func TestRenderConcurrently(t *testing.T) {
	tmpl, err := Compile("{% macro m(x) %}<{{ x }}>{% endmacro %}{% set ns = namespace(n=0) %}" +
		"{% for i in items %}{% set ns.n = ns.n + i %}{{ m(i) }}{% endfor %}{{ ns.n }}")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 20 {
				got, err := tmpl.Render(map[string]any{"items": []int{n, 1}}, clock)
				if want := fmt.Sprintf("<%d><1>%d", n, n+1); err != nil || got != want {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

// TestRenderTakesAtMostItsTime: a template whose steps are slow ends when its time is over, long before its steps are.
func TestRenderTakesAtMostItsTime(t *testing.T) {
	defer func(d time.Duration) { maxTime = d }(maxTime)
	maxTime = time.Millisecond
	const source = "{% set s = 'é' * 1000000 %}\n{% for i in range(2000) %}{% set t = s | title %}{% endfor %}"
	_, err := render(source, nil)
	if err == nil || err.Error() != "line 2: template takes more than 1ms" {
		t.Errorf("%v, want an error", err)
	}
}

func FuzzTemplate(f *testing.F) {
	fix, vars := readFixture(f)
	for _, row := range fix.Rows {
		f.Add(row.Source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 2000 {
			return
		}
		_, err := render(source, vars)
		// recoverError is for faults that the package raises, not for slips of its own.
		if err != nil && (strings.Contains(err.Error(), "template engine:") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q: %v", source, err)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	tmpl, err := Compile("{% for m in messages %}" +
		"{{ '<|im_start|>' + m.role + '\n' + m['content'] | trim + '<|im_end|>\n' }}" +
		"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
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
