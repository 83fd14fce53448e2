package data

import (
	"reflect"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestLabelled(t *testing.T) {
	text := `{"prompt":"Q","completion":"A","label":true}
{"prompt":[{"role":"user","content":"Q"}],"completion":[{"role":"assistant","content":"A"}],"label":0}
{"prompt":"Q","chosen":"A","rejected":"B"}
{"prompt":"Q","chosen":"A","rejected":"A"}
{"prompt":"","completion":"A","label":1}
{"prompt":"Q","completion":"","label":1}
{"prompt":"Q","responses":["worse","better"],"scores":[1,2]}
{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},{"role":"user","content":"No."}],"label":0}
{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}],"label":true}
`
	got, report, err := ReadLabelled(mapFS("k.jsonl", text), "k.jsonl")
	expect.OK(t, err)
	answer := func(line, text string, desirable bool) Labelled {
		return Labelled{Demonstration{plainText("Q"), plainText(text), "k.jsonl:" + line}, desirable}
	}
	want := []Labelled{answer("1", "A", true),
		{Demonstration{conversation("user", "Q"), conversation("assistant", "A"), "k.jsonl:2"}, false},
		answer("3", "A", true), answer("3", "B", false), answer("7", "better", true), answer("7", "worse", false),
		{Demonstration{conversation("user", "Q"), conversation("assistant", "A"), "k.jsonl:9"}, true}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	const says = `k.jsonl: 9 rows read, 5 kept
  dropped 1: chosen and rejected are equal (first: k.jsonl:4)
  dropped 1: no prompt (first: k.jsonl:5)
  dropped 1: completion is empty (first: k.jsonl:6)
  dropped 1: the last message is not the assistant's (first: k.jsonl:8)
  note: 2: a pair is split into a desirable answer and an undesirable one (first: k.jsonl:3)`
	if report.String() != says {
		t.Errorf("report\n%s\nwant\n%s", report, says)
	}
}

func TestLabelledErrors(t *testing.T) {
	for row, want := range map[string]string{
		`{"prompt":"Q","completion":"A"}`: "k.jsonl:1: found columns completion, prompt, which sft reads (demonstrations): want prompt, completion " +
			"and label (true or false), or the columns of preference pairs",
		`{"prompt":"Q","completion":"A","label":"good"}`: `k.jsonl:1: label is the string "good": want true or false`,
		`{"prompt":"Q","completion":"A","label":2}`:      "k.jsonl:1: label is 2: want true or false",
		`{"prompt":"Q","completion":"A","label":[1]}`:    "k.jsonl:1: label is a list: want true or false",
		`{"chosen":"A"}`: "k.jsonl:1: found columns chosen, which mappo and reward-model read (pairs): want prompt, chosen, rejected",
	} {
		_, _, err := ReadLabelled(mapFS("k.jsonl", row), "k.jsonl")
		expect.Error(t, err, want)
	}
}
