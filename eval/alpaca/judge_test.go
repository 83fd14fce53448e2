package alpaca

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestReadChoice(t *testing.T) {
	for reply, want := range map[string]Choice{
		"m": {0, "m", true}, "M": {1, "M", true}, " **M**.\n": {1, "M", true}, "Model M is better": {1, "M", true},
		"It's a tie": {0.5, "tie", true}, "m or M": {}, "m, M": {}, "I'm not sure": {}, "": {}, "Mm": {},
		"<think>m or M?</think>\nM": {1, "M", true}, "I’m for m": {0, "m", true},
	} {
		if got := ReadChoice(reply, nil); got != want {
			t.Errorf("%q: %+v, want %+v", reply, got, want)
		}
	}
	for _, c := range []struct {
		top  map[string]float64
		want float64
	}{
		{map[string]float64{"m": math.Log(0.2), "M": math.Log(0.6), "x": math.Log(0.1)}, 0.75},
		{map[string]float64{"m": math.Log(0.6), "x": math.Log(0.2)}, 0.25}, // M counts as x, the least likely
		{map[string]float64{"M": math.Log(0.6), "x": math.Log(0.2)}, 0.75},
	} {
		if got := ReadChoice("x", c.top); math.Abs(got.Second-c.want) > 1e-12 || !got.Parsed {
			t.Errorf("%v: %+v, want %v", c.top, got, c.want)
		}
	}
	if got := ReadChoice("M", map[string]float64{"The": -0.1}); got != (Choice{1, "M", true}) {
		t.Errorf("%+v: want the words where no letter is among the likeliest tokens", got)
	}
	if got := ReadChoice("m", map[string]float64{"m": -0.1}); got != (Choice{0, "m", true}) {
		t.Errorf("%+v: want the words where the server gives one token alone", got)
	}
}

// TestModelFirst: both orders come as often as a coin says, each from the seed and the instruction alone.
func TestModelFirst(t *testing.T) {
	n, changed := 0, 0
	for i := range 805 {
		instruction := fmt.Sprint("Say ", i)
		if ModelFirst(0, instruction) {
			n++
		}
		if ModelFirst(0, instruction) != ModelFirst(1, instruction) {
			changed++
		}
	}
	for _, count := range []int{n, changed} { // 402.5 with a deviation of 14
		if count < 345 || count > 460 {
			t.Errorf("the model is first in %d of 805, another seed changes %d", n, changed)
		}
	}
}

func TestReadPrompts(t *testing.T) {
	p, err := ReadPrompts("")
	if err != nil {
		t.Fatal(err)
	}
	m := p.Messages("Why {x}?", "One.", "{instruction}")
	if len(m) != 2 || m[0].Role != "system" || !strings.Contains(m[1].Content, "Why {x}?\n") ||
		strings.Index(m[1].Content, "One.") > strings.Index(m[1].Content, "{instruction}") {
		t.Errorf("%+v", m)
	}
	for text, want := range map[string]string{
		`{"role":"user","content":"{instruction} {output_1} {output_2}"}`:             "",
		`{"role":"user","content":"{instruction} {output_1}"}`:                        "no {output_2}",
		`{"role":"user","content":"{instruction} {output_1} {output_2} {reference}"}`: "{reference} is no field",
		`{"role":"judge","content":"x"}`:                                              "p.jsonl:1: want role",
		`{"role":"system","content":"{instruction} {output_1} {output_2}"}`:           "the last message is not the user's",
		"": "",
	} {
		path := expect.File(t, "p.jsonl", text)
		got, err := ReadPrompts(path)
		switch {
		case text == "":
			want = "the last message is not the user's"
		case want == "" && (err != nil || got.Hash == p.Hash):
			t.Errorf("%v", err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
