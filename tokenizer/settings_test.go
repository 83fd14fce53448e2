package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const embeddedModel = "../../internal/embedded/model"

const datedTemplate = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}" +
	"{{ strftime_now('%d %b %Y') }}{% if thinking is defined and not thinking %} quiet{% endif %}"

// TestSetChat: template, variables and date hold for every conversation, and the template goes with the files.
func TestSetChat(t *testing.T) {
	tok := load(t, embeddedModel)
	if tok.PrintsDate() {
		t.Error("the folder's template prints a date")
	}
	day := time.Date(2024, 7, 26, 12, 0, 0, 0, time.UTC)
	o := ChatOptions{Template: datedTemplate, Variables: map[string]any{"thinking": false}, Now: day}
	if err := tok.SetChat(o); err != nil || !tok.PrintsDate() {
		t.Fatal(err)
	}
	got, err := tok.Render([]Message{{Role: "user", Content: "Hi"}}, RenderOptions{})
	if want := "user: Hi\n26 Jul 2024 quiet"; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	got, err = tok.Render(nil, RenderOptions{Now: day.AddDate(0, 0, 1), Extra: map[string]any{"thinking": true}})
	if want := "27 Jul 2024"; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	dir := t.TempDir()
	if err := tok.CopyTo(dir); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "chat_template.jinja")); string(text) != datedTemplate {
		t.Errorf("%q", text)
	}
	if again, err := Load(dir); err != nil || !again.PrintsDate() {
		t.Error(err)
	}
	for _, c := range []struct {
		o    ChatOptions
		want string
	}{
		{ChatOptions{Variables: map[string]any{"lang": "en"}}, "the chat template has no variable lang"},
		{ChatOptions{Template: "{{ thinking }}", Variables: map[string]any{"think": 1}}, "has no variable think"},
		{ChatOptions{Template: "{% if %}"}, "chat template"},
	} {
		if err := load(t, embeddedModel).SetChat(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
