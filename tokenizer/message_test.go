package tokenizer

import (
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestMessagesAsTransformers: transformers 5.24 gives a template these texts: keys that are null are absent, thoughts
// come under each of their names. Arguments of calls that are texts of JSON are objects where a template serialises them.
func TestMessagesAsTransformers(t *testing.T) {
	const (
		call    = `"tool_calls":[{"type":"function","function":{"name":"depth","arguments":`
		asText  = call + `"{\"lake\": \"Lac Léman\", \"n\": 18446744073709551615}"}}]}`
		asDict  = call + `{"lake": "Lac Léman", "n": 18446744073709551615}}}]}`
		prints  = "{% for m in messages %}{{ m.content }}|{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
		looks   = "{% for m in messages %}{% if 'x' in (m.content or '') or ('content' in m and 'x' in m.content) %}X{% endif %}{{ m.content }}{% endfor %}"
		thought = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.reasoning }}{% endfor %}"
		glues   = "{% for m in messages %}{{ m.content }}|{% for c in m.tool_calls %}{{ c.function.arguments + '!' }}{% endfor %}{% endfor %}"
		walks   = "{% for m in messages %}{% for k, v in m.tool_calls[0].function.arguments.items() %}{{ k }}={{ v }} {% endfor %}{% endfor %}"
		once    = "{% for m in messages %}{% if 'tool_calls' in m and m.tool_calls | length != 1 %}" +
			"{{ raise_exception('one call') }}{% endif %}{{ m.content }}{% endfor %}"
	)
	for _, c := range []struct{ template, message, want string }{
		{prints, `{"role":"assistant","content":null,"refusal":null,` + asDict, `|{"lake": "Lac Léman", "n": 18446744073709551615}`},
		{prints, `{"role":"assistant","content":"",` + asText, `|{"lake": "Lac Léman", "n": 18446744073709551615}`},
		{prints, `{"role":"assistant","content":"a",` + call + `"{}"}}]}`, `a|{}`},
		{prints, `{"role":"assistant","content":"a",` + call + `"Iseo"}}]}`, `a|"Iseo"`},
		{glues, `{"role":"assistant","content":"a",` + call + `"{\"n\": 1}"}}]}`, `a|{"n": 1}!`},
		{walks, `{"role":"assistant","content":"a",` + call + `"{\"n\": 1, \"k\": \"b\"}"}}]}`, `n=1 k=b `},
		{looks, `{"role":"assistant","content":null}`, ""},
		{thought, `{"role":"assistant","content":"a","reasoning":"R"}`, "R|R|R"},
		{thought, `{"role":"assistant","content":"a","thinking":"R"}`, "R|R|"},
		{thought, `{"role":"assistant","content":"a","reasoning_content":"R","reasoning":null}`, "R|R|"},
		{once, `{"role":"assistant","content":"a","tool_calls":[]}`, "a"},
	} {
		tok := tokenizerWithTemplate(t, c.template)
		got, err := tok.Render([]Message{{Role: "assistant", Whole: c.message}}, RenderOptions{})
		if err != nil || got != c.want {
			t.Errorf("%s with %s:\n got %q, %v\nwant %q", c.template, c.message, got, err, c.want)
		}
	}
}

func tokenizerWithTemplate(t *testing.T, template string) *Tokenizer {
	t.Helper()
	tok := expect.Must(LoadFS(fstest.MapFS{"chat_template.jinja": {Data: []byte(template)},
		"tokenizer.json": {Data: []byte(`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`)}}, "memory"))(t)
	return tok
}
