package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/tokenizer"
)

// A Finding is one way in which rows would train something else than the user wants.
type Finding struct {
	Problem string   `json:"problem"` // in words, with what to do
	Example string   `json:"example"` // what the first row shows
	Rows    []string `json:"rows"`    // where it was found: "pairs.jsonl:41"
}

func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s", recipe.Count(len(f.Rows), "row"), f.Problem)
	if f.Example != "" {
		text += "; " + f.Example
	}
	return fmt.Sprintf("%s (first %s)", text, f.Rows[0])
}

// row is a demonstration with its tokens as training has them.
type row struct {
	demo data.Demonstration
	batch.Group
	cut bool // by the limits
}

// examiner looks at the tokens of rows.
type examiner struct {
	*recipe.Rehearsal
	config    *model.Config
	tokenizer *tokenizer.Tokenizer
	findings  []Finding
}

// encode makes tokens of the rows that the limits keep.
func (x *examiner) encode(demos []data.Demonstration) (rows []row, err error) {
	e := x.Chat.Encoder(x.tokenizer)
	for _, d := range demos {
		if d.Completion.Blank() {
			x.add("the answer is empty, so that the run leaves the row out: give it one, or remove the row", "",
				d.Source)
			continue
		}
		if x.LossOn == "last" {
			d = d.Last()
		}
		g, err := e.Demonstration(d, batch.Target(x.LossOn))
		if err != nil {
			return nil, err
		}
		n := len(g.Answers[0])
		groups := []batch.Group{g}
		if l := batch.Limit(groups, x.Limits, x.config.MaxPositions, x.tokenizer.Begin()); len(l.Keep) > 0 {
			rows = append(rows, row{d, groups[0], len(groups[0].Answers[0]) < n})
		}
	}
	if len(rows) == 0 && len(x.findings) == 0 {
		err = errors.New("no row is left after the limits (data.max_tokens and its like): want longer ones")
	}
	return rows, err
}

// add notes a finding of a row, together with the rows that have the same problem.
func (x *examiner) add(problem, example, source string) {
	i := slices.IndexFunc(x.findings, func(f Finding) bool { return f.Problem == problem })
	if i < 0 {
		i, x.findings = len(x.findings), append(x.findings, Finding{Problem: problem, Example: example})
	}
	x.findings[i].Rows = append(x.findings[i].Rows, source)
}

func (x *examiner) examine(r row) {
	x.examineStart(r)
	x.examineEnds(r)
	x.examineWords(r)
	x.examineAnswer(r)
}

// examineStart wants the beginning that the tokenizer gives a text, once.
func (x *examiner) examineStart(r row) {
	bos, ok := x.tokenizer.BOS()
	if !ok || r.cut && r.Prompt[0] != bos {
		return
	}
	ids := slices.Concat(r.Prompt, r.Answers[0])
	bare, err := x.tokenizer.Encode("a", true)
	switch name := x.tokenizer.Decode([]int32{bos}, false); {
	case len(ids) > 1 && ids[0] == bos && ids[1] == bos:
		x.add(fmt.Sprintf("the text begins with %s twice: remove it from the chat template or from the data", name),
			"", r.demo.Source)
	case err == nil && len(bare) > 0 && bare[0] == bos && ids[0] != bos:
		x.add(fmt.Sprintf("the text does not begin with %s, as all texts of this tokenizer do: add {{ bos_token }} to "+
			"the chat template", name), "", r.demo.Source)
	}
}

// trainedStretches are the stretches of the answer that the loss is on.
func (r row) trainedStretches() (all [][]int32) {
	from := -1
	for i := range len(r.Answers[0]) + 1 {
		on := i < len(r.Answers[0]) && r.IsPredicted(0, i)
		if on && from < 0 {
			from = i
		}
		if !on && from >= 0 {
			all, from = append(all, r.Answers[0][from:i]), -1
		}
	}
	return all
}

func (x *examiner) stops(id int32) bool { return slices.Contains(x.config.EOS, int(id)) }

// examineEnds wants a stop token at the end of every answer, and there alone.
func (x *examiner) examineEnds(r row) {
	trained := r.trainedStretches()
	if len(trained) == 0 {
		x.add("no token of the answer has a weight in the loss: remove \"train\": false", "", r.demo.Source)
	}
	for _, ids := range trained {
		at := slices.IndexFunc(ids, x.stops)
		if x.LossOn == "all" { // the turns before the answer have stop tokens, too
			for at = len(ids) - 1; at >= 0 && !x.stops(ids[at]); at-- {
			}
		}
		switch {
		case at < 0 && r.cut:
			x.add("the limits cut the answer's end away, so that the model does not learn to stop: raise "+
				"data.max_tokens or set data.truncate none", "", r.demo.Source)
		case at < 0:
			x.add(fmt.Sprintf("the answer does not end with a token at which the model stops (%s, of eos_token_id in "+
				"generation_config.json or config.json): correct it or the chat template", x.stopNames()),
				x.ending(ids), r.demo.Source)
		case x.blank(ids[at+1:], ids[at]):
		default:
			x.add(fmt.Sprintf("the token %s, at which the model stops, is not the answer's last: an answer would be "+
				"cut there", x.tokenizer.Decode(ids[at:at+1], false)), x.ending(ids), r.demo.Source)
		}
	}
}

// blank says that what follows the stop token is white space, or another stop token: Phi-3's texts end with <|end|>,
// then <|endoftext|>.
func (x *examiner) blank(ids []int32, stop int32) bool {
	rest := slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return id != stop && x.stops(id) })
	return strings.TrimSpace(x.tokenizer.Decode(rest, false)) == ""
}

func (x *examiner) stopNames() string {
	var names []string
	for _, id := range x.config.EOS {
		names = append(names, fmt.Sprintf("%q", x.tokenizer.Decode([]int32{int32(id)}, false)))
	}
	if names == nil {
		return "found no such token"
	}
	return strings.Join(names, ", ")
}

// ending shows the last tokens of an answer.
func (x *examiner) ending(ids []int32) string {
	var last []string
	for _, id := range ids[max(0, len(ids)-6):] {
		last = append(last, fmt.Sprintf("%q", x.tokenizer.Decode([]int32{id}, false)))
	}
	return "it ends with the tokens " + strings.Join(last, " ")
}

// examineWords wants the words of every message among the tokens. Thoughts of earlier answers may be missing: many
// templates leave them out.
func (x *examiner) examineWords(r row) {
	if r.cut {
		return
	}
	text := joinThoughts(x.tokenizer.Decode(slices.Concat(r.Prompt, r.Answers[0]), false))
	for i, m := range slices.Concat(r.demo.Prompt.Messages, r.demo.Completion.Messages) {
		before := i < len(r.demo.Prompt.Messages)
		if m.Calls() != "" || m.Thoughts() != "" || before && m.Role == "assistant" || strings.Contains(text, joinThoughts(m.Content)) {
			continue
		}
		x.add(fmt.Sprintf("the words of a message of role %s are not among the tokens: the chat template drops or "+
			"changes them, or the tokenizer does", m.Role), fmt.Sprintf("missing %.60q", m.Content), r.demo.Source)
	}
}

var thoughtMarks = regexp.MustCompile(`\s*(</?think>)\s*`)

// joinThoughts is a text without white space around it and around the marks of thoughts, which templates set anew.
func joinThoughts(text string) string {
	return strings.TrimSpace(thoughtMarks.ReplaceAllString(text, "$1"))
}

// emptyThought is what templates put before an answer without thoughts.
var emptyThought = regexp.MustCompile(`^\s*(<think>\s*</think>)?\s*$`)

// examineAnswer wants the answer's words back when its tokens become text as a server makes it, and nothing else.
func (x *examiner) examineAnswer(r row) {
	want, ok := r.answer()
	ids := r.Answers[0]
	if at := slices.IndexFunc(ids, x.stops); at >= 0 {
		ids = ids[:at]
	}
	if !ok || r.cut || r.bare() || x.LossOn == "all" || len(r.demo.Completion.Messages) > 1 {
		return
	}
	want = joinThoughts(want)
	got := joinThoughts(x.tokenizer.Decode(ids, true))
	before, after, found := strings.Cut(got, want)
	switch {
	case !found:
		x.add("the answer's words are not those that its tokens give back: a token is marked as special, which "+
			"transformers and servers leave out, or the tokenizer changes words",
			fmt.Sprintf("%.60q becomes %.60q", want, got), r.demo.Source)
	case !emptyThought.MatchString(before) || strings.TrimSpace(after) != "":
		x.add("the model would learn to write more than the answer: add_generation_prompt of the chat template must "+
			"give all that comes before an answer", fmt.Sprintf("%.60q becomes %.60q", want, got), r.demo.Source)
	}
}

// answer is the last message's text without white space around it; not ok where it calls tools.
func (r row) answer() (text string, ok bool) {
	text = r.demo.Completion.Plain
	if n := len(r.demo.Completion.Messages); n > 0 {
		last := r.demo.Completion.Messages[n-1]
		if text = last.Content; last.Calls() != "" || last.Thoughts() != "" {
			return "", false
		}
	}
	return strings.TrimSpace(text), strings.TrimSpace(text) != ""
}
