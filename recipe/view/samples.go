package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/page"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/reward"
)

// stacks are the files of samples that a run folder may have, with the label of their set; "": a set for each step.
var stacks = []struct{ name, label string }{
	{run.TestBeforeName, "test before training"}, {"samples.jsonl", ""}, {run.TestAfterName, "test after training"},
	{"results.jsonl", "results"},
}

// stack is a file of samples.
type stack struct {
	tail
	label string
	sets  []*set
}

// set are samples that belong together.
type set struct {
	label string
	from  *stack
	rows  []place
}

// place is where a sample is in its file.
type place struct {
	at, length int64
	item       string // what it answers
	reward     float64
}

// read reads the samples that are new.
func (s *stack) read() error {
	return s.tail.read(func() { s.sets = nil }, func(at int64, text []byte) error {
		var row struct {
			Step   int
			Item   string
			Sample int
			Reward float64
		}
		if json.Unmarshal(text, &row) != nil {
			return errors.New("not a sample of a run: want a JSON object with an item")
		}
		label := s.label
		if label == "" {
			label = fmt.Sprintf("step %d", row.Step)
		}
		if row.Sample > 0 {
			row.Item += fmt.Sprintf(", answer %d", row.Sample+1)
		}
		of := s.set(label)
		of.rows = append(of.rows, place{at, int64(len(text)), row.Item, row.Reward})
		return nil
	})
}

// set is the set of a label.
func (s *stack) set(label string) *set {
	for i := len(s.sets) - 1; i >= 0; i-- {
		if s.sets[i].label == label {
			return s.sets[i]
		}
	}
	s.sets = append(s.sets, &set{label: label, from: s})
	return s.sets[len(s.sets)-1]
}

// sets are those of a run, in the order of the training.
func (s *source) sets() (all []*set) {
	for _, of := range s.stacks {
		all = append(all, of.sets...)
	}
	return all
}

// shownSet is a set in the list of all.
type shownSet struct {
	Run     int      `json:"run"`
	Set     int      `json:"set"`
	Label   string   `json:"label"`
	Items   []string `json:"items"`
	Rewards []number `json:"rewards"`
	LeftOut int      `json:"left_out,omitempty"` // of a page in a file
}

func (v *View) answerSamples(url.Values) (any, error) { return v.samples(1 << 30), nil }

// samples lists all sets, each with its first samples, up to a number of them.
func (v *View) samples(most int) any {
	sets := []shownSet{}
	for i, s := range v.runs {
		for k, of := range s.sets() {
			rows := of.rows[:min(most, len(of.rows))]
			shown := shownSet{Run: i, Set: k, Label: of.label, LeftOut: len(of.rows) - len(rows)}
			for _, p := range rows {
				shown.Items, shown.Rewards = append(shown.Items, p.item), append(shown.Rewards, number(p.reward))
			}
			sets = append(sets, shown)
		}
	}
	return map[string]any{"sets": sets}
}

// shownSample is a sample with its marks.
type shownSample struct {
	Item     string             `json:"item"`
	Prompt   []said             `json:"prompt"`
	Prefill  string             `json:"prefill,omitempty"`
	Pieces   []page.Piece       `json:"pieces"` // of the completion; the numbers are those of Keywords, from 1
	Keywords []keyword          `json:"keywords"`
	Reward   number             `json:"reward"`
	Parts    map[string]float64 `json:"parts,omitempty"`
	Fault    string             `json:"fault,omitempty"` // of the format
	Tokens   int                `json:"tokens,omitempty"`
	Reason   string             `json:"reason,omitempty"`
	Verdicts []verdict          `json:"verdicts"`
}

type said struct {
	Role string `json:"role,omitempty"`
	Text string `json:"text"`
}

// keyword is a word that the answer must have (required), must not have (restricted), or that is restricted and was
// found among the thoughts (thought).
type keyword struct {
	Word  string `json:"word"`
	Kind  string `json:"kind"`
	Found bool   `json:"found"`
}

// verdict is a rule with whether the answer keeps it.
type verdict struct {
	Name string `json:"name"`
	Kept bool   `json:"kept"`
}

func (v *View) answerSample(q url.Values) (any, error) {
	i, err := index(q, "run", len(v.runs))
	if err != nil {
		return nil, err
	}
	sets := v.runs[i].sets()
	k, err := index(q, "set", len(sets))
	if err != nil {
		return nil, err
	}
	row, err := index(q, "row", len(sets[k].rows))
	if err != nil {
		return nil, err
	}
	return sets[k].sample(row)
}

// sample reads a sample.
func (s *set) sample(i int) (*shownSample, error) {
	p := s.rows[i]
	text, err := s.from.readAt(p.at, p.length)
	if err != nil {
		return nil, err
	}
	var row eval.Row
	if err := json.Unmarshal(text, &row); err != nil {
		return nil, notFound("%s: a sample cannot be read: %v", s.from.path, err)
	}
	return show(&row), nil
}

func show(row *eval.Row) *shownSample {
	out := &shownSample{Item: row.Item, Prompt: say(row.Prompt), Prefill: row.Prefill, Keywords: []keyword{},
		Reward: number(row.Reward), Parts: row.Parts, Fault: row.Fault, Tokens: row.Tokens, Reason: row.Reason,
		Verdicts: []verdict{{"format", row.Format}}}
	var spans [][]page.Span
	mark := func(kind, text string, at int, found []reward.Match) {
		for _, m := range found {
			out.Keywords = append(out.Keywords, keyword{m.Keyword, kind, m.At >= 0})
			spans = append(spans, nil)
			if m.At >= 0 && at >= 0 {
				s := matched(text, m)
				spans[len(spans)-1] = []page.Span{{From: at + s.From, To: at + s.To}}
			}
		}
	}
	if k := row.KeywordRow; k != nil {
		at := answerAt(row.Completion, k.Answer)
		mark("required", k.Answer, at, k.Required)
		mark("restricted", k.Answer, at, k.Restricted)
		out.Verdicts = append(out.Verdicts, verdict{"integrity", k.Integrity}, verdict{"utility", k.Utility},
			verdict{"complete", k.Complete})
	}
	if row.ItemRow != nil {
		opened := row.Prefill != "" || !strings.Contains(row.Completion, "<think>")
		think, _ := reward.Think(row.Completion, opened)
		mark("thought", think, strings.Index(row.Completion, think), present(row.Think))
	}
	out.Pieces = page.Cut(row.Completion, spans)
	return out
}

// present are the matches that were found.
func present(all []reward.Match) (found []reward.Match) {
	for _, m := range all {
		if m.At >= 0 {
			found = append(found, m)
		}
	}
	return found
}

// answerAt is where the answer begins in its completion; -1: it is not there.
func answerAt(completion, answer string) int {
	from := strings.Index(completion, "<answer>")
	if from < 0 {
		from = 0
	}
	at := strings.Index(completion[from:], answer)
	if at < 0 {
		return -1
	}
	return from + at
}

// matched is where a text has a keyword: as many characters as the keyword, in capital or small letters.
func matched(text string, m reward.Match) page.Span {
	end := m.At
	for range utf8.RuneCountInString(m.Keyword) {
		if end >= len(text) {
			break
		}
		_, size := utf8.DecodeRuneInString(text[end:])
		end += size
	}
	return page.Span{From: m.At, To: end}
}

// say is a prompt in parts.
func say(prompt data.Text) []said {
	if !prompt.IsChat() {
		return []said{{Text: prompt.Plain}}
	}
	out := []said{}
	for _, m := range prompt.Messages {
		out = append(out, said{m.Role, m.Content})
	}
	return out
}
