package batch

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/tokenizer"
)

// glue is who writes the blank between a chat template's prompt and its answer. It is asked of tokenizers alone that
// begin every text with a blank, as Llama 2's and Mistral's: models of this kind draw it.
type glue int

const (
	unknown    glue = iota
	anyone          // another tokenizer, or a prompt that ends with white space or a special token
	ofTemplate      // an answer " x" has it already
	ofAnswer        // an answer "x" has other tokens than " x"
)

// probe is a text that no template rewrites.
const probe = "posttrain-probe"

// glue finds out who writes the blank.
func (e *Encoder) glue() glue {
	if e.glued != unknown {
		return e.glued
	}
	e.glued = anyone
	ids, err := e.Tokenizer.Encode("a", false)
	if err != nil || e.Tokenizer.Decode(slices.Concat(ids, ids), false) == "aa" {
		return e.glued
	}
	asks := []tokenizer.Message{{Role: "user", Content: "Hello"}}
	before, err1 := e.Tokenizer.Render(asks, e.renderOptions(true, ""))
	whole, err2 := e.Tokenizer.Render(append(asks, tokenizer.Message{Role: "assistant", Content: probe}),
		e.renderOptions(false, ""))
	tail, ok := strings.CutPrefix(whole, before)
	last, _ := utf8.DecodeLastRuneInString(before)
	ids, err3 := e.Tokenizer.Encode(before, false)
	switch {
	case err1 != nil || err2 != nil || err3 != nil || !ok || len(ids) == 0:
	case strings.HasPrefix(tail, " "+probe):
		e.glued = ofTemplate
	case strings.HasPrefix(tail, probe) && !unicode.IsSpace(last) && !e.Tokenizer.Special(ids[len(ids)-1]):
		e.glued = ofAnswer
	}
	return e.glued
}

// hasGlue says that a text begins with a single blank.
func hasGlue(text string) bool { return strings.HasPrefix(text, " ") && !strings.HasPrefix(text, "  ") }

// unglued is what the assistant says without the blank that the template writes, too.
func (e *Encoder) unglued(m data.Message) string {
	if m.Role == "assistant" && hasGlue(m.Content) && e.glue() == ofTemplate {
		return m.Content[1:]
	}
	return m.Content
}

// keepGlue gives answers that were plain the blank back where the template writes none.
func (e *Encoder) keepGlue(plain, answers []data.Text) {
	for i, a := range plain {
		if m := answers[i].Messages; len(m) == 1 && a.Plain == " "+m[0].Content && e.glue() == ofAnswer {
			m[0].Content = a.Plain
		}
	}
}
