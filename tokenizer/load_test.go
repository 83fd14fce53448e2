package tokenizer

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

const tinyModel = `"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}`

// badTokenizers are files with one fault each, and what the error must say.
var badTokenizers = []struct{ tokenizer, config, want string }{
	{`{`, ``, "memory/tokenizer.json: line 1: unexpected end of JSON input"},
	{"{\n\"model\": \n}", ``, "tokenizer.json: line 3: invalid character"},
	{`[]`, ``, "found array, want an object"},
	{`{}`, ``, "tokenizer.json: model: missing"},
	{`{"version": "2.0", ` + tinyModel + `}`, ``, `version "2.0": want "1.0"`},
	{`{"model": {"type": "WordPiece", "vocab": {"a": 0}}}`, ``, `model.type "WordPiece": want BPE`},
	{`{"model": {"type": "Unigram", "vocab": [["a", 0.5]]}}`, ``, `model.type "Unigram": want BPE`},
	{`{"model": {"type": "BPE", "vocab": [1], "merges": []}}`, ``, `model.vocab: found array, want an object`},
	{`{"model": {"type": "BPE", "merges": []}}`, ``, `model.vocab: missing or empty`},
	{`{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}`, ``, `model.vocab: id -1 of`},
	{`{"model": {"type": "BPE", "vocab": {"a": 1, "b": 1}, "merges": []}}`, ``,
		`model.vocab: id 1 of "a" (and "b"): want ids from 0 on, each once`},
	{`{"model": {"type": "BPE", "vocab": {"a": 99999999999}, "merges": []}}`, ``,
		`model.vocab: found number 99999999999, want a number in range`},
	{`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}}`, ``,
		`model: merge "a": want "a b" or ["a", "b"]`},
	{`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "c"]]}}`, ``,
		`model.merges[0]: "c" is not in model.vocab`},
	{`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}}`, ``,
		`model.dropout 0.1: want 0 or null`},
	{`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"}}`, ``,
		`model.end_of_word_suffix "</w>": want none`},
	{`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "continuing_subword_prefix": "##"}}`, ``,
		`model.continuing_subword_prefix "##": want none`},
	{`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "u"}}`, ``,
		`model.unk_token "u": not in model.vocab`},
	{`{"normalizer": {"type": "BertNormalizer"}, ` + tinyModel + `}`, ``,
		`normalizer.type "BertNormalizer": want NFC, NFD`},
	{`{"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]}, ` + tinyModel + `}`, ``,
		`normalizer.normalizers[1].type "Nmt": want`},
	{`{"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}, ` + tinyModel + `}`, ``,
		`normalizer.pattern.Regex: regular expression "("`},
	{`{"normalizer": {"type": "Replace", "pattern": {"Glob": "*"}, "content": ""}, ` + tinyModel + `}`, ``,
		`normalizer.pattern: want {"String": text} or {"Regex": expression}`},
	{`{"normalizer": {"prepend": "x"}, ` + tinyModel + `}`, ``, `normalizer.type: missing`},
	{`{"normalizer": {"type": "Prepend", "prepend": 3}, ` + tinyModel + `}`, ``,
		`normalizer.prepend: found number, want a string`},
	{`{"pre_tokenizer": {"type": "Whitespace"}, ` + tinyModel + `}`, ``,
		`pre_tokenizer.type "Whitespace": want ByteLevel, Split, Digits, Metaspace or Sequence`},
	{`{"pre_tokenizer": {"type": "Split", "pattern": {"String": "x"}, "behavior": "Keep"}, ` + tinyModel + `}`, ``,
		`pre_tokenizer.behavior "Keep": want Removed`},
	{`{"pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}, ` + tinyModel + `}`, ``,
		`pre_tokenizer.replacement "ab": want one character`},
	{`{"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}, ` + tinyModel + `}`, ``,
		`pre_tokenizer.prepend_scheme "last": want always, first or never`},
	{`{"post_processor": {"type": "BertProcessing"}, ` + tinyModel + `}`, ``,
		`post_processor.type "BertProcessing": want TemplateProcessing, ByteLevel or Sequence`},
	{`{"post_processor": {"type": "TemplateProcessing", "single": []}, ` + tinyModel + `}`, ``,
		`post_processor.single: holds the text 0 times, want once`},
	{`{"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]}, ` +
		tinyModel + `}`, ``,
		`special token "x" is not in special_tokens`},
	{`{"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens":
		{"x": {"ids": [-1]}}}, ` + tinyModel + `}`, ``, `special token "x" has the id -1: want 0 or more`},
	{`{"decoder": {"type": "WordPiece"}, ` + tinyModel + `}`, ``, `decoder.type "WordPiece": want ByteLevel`},
	{`{"decoder": {"type": "Strip", "content": ""}, ` + tinyModel + `}`, ``, `decoder.content "": want one character`},
	{`{"added_tokens": [{"content": 1}], ` + tinyModel + `}`, ``, `added_tokens.content: found number, want a string`},
	{`{` + tinyModel + `}`, `{"bos_token": 3}`,
		`tokenizer_config.json: bos_token: found 3, want a string or an object`},
	{`{` + tinyModel + `}`, "{\"bos_token\": [1,\n2]}", `tokenizer_config.json: bos_token: found [1, 2], want`},
	{`{` + tinyModel + `}`, `[1]`, `tokenizer_config.json: found array, want an object`},
	{`{` + tinyModel + `}`, `{"bos_token": {"content": 1}}`,
		`tokenizer_config.json: bos_token.content: found number, want a string`},
	{`{` + tinyModel + `}`, `{"added_tokens_decoder": {"x": {"content": "y"}}}`,
		`added_tokens_decoder: key "x": want a token id`},
	{`{` + tinyModel + `}`, `{"chat_template": 1}`, `chat_template: found number, want a string`},
	{`{` + tinyModel + `}`, `{"chat_template": [{"template": "x"}]}`, `chat_template[0].name: missing`},
}

func TestFaultsAreNamed(t *testing.T) {
	for _, c := range badTokenizers {
		files := map[string][]byte{"tokenizer.json": []byte(c.tokenizer)}
		if c.config != "" {
			files["tokenizer_config.json"] = []byte(c.config)
		}
		_, err := loadFiles(files)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s %s: error %v, want none", c.tokenizer, c.config, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %s:\n error %v\n want one line with %q", c.tokenizer, c.config, err, c.want)
		}
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "tokenizer.json: no such file") {
		t.Errorf("empty folder: error %v", err)
	}
}

func tiny(t *testing.T, config, jinjaFile string) *Tokenizer {
	t.Helper()
	files := map[string][]byte{
		"tokenizer.json":        []byte(`{"added_tokens": [{"content": "<s>", "special": true}], ` + tinyModel + `}`),
		"tokenizer_config.json": []byte(config),
	}
	if jinjaFile != "" {
		files["chat_template.jinja"] = []byte(jinjaFile)
	}
	return expect.Must(loadFiles(files))(t)
}

func TestWhichTemplate(t *testing.T) {
	list := `{"chat_template": [{"name": "default", "template": "plain"},
		{"name": "tool_use", "template": "with {{ tools|length }}"}]}`
	tools := map[string]any{"tools": []string{"x", "y"}}
	for _, c := range []struct {
		name, config, file string
		extra              map[string]any
		want, wantError    string
	}{
		{"file wins", `{"chat_template": "config"}`, "file", nil, "file", ""},
		{"string", `{"chat_template": "config"}`, "", nil, "config", ""},
		{"list", list, "", nil, "plain", ""},
		{"tools", list, "", tools, "with 2", ""},
		{"tools with one template", `{"chat_template": "one {{ tools[1] }}"}`, "", tools, "one y", ""},
		{"none", `{"chat_template": null}`, "", nil, "", "memory: no chat template: want chat_template.jinja"},
		{"no default", `{"chat_template": [{"name": "rag", "template": "r"}]}`, "", nil,
			"", "chat_template has rag: want one called default"},
		{"broken", `{"chat_template": "a\n{% if %}"}`, "", nil,
			"", "memory: chat template: line 2: {% if %}: found the end of the tag"},
		{"refusing", `{"chat_template": "{{ raise_exception('no') }}"}`, "", nil,
			"", "memory: the chat template refuses: no"},
		{"bad variable", `{"chat_template": "x"}`, "", map[string]any{"tools": struct{}{}},
			"", "template variable tools: value of type struct {}"},
	} {
		tok := tiny(t, c.config, c.file)
		if tok.HasTemplate() != (c.name != "none") {
			t.Errorf("%s: HasTemplate %v", c.name, tok.HasTemplate())
		}
		got, err := tok.Render(nil, RenderOptions{Extra: c.extra})
		if c.wantError == "" && (err != nil || got != c.want) {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
		if c.wantError != "" && (err == nil || !strings.Contains(err.Error(), c.wantError)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.wantError)
		}
	}
}

func TestWarnings(t *testing.T) {
	if got := tiny(t, `{"bos_token": "<s>", "add_bos_token": false}`, "").Warnings(); len(got) != 0 {
		t.Errorf("agreement: warnings %q", got)
	}
	got := tiny(t, `{"bos_token": "<s>", "add_bos_token": true}`, "").Warnings()
	want := "memory: add_bos_token is true in tokenizer_config.json, " +
		"but the post_processor of tokenizer.json wins, and it says false"
	if len(got) != 1 || got[0] != want {
		t.Errorf("warnings %q, want %q", got, want)
	}
}

func TestSplitSpecialTokens(t *testing.T) {
	const text = "a<s>b"
	if got := encode(t, tiny(t, `{}`, ""), text, false); len(got) != 3 || got[1] != 3 {
		t.Errorf("got %v, want <s> as 3", got)
	}
	if got := encode(t, tiny(t, `{"split_special_tokens": true}`, ""), text, false); len(got) != 1 || got[0] != 2 {
		t.Errorf("got %v, want it as text: ab with what the vocabulary lacks left out", got)
	}
}

// TestAdditionalTemplates: the layout of transformers 4.51 and later, with a template for tools in a folder of its own. It
// is copied with the tokenizer.
func TestAdditionalTemplates(t *testing.T) {
	dir := filepath.Join("..", "model", "testdata", "qwen2-newer")
	files := fstest.MapFS{"chat_template.jinja": {Data: []byte("plain")},
		"additional_chat_templates/tool_use.jinja": {Data: []byte("Tools: {{ tools | tojson }}")}}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		text := expect.Bytes(t, filepath.Join(dir, name))
		files[name] = &fstest.MapFile{Data: text}
	}
	first := expect.Must(LoadFS(files, "m"))(t)
	copied := t.TempDir()
	expect.OK(t, first.CopyTo(copied))
	second := expect.Must(Load(copied))(t)
	for _, tok := range []*Tokenizer{first, second} {
		for want, tools := range map[string]any{"plain": nil, `Tools: [{"name": "now"}]`: json.RawMessage(`[{"name":"now"}]`)} {
			o := RenderOptions{Extra: map[string]any{"tools": tools}}
			if got, err := tok.Render([]Message{{Role: "user", Content: "Time?"}}, o); err != nil || got != want {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		}
	}
}
