package ci

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// formOf is a form with a template of its own.
func formOf(template string) *Form {
	return &Form{Prompt: "own.tmpl", Template: template, Prefill: true}
}

const ownTemplate = `{{define "system"}}You write for the {{.Sender}}.{{end -}}
{{.Scenario}}/{{.Domain}}/{{.Intention}}/{{.Sender}}/{{.Recipient}}/{{.Subject}}/{{.Principle}}
{{.Task}}{{range $i, $a := .Attributes}}
{{$i}} {{.Key}}={{$a.Text}}{{end}}
 
{{if .Prefill}}You think already.{{else}}Think.{{end}}
`

// TestTemplateByHand: every field, the order of the other forms, and the text to its last blank.
func TestTemplateByHand(t *testing.T) {
	item := hotel(t)
	write := expect.Must(formOf(ownTemplate).Writer())(t)
	got, err := write(item, 1)
	want := []data.Message{{Role: "system", Content: "You write for the user."}, {Role: "user", Content: "email/" +
		"Hospitality/book/user/desk/user/Consent\nBook a room\n0 Name=Mira\n1 Chats=Friend: hi\nMe: a\nb\nbye\n" +
		"2 Zip=90210\n \nYou think already.\n"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	if keys := keysOf(item, PromptCoT, 1); strings.Join(keys, " ") != hotelOrder {
		t.Errorf("cot lists %v in this order", keys)
	}
}

// TestAnnotatedTwice: a key on both sides comes once in .Attributes and twice in .Annotated, as in the release.
func TestAnnotatedTwice(t *testing.T) {
	item := hotel(t)
	both := &item.DatasetItem.Annotation
	both.Disallowed = append(slices.Clone(both.Disallowed), Keyword{both.Allowed[0].Key, []string{"x"}})
	for order := range uint64(20) {
		f := item.fields(order, false)
		twice := slices.DeleteFunc(slices.Clone(f.Annotated), func(a listed) bool { return a.Key != both.Allowed[0].Key })
		if len(f.Attributes) != 3 || len(f.Annotated) != 4 || len(twice) != 2 {
			t.Fatalf("%+v", f)
		}
	}
	once := hotel(t)
	if f := once.fields(3, false); !slices.Equal(f.Attributes, f.Annotated) {
		t.Errorf("%+v", f)
	}
}

// TestTemplateFaults: one line with the file, the line, what is wrong and what is accepted, before any item is put in.
func TestTemplateFaults(t *testing.T) {
	const whole = "{{.Task}}{{range .Attributes}}{{.Text}}{{end}}\n"
	for text, want := range map[string][]string{
		whole + "{{.Recipent}}":                                       {"own.tmpl:2: an item has no field .Recipent: want .Scenario, ", ".Recipient"},
		whole + "{{if .Prefill}}\n{{else}}{{.Taks}}{{end}}":           {"own.tmpl:3: an item has no field .Taks"},
		whole + "{{range .Attributes}}\n{{.Value}}{{end}}":            {"own.tmpl:3: an attribute has no field .Value: ", ".Key, .Text of"},
		whole + "{{range $i, $a := .Annotated}}{{$a.Keyword}}{{end}}": {"own.tmpl:2: an attribute has no field .Keyword"},
		whole + "{{range .Attributes}}{{$.Key}}{{end}}":               {"own.tmpl:2: an item has no field .Key"},
		whole + "{{with .Task}}{{.Length}}{{end}}":                    {"own.tmpl:2: this value has no field .Length"},
		whole + "{{$t := .Task}}{{$t.X}}":                             {"own.tmpl:2: this value has no field .X"},
		whole + `{{define "system"}}{{.Who}}{{end}}`:                  {"own.tmpl:2: an item has no field .Who"},
		whole + `{{define "line"}}{{.Whom}}{{end}}{{range .Attributes}}{{template "line" .}}{{end}}`: {
			"own.tmpl:2: an attribute has no field .Whom"},
		whole + "{{(index .Attributes 0).Word}}": {"own.tmpl:2", "Word"},
		whole + "{{.Task":                        {"own.tmpl:2: unclosed action"},
		whole + "{{shout .Task}}":                {`own.tmpl:2: function "shout" not defined`},
		whole + `{{eq .Task 3}}`:                 {"own.tmpl:2", "incompatible types"},
		"{{range .Attributes}}{{.Text}}{{end}}":  {"own.tmpl: the prompt lacks the task: want {{.Task}} in it"},
		"{{.Task}}{{range .Attributes}}{{.Key}}{{end}}": {"own.tmpl: the prompt lacks the information: want " +
			"{{range .Attributes}}"},
		"\xff":                             {"own.tmpl: not UTF-8"},
		strings.Repeat("x", maxTemplate+1): {"own.tmpl: longer than 64 KiB"},
		`{{define "a"}}{{template "a" .}}{{.Who}}{{end}}{{template "a" .}}`: {"own.tmpl:1", "exceeded maximum template depth"},
	} {
		_, err := formOf(text).Writer()
		wantError(t, err, want...)
	}
	for _, text := range []string{
		whole + "{{range $i, $a := .Attributes}}{{if $i}}, {{end}}{{$a.Key}}{{end}}{{len .Attributes}}",
		whole + "{{with $x := index .Attributes 0}}{{$x.Key}}{{.Text}}{{end}}{{printf \"%s\" $.Task}}",
		whole + `{{$a := .Task}}{{range $a := .Attributes}}{{$a.Key}}{{end}}{{$a}}{{/* .No */}}`,
		whole + `{{define "line"}}{{.Key}}{{$.Text}}{{end}}{{range .Attributes}}{{template "line" .}}{{end}}`,
	} {
		if _, err := formOf(text).Writer(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestLoad: a form takes its text from the file unless it has it; the other forms have none.
func TestLoad(t *testing.T) {
	path := expect.File(t, "own.tmpl", ownTemplate)
	f := Form{Prompt: path}
	if err := f.Load(); err != nil || f.Template != ownTemplate {
		t.Errorf("%v, %q", err, f.Template)
	}
	kept := Form{Prompt: "gone.tmpl", Template: ownTemplate}
	if err := kept.Load(); err != nil {
		t.Error(err)
	}
	wantError(t, (&Form{Prompt: "gone.tmpl"}).Load(), "gone.tmpl: no such file", "released, answer or a file with a template")
	wantError(t, (&Form{Prompt: t.TempDir()}).Load(), "is a directory", "a file with a template")
	wantError(t, (&Form{Prompt: PromptCoT, Template: "x"}).Load(), "prompt cot has its own words", "remove one")
	for kind, thinks := range map[string]bool{PromptCompact: false, PromptPlain: false, PromptCoT: true, PromptAnswer: false,
		PromptReleased: true, "own.tmpl": true} {
		f := Form{Prompt: kind}
		if f.Thinks() != thinks || f.IsFile() != strings.HasSuffix(kind, ".tmpl") {
			t.Errorf("%s: thinks %v, file %v", kind, f.Thinks(), f.IsFile())
		}
	}
}

// exported is a line of hashes.jsonl, about an item.
type exported struct {
	Row    int      `json:"row"` // of the data file, from 1
	Keys   []string `json:"keys"`
	SHA256 string   `json:"sha256"` // of the prompt
}

// TestReleasedPrompts: the form released gives, for every item that the release keeps, the prompt that the release's own
// code gave, in the order that it drew.
func TestReleasedPrompts(t *testing.T) {
	if f := (Form{Prompt: "released/prompt.tmpl"}); f.Load() != nil || !f.IsReleased() {
		t.Error("the template's file is not the form released")
	}
	f := Form{Prompt: PromptReleased, Prefill: true}
	items, _, err := ReadItems(need.File(t, "data", "contextual-integrity/dataset.json"), ReleasedItems)
	if err != nil || len(items) != 639 {
		t.Fatalf("%d items, want 639: %v", len(items), err)
	}
	compared := 0
	err = data.ReadLines("testdata/released/hashes.jsonl", func(line int, row exported) error {
		item := items[line-1]
		if place := fmt.Sprint(": row ", row.Row); !strings.HasSuffix(item.Source, place) {
			return fmt.Errorf("we keep %s, the release keeps%s", item.Source, place)
		}
		prompt := inOrder(t, &f, item, row.Keys)
		if sum := sha256.Sum256([]byte(prompt)); hex.EncodeToString(sum[:]) != row.SHA256 {
			t.Errorf("row %d: another prompt than the release's: %q", row.Row, prompt)
		}
		compared++
		return nil
	})
	if err != nil || compared != len(items) {
		t.Errorf("%d prompts, want %d: %v", compared, len(items), err)
	}
}

// inOrder is the prompt of an item whose attributes are listed in the order of keys.
func inOrder(t *testing.T, f *Form, item Item, keys []string) string {
	t.Helper()
	values, texts := item.fields(0, f.Prefill), map[string]string{}
	var ours []string
	for _, a := range values.Annotated {
		ours, texts[a.Key] = append(ours, a.Key), a.Text
	}
	if slices.Sort(ours); !slices.Equal(ours, slices.Sorted(slices.Values(keys))) {
		t.Fatalf("%s: the release lists %v, we %v", item.Source, keys, ours)
	}
	values.Annotated = nil
	for _, key := range keys {
		values.Annotated = append(values.Annotated, listed{key, texts[key]})
	}
	messages := expect.Must(released.fill(values))(t)
	if len(messages) != 1 || messages[0].Role != "user" {
		t.Fatalf("%+v: the release has one message of the user", messages)
	}
	return messages[0].Content
}
