package rollout

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/model"
)

// answer is a request being answered.
type answer struct {
	request Request
	index   int // of the request
	tokens  []int32
	most    int // tokens of prompt and completion
	decoder Decoder
	done    *Completion
	given   []int32  // tokens that follow, which are read and not drawn
	top     []Likely // of the token that was drawn last
}

// newAnswer starts the answer to a request.
func newAnswer(r Request, index int, c *model.Config, d Decoder, done *Completion) *answer {
	if r.StopTokens == nil {
		for _, id := range c.EOS {
			r.StopTokens = append(r.StopTokens, int32(id))
		}
	}
	most := min(len(r.Prompt)+r.MaxNew, c.MaxPositions)
	return &answer{request: r, index: index, tokens: slices.Clone(r.Prompt), most: most, decoder: d, done: done}
}

func (a *answer) isFinished() bool { return a.done.Reason != "" }

// draw returns the number that decides the next token.
func (a *answer) draw() float64 { return draw(a.request.Seed, len(a.done.Tokens)) }

// deviceDraw is the draw of a graph: in float32, or -1 for the first likeliest token.
func (a *answer) deviceDraw() float32 {
	if a.request.Temperature == 0 {
		return -1
	}
	return min(float32(a.draw()), math.Nextafter32(1, 0))
}

// drawsInGraph says whether a graph can draw the answer's tokens from a vocabulary of v.
func (a *answer) drawsInGraph(v int) bool {
	temperature, _ := sumTemperature(a.request)
	if a.request.Top > 0 || !a.request.Adjust.IsNone() {
		return false
	}
	return a.request.Temperature == 0 || temperature == a.request.Temperature && !a.request.truncates(v)
}

// take adds a token and ends the answer if it is the last.
func (a *answer) take(token int32, logp float32) {
	if len(a.given) > 0 {
		a.tokens, a.given = append(a.tokens, token), a.given[1:]
		return
	}
	c := a.done
	c.Tokens, c.Logps, a.tokens = append(c.Tokens, token), append(c.Logps, logp), append(a.tokens, token)
	switch {
	case slices.Contains(a.request.StopTokens, token):
		a.end(EOS)
	case a.hasStop():
		a.end(StopString)
	case len(a.tokens) == a.most:
		a.end(Length)
	}
	if a.request.OnTop != nil {
		a.request.OnTop(a.top)
	}
	if a.request.OnToken != nil {
		a.request.OnToken(token, logp)
	}
}

// stopMargin is added to a stop string's bytes for the number of tokens decoded to find it: some tokens have no
// bytes, and decoders change the beginning of a text.
const stopMargin = 8

// hasStop says whether a stop string ends within the last token. It decodes only the text's end: almost every token
// has at least one byte.
func (a *answer) hasStop() bool {
	if len(a.request.Stop) == 0 {
		return false
	}
	bytes := 0
	for _, s := range a.request.Stop {
		bytes = max(bytes, len(s))
	}
	end := a.decoder.Decode(a.tokens[max(0, len(a.tokens)-bytes-stopMargin):], false)
	stops := a.request.Stop
	return firstOf(end, stops) >= 0 && firstOf(a.text(len(a.done.Tokens), true), stops) >= 0
}

// text is the text of the first n tokens that were drawn, see [AnswerText].
func (a *answer) text(n int, keep bool) string {
	from := len(a.tokens) - len(a.done.Tokens)
	return AnswerText(a.decoder, a.tokens[:from], a.done.Tokens[:n], keep)
}

// firstOf returns the index of the first stop string in a text, or -1.
func firstOf(text string, stops []string) int {
	first := -1
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}

func (a *answer) end(reason string) {
	a.done.Reason = reason
	if a.decoder == nil {
		return
	}
	n := len(a.done.Tokens)
	if reason == EOS {
		n--
	}
	raw := a.text(n, true)
	cut := firstOf(raw, a.request.Stop)
	a.done.Text = a.text(n, a.request.KeepSpecial)
	switch {
	case cut >= 0 && a.done.Text == raw:
		a.done.Text, raw = raw[:cut], raw[:cut]
	case cut >= 0:
		a.done.Text, raw = a.cut(n, raw[:cut]), raw[:cut]
	}
	if raw != a.done.Text {
		a.done.Raw = raw
	}
}

// cut is the text of an answer without special tokens up to a stop text, with them raw: of whole tokens, and of the one
// in which the stop text begins.
func (a *answer) cut(n int, raw string) string {
	for n > 0 && !strings.HasPrefix(raw, a.text(n, true)) {
		n--
	}
	if isSpecial(a.decoder, a.done.Tokens[n]) {
		return a.text(n, false)
	}
	return a.text(n, false) + raw[len(a.text(n, true)):]
}

// goOn continues an answer that has ended with what its request wants more. Its row keeps what it has read.
func (a *answer) goOn() error {
	if !a.isFinished() || a.request.more == nil {
		return nil
	}
	next, err := a.request.more(*a.done)
	if err != nil || next == nil {
		return err
	}
	a.request.Seed, a.given, a.done = next.Seed, next.Prompt[len(a.tokens):], &Completion{}
	a.most = len(next.Prompt) + next.MaxNew
	return nil
}

// extend chooses the next token of every answer on all cores, then adds them in order.
func extend(answers []*answer, choose func(i int) (token int32, logp float32, err error)) error {
	tokens, logps, errs := make([]int32, len(answers)), make([]float32, len(answers)), make([]error, len(answers))
	float.Parallel(len(answers), func(i int) {
		if given := answers[i].given; len(given) > 0 {
			tokens[i] = given[0]
			return
		}
		tokens[i], logps[i], errs[i] = choose(i)
	})
	for i, a := range answers {
		if errs[i] != nil {
			return fmt.Errorf("request %d, token %d: %w", a.index, len(a.done.Tokens), errs[i])
		}
		a.take(tokens[i], logps[i])
		if err := a.goOn(); err != nil {
			return err
		}
		if a.isFinished() && a.request.OnEnd != nil {
			a.request.OnEnd(len(a.done.Tokens))
		}
	}
	return nil
}
