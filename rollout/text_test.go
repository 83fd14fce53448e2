package rollout

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/tokenizer"
)

// marks is a tokenizer of Llama 2's kind, with the prompt "The lake".
func marks(t *testing.T) (tok *tokenizer.Tokenizer, lake []int32) {
	t.Helper()
	tok = expect.Must(tokenizer.Load("testdata/first-blank"))(t)
	return tok, []int32{624, 1159}
}

// engin, ir and kee are tokens of "▁engin", "IR" and "▁kee"; eos and extra are special tokens, </s> and <x>.
const (
	engin, ir, kee = 574, 547, 957
	bos, eos, x    = 1, 2, 1158
)

var smile = []int32{243, 162, 156, 133} // four bytes

// TestAnswerText: the text of an answer is decode(prompt + answer) behind the prompt, as tokenizers 0.23 decodes; a
// stream's pieces make it up, and know where tokens start.
func TestAnswerText(t *testing.T) {
	tok, lake := marks(t)
	for _, c := range []struct {
		prompt, answer []int32
		text, raw      string
		starts         []int
	}{
		{lake, []int32{engin, ir, 708}, " enginIRmpt", " enginIRmpt", []int{0, 6, 8}},
		{lake, []int32{1116, 1106}, " utws", " utws", []int{0, 3}},
		{[]int32{bos}, []int32{engin, ir}, "enginIR", " enginIR", []int{0, 5}},
		{lake, slices.Concat([]int32{engin, eos, ir, x, kee}, smile, []int32{engin}), " enginIR kee🙂 engin",
			" engin</s>IR<x> kee🙂 engin", []int{0, 6, 6, 8, 8, 12, 12, 12, 12, 13}},
		{[]int32{bos, 624, 1159, eos}, []int32{engin}, " engin", " engin", []int{0}},
		{lake, slices.Concat(smile, []int32{engin}, smile), "🙂 engin🙂", "🙂 engin🙂", []int{0, 0, 0, 0, 1, 7, 7, 7, 7}},
		{slices.Concat(lake, smile[:2]), slices.Concat(smile[2:], []int32{engin}), "🙂 engin", "🙂 engin",
			[]int{0, 0, 1}},
		{append(slices.Clone(lake), 346), []int32{engin, 346}, " engin ", " engin ", []int{0, 6}},
	} {
		for _, keep := range []bool{false, true} {
			want := map[bool]string{false: c.text, true: c.raw}[keep]
			if got := AnswerText(tok, c.prompt, c.answer, keep); got != want {
				t.Errorf("%v %v, keep %v: %q, want %q", c.prompt, c.answer, keep, got, want)
			}
			s := stream(t, Request{Prompt: c.prompt, Sampling: Sampling{KeepSpecial: keep}}, tok, c.answer)
			if s.Text != want || !keep && (cmp.Or(s.Raw, s.Text) != c.raw || !slices.Equal(s.Starts(), c.starts)) {
				t.Errorf("%v %v, keep %v: stream %q, %q, starts %v; want %q, %v", c.prompt, c.answer, keep, s.Text, s.Raw,
					s.Starts(), want, c.starts)
			}
		}
	}
}

// stream feeds an answer to a stream, and checks that the pieces make up its text.
func stream(t *testing.T, r Request, d Decoder, answer []int32) *Stream {
	t.Helper()
	c := testkit.Config(t, "llama")
	c.MaxPositions = 1000
	r.MaxNew, r.StopTokens = len(answer), []int32{}
	s, pieces := NewStream(r, c, d), ""
	for _, token := range answer {
		if !s.IsComplete() {
			pieces += s.Take(token, -1)
		}
	}
	if !s.IsComplete() || pieces != s.Text {
		t.Errorf("%v: pieces %q, text %q, %s", answer, pieces, s.Text, s.Reason)
	}
	return s
}

// TestStopTextsWithSpecialTokens: a stop text may have special tokens, which the text leaves out, and blanks at the
// beginning of an answer.
func TestStopTextsWithSpecialTokens(t *testing.T) {
	tok, lake := marks(t)
	answer := []int32{engin, ir, x, kee, engin}
	for stop, want := range map[string][2]string{
		" engin":  {"", ""},
		"ginIR":   {" en", ""},
		"<x>":     {" enginIR", ""},
		"IR<x>":   {" engin", ""},
		"R<x> k":  {" enginI", ""},
		"> ke":    {" enginIR", " enginIR<x"},
		"ee engi": {" enginIR k", " enginIR<x> k"},
		"never":   {" enginIR kee engin", " enginIR<x> kee engin"},
	} {
		s := stream(t, Request{Prompt: lake, Sampling: Sampling{Stop: []string{stop}}}, tok, answer)
		if s.Text != want[0] || s.Raw != want[1] || (s.Reason == StopString) != !strings.HasPrefix(stop, "never") {
			t.Errorf("stop %q: %q, %q, %s; want %q", stop, s.Text, s.Raw, s.Reason, want)
		}
	}
}

// TestRowsOfAnswersTrainWhatWasDrawn: a row of a prompt and its answer's text has the tokens that the model drew.
func TestRowsOfAnswersTrainWhatWasDrawn(t *testing.T) {
	tok, lake := marks(t)
	e := batch.Encoder{Tokenizer: tok}
	for _, drawn := range [][]int32{{kee, 77, 708, 562}, {engin, ir, 708}, smile} {
		g, err := e.Demonstration(data.Demonstration{Prompt: data.Text{Plain: "The lake"},
			Completion: data.Text{Plain: AnswerText(tok, lake, drawn, false)}}, batch.Completion)
		if err != nil || !slices.Equal(g.Prompt, lake) || !slices.Equal(g.Answers[0], append(drawn, eos)) {
			t.Errorf("drawn %v: %v %v, %v", drawn, g.Prompt, g.Answers, err)
		}
	}
}
