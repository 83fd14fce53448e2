package batch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestScoredPairsEndAtTheirLastTokens: the one slot of each answer is predicted from the whole text, and rows that
// share what the texts begin with do not change that.
func TestScoredPairsEndAtTheirLastTokens(t *testing.T) {
	e := folder(t, "qwen2-newer")
	pad := 303 // <|im_end|>
	messages := func(role, text string) data.Text {
		return data.Text{Messages: []data.Message{{Role: role, Content: text}}}
	}
	for _, answers := range [][]data.Text{
		{messages("assistant", "The report."), messages("assistant", "The letter, and the report.")},
		{messages("assistant", "The"), messages("assistant", "The report")},
		{messages("assistant", "The report.")},
	} {
		g := expect.Must(e.Scored("p:1", &pad, messages("user", "What is ready?"), answers...))(t)
		for _, share := range []bool{false, true} {
			p := Pack([]Group{g, g}, Layout{Share: share, Pad: 3})
			of := map[int]string{}
			for slot, a := range p.Ends() {
				if a >= 0 {
					if of[int(a)] != "" {
						t.Errorf("answer %d ends twice", a)
					}
					of[int(a)] = visibleText(p, slot)
				}
			}
			if len(of) != 2*len(answers) {
				t.Errorf("%d answers end, want %d", len(of), 2*len(answers))
			}
			for a, text := range of {
				ids := expect.Must(e.whole(messages("user", "What is ready?"), answers[a%len(answers)]))(t)
				if want := fmt.Sprint(wordsOf(withoutPadding(ids, &pad))); text != want {
					t.Errorf("share %v: answer %d is scored by %s\nwant %s", share, a, text, want)
				}
			}
		}
	}
}

func wordsOf(ids []int32) (words []string) {
	for i, id := range ids {
		words = append(words, fmt.Sprint(i, ":", id))
	}
	return words
}

func TestWithoutPadding(t *testing.T) {
	pad := 9
	for _, c := range []struct{ ids, want []int32 }{
		{[]int32{1, 9, 2, 9, 9}, []int32{1, 9, 2}}, {[]int32{9, 9}, []int32{9}}, {[]int32{1, 2}, []int32{1, 2}},
	} {
		if got := withoutPadding(c.ids, &pad); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.ids, got, c.want)
		}
		if got := withoutPadding(c.ids, nil); !slices.Equal(got, c.ids) {
			t.Errorf("%v without a pad token: %v", c.ids, got)
		}
	}
}

func TestScoredRefusesMixedForms(t *testing.T) {
	_, err := folder(t, "qwen2-newer").Scored("p:3", nil, data.Text{Plain: "Q"},
		data.Text{Messages: []data.Message{{Role: "assistant", Content: "A"}}})
	if err == nil || err.Error() != "p:3: the prompt and the completion must both be text or both be messages" {
		t.Error(err)
	}
}
