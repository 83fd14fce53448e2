package batch

import (
	"reflect"
	"testing"

	"github.com/posttrain/posttrain/data"
)

// TestConverse: plain rows have the tokens of the same conversations, in every method; they are counted.
func TestConverse(t *testing.T) {
	plain, chat := folder(t, "qwen2-newer"), folder(t, "qwen2-newer")
	plain.Converse = true
	text := func(s string) data.Text { return data.Text{Plain: s} }
	message := func(role, s string) data.Text { return data.Text{Messages: []data.Message{{Role: role, Content: s}}} }
	for name, encode := range map[string]func(e *Encoder, prompt, good, bad data.Text) (any, error){
		"pair": func(e *Encoder, p, good, bad data.Text) (any, error) {
			return e.Preference(data.Preference{Prompt: p, Chosen: good, Rejected: bad})
		},
		"demonstration": func(e *Encoder, p, good, _ data.Text) (any, error) {
			return e.Demonstration(data.Demonstration{Prompt: p, Completion: good}, Completion)
		},
		"whole demonstration": func(e *Encoder, p, good, _ data.Text) (any, error) {
			return e.Demonstration(data.Demonstration{Prompt: p, Completion: good}, All)
		},
		"prompt": func(e *Encoder, p, _, _ data.Text) (any, error) { return e.Prompt(p) },
		"prefilled": func(e *Encoder, p, _, _ data.Text) (any, error) {
			return e.Prefilled(p, "<think>\n")
		},
		"scored": func(e *Encoder, p, good, bad data.Text) (any, error) { return e.Scored("", nil, p, good, bad) },
	} {
		plain.Plain = 0
		got, err1 := encode(plain, text("France?"), text("Paris"), text(" London"))
		want, err2 := encode(chat, message("user", "France?"), message("assistant", "Paris"),
			message("assistant", "London"))
		if err1 != nil || err2 != nil || !reflect.DeepEqual(got, want) || plain.Plain != 1 {
			t.Errorf("%s: %v, %v, counted %d; the conversation: %v, %v", name, got, err1, plain.Plain, want, err2)
		}
	}
	bare := data.Demonstration{Completion: text("a text without a prompt")}
	got, err1 := plain.Demonstration(bare, Completion)
	want, err2 := chat.Demonstration(bare, Completion)
	if err1 != nil || err2 != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("text alone: %v, %v: want %v, %v", got, err1, want, err2)
	}
	pair := data.Preference{Prompt: text("a"), Chosen: text("b"), Rejected: text("c")}
	all, err := EncodeAll(t.Context(), plain, []data.Preference{pair, pair}, (*Encoder).Preference)
	if err != nil || plain.Plain != 3 || len(all) != 2 {
		t.Errorf("%d counted, %v", plain.Plain, err)
	}
}
