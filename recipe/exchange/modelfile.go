package exchange

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/tokenizer"
)

// writeModelfile writes Ollama's description of the file, and says what it has of the chat template.
func (x *exporter) writeModelfile() (string, error) {
	text := fmt.Sprintf("# %s as %s\nFROM ./%s\n", hub.Short(x.o.Model), x.kind, filepath.Base(x.o.Out))
	said := "without a template: the model has none"
	if x.tokens.HasTemplate() {
		goTemplate, err := ollamaTemplate(x.tokens)
		if err == nil {
			text += `TEMPLATE """` + goTemplate + "\"\"\"\n"
			said = "with the chat template in Ollama's language"
		} else {
			said = "without a template, which Ollama then takes from the file if it knows it: " + err.Error()
		}
	}
	all := x.tokens.Tokens()
	for _, id := range endIDs(x.tokens, x.model.Config) {
		if id < len(all) && all[id].Text != "" && !strings.Contains(all[id].Text, `"`) {
			text += fmt.Sprintf("PARAMETER stop \"%s\"\n", all[id].Text)
		}
	}
	if err := os.WriteFile(x.o.modelfile(), []byte(text), 0o644); err != nil {
		return "", err
	}
	return said, nil
}

// turns are the texts that a chat template puts around the turns of a conversation.
type turns struct {
	Opening string // before a conversation without a system message
	Begin   map[string]string
	End     map[string]string
	Answer  string // the beginning of the assistant's turn
}

// now is any time: a template that prints it is refused, since Ollama's cannot.
var now = time.Date(2001, 2, 3, 0, 0, 0, 0, time.UTC)

// ollamaTemplate is the chat template as a template of Go, which Ollama uses. It is found by rendering conversations,
// and checked on others: an error says that the template does more than put texts around turns.
func ollamaTemplate(t *tokenizer.Tokenizer) (string, error) {
	p, err := findTurns(t)
	if err != nil {
		return "", err
	}
	text := p.template()
	if strings.Contains(text, `"""`) {
		return "", fmt.Errorf(`the chat template has """`)
	}
	for _, c := range trials {
		want, err := render(t, true, c...)
		if err != nil {
			if c[0].Role == "system" && p.Begin["system"] == "" {
				continue
			}
			return "", err
		}
		got, err := renderGo(text, c)
		if err != nil || got != want {
			return "", fmt.Errorf("the chat template does more than put texts around turns")
		}
	}
	return text, nil
}

func say(role, text string) tokenizer.Message { return tokenizer.Message{Role: role, Content: text} }

// trials are conversations in which both templates must agree.
var trials = [][]tokenizer.Message{
	{say("user", "What fits here?")},
	{say("system", "Be brief."), say("user", "One\ntwo")},
	{say("user", "A"), say("assistant", "B, and more."), say("user", "C")},
	{say("system", "S"), say("user", "A"), say("assistant", "B"), say("user", "C"), say("assistant", "D"),
		say("user", "E")},
}

// render is a conversation as the model reads it, without the BOS that Ollama adds.
func render(t *tokenizer.Tokenizer, generation bool, messages ...tokenizer.Message) (string, error) {
	text, err := t.Render(messages, tokenizer.RenderOptions{AddGenerationPrompt: generation, Now: now})
	if err != nil {
		return "", err
	}
	o := tokenizer.RenderOptions{AddGenerationPrompt: generation, Now: now.AddDate(9, 9, 9)}
	later, err := t.Render(messages, o)
	if err != nil || later != text {
		return "", fmt.Errorf("the chat template prints the date")
	}
	ids, err := t.Encode("", true)
	if bos, ok := t.BOS(); err == nil && ok && len(ids) > 0 && ids[0] == bos {
		text = strings.TrimPrefix(text, t.Tokens()[bos].Text)
	}
	return text, err
}

// findTurns takes the texts around turns from conversations of words that no template has.
func findTurns(t *tokenizer.Tokenizer) (turns, error) {
	const u, a, v, s = "USERUSER", "ASSISTANTASSISTANT", "VSERVSER", "SYSTEMSYSTEM"
	p := turns{Begin: map[string]string{}, End: map[string]string{}}
	one, err := render(t, false, say("user", u))
	if err != nil {
		return p, err
	}
	two, err := render(t, false, say("user", u), say("assistant", a))
	if err != nil {
		return p, err
	}
	three, err := render(t, true, say("user", u), say("assistant", a), say("user", v))
	if err != nil {
		return p, err
	}
	_, p.End["user"], _ = strings.Cut(one, u)
	_, p.End["assistant"], _ = strings.Cut(two, a)
	head, rest, _ := strings.Cut(three, u)
	first, rest, _ := strings.Cut(rest, a)
	second, last, found := strings.Cut(rest, v)
	if !found {
		return p, fmt.Errorf("the chat template changes texts")
	}
	p.Begin["assistant"] = strings.TrimPrefix(first, p.End["user"])
	p.Begin["user"] = strings.TrimPrefix(second, p.End["assistant"])
	p.Opening, p.Answer = strings.TrimSuffix(head, p.Begin["user"]), strings.TrimPrefix(last, p.End["user"])
	if with, err := render(t, false, say("system", s), say("user", u)); err == nil {
		p.Begin["system"], with, _ = strings.Cut(with, s)
		between, _, _ := strings.Cut(with, u)
		p.End["system"] = strings.TrimSuffix(between, p.Begin["user"])
	}
	return p, nil
}

// template writes the turns in Go's language of templates.
func (p turns) template() string {
	turn := func(role string) string {
		return literal(p.Begin[role]) + "{{ .Content }}" + literal(p.End[role])
	}
	text := `{{ range $i, $m := .Messages }}`
	if p.Opening != "" {
		text += `{{ if eq $i 0 }}{{ if ne .Role "system" }}` + literal(p.Opening) + `{{ end }}{{ end }}`
	}
	if p.Begin["system"]+p.End["system"] != "" {
		text += `{{ if eq .Role "system" }}` + turn("system") + `{{ end }}`
	}
	for _, role := range []string{"user", "assistant"} {
		text += `{{ if eq .Role "` + role + `" }}` + turn(role) + `{{ end }}`
	}
	return text + `{{ end }}` + literal(p.Answer)
}

// literal is a text of a template of Go that prints s.
func literal(s string) string { return strings.ReplaceAll(s, "{{", `{{ "{{" }}`) }

// renderGo renders a conversation as Ollama does.
func renderGo(text string, messages []tokenizer.Message) (string, error) {
	t, err := template.New("").Parse(text)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{"Messages": messages})
	return out.String(), err
}
