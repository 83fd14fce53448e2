package data

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/posttrain/posttrain/internal/config/fault"
)

const preferenceColumns = "want prompt, chosen, rejected, or chosen, rejected with the prompt inside both, or prompt " +
	"with several answers and their scores, such as all_generated_responses, all_rm_scores"

// ReadPreferences reads preference pairs from a .jsonl, .json or .parquet file, each also with .gz. Columns are TRL's:
// prompt, chosen, rejected, each a string or a list of {role, content}; without a prompt (or with a plain prompt
// beside conversations) the prompt is what both answers begin with. Of a prompt with several scored answers the best
// and the worst are the pair.
//
// Rows without a prompt, with an empty answer, or with two equal answers are dropped and counted in the Report; answers
// of white space alone are kept and counted. A malformed row is an error that names file and line.
func ReadPreferences(path string, o PreferenceOptions) ([]Preference, *Report, error) {
	return StreamPreferences(nil, path, o).Collect()
}

// StreamPreferences is ReadPreferences without keeping the pairs; fsys nil is the operating system's.
func StreamPreferences(fsys fs.FS, path string, o PreferenceOptions) *Stream[Preference] {
	rows := Rows(fsys, path, o.Columns...)
	if err := fault.Err("data", o.Check()); err != nil {
		rows = noRows(err)
	}
	var found []string // columns of the first row, for messages
	s := NewStream(path, rows, func(r Row, report *Report) (Preference, string, error) {
		if report.Read == 1 {
			found = r.Columns()
		}
		pair, columns, why, err := preferenceOf(r, report, o)
		if err == nil {
			err = pair.classify(r, o.ClassColumn)
		}
		if err != nil {
			return pair, "", err
		}
		if why = cmp.Or(why, reasonUnusable(pair)); why == "" {
			report.note(pair, columns)
		}
		return pair, why, nil
	})
	s.last = func(report *Report) error {
		if len(o.ScoreColumns) == 2 && report.Scored == 0 {
			return fmt.Errorf("%s: no row has a number in both score columns %s and %s: found columns %s",
				path, o.ScoreColumns[0], o.ScoreColumns[1], List(found))
		}
		return nil
	}
	return s
}

// preferenceOf makes a pair of a row; columns names the source of its scores, why says why there is no pair.
func preferenceOf(r Row, report *Report, o PreferenceOptions) (pair Preference, columns, why string, err error) {
	pair.Source = r.Source
	given := r
	if r, err = Canonical(r); err != nil {
		return pair, "", "", err
	}
	if !r.Has("chosen") || !r.Has("rejected") {
		if a, err := answersOf(r.Fields); a != nil || err != nil {
			if pair, columns, why, err = a.pair(r, err); err == nil {
				err = unused(r, report, []string{"prompt"}, pair.Prompt, Text{Plain: strings.Join(a.texts, "\n")})
			}
			return pair, columns, why, err
		}
		return pair, "", "", columnsError(given, preferenceColumns)
	}
	var errs [2]error
	pair.Chosen, errs[0] = textOf("chosen", r.Fields["chosen"])
	pair.Rejected, errs[1] = textOf("rejected", r.Fields["rejected"])
	if err = cmp.Or(errs[:]...); err == nil {
		err = pair.splitPrompt(r.Fields)
	}
	if err == nil && len(pair.Chosen.Trained())+len(pair.Rejected.Trained()) <
		len(pair.Chosen.Messages)+len(pair.Rejected.Messages) {
		err = errors.New(`an answer has "train": false, or content null: both answers of a pair are trained on whole`)
	}
	if err == nil {
		read := append([]string{"prompt", "chosen", "rejected", o.ClassColumn}, o.ScoreColumns...)
		if _, plain := r.Fields["prompt"].(string); plain && pair.Chosen.IsChat() {
			read = read[1:] // the prompt is from the conversations
		}
		err = unused(r, report, read, pair.Prompt, pair.Chosen, pair.Rejected)
	}
	if err != nil {
		return pair, "", "", err
	}
	columns, err = pair.readScores(given.Fields, o)
	return pair, columns, "", err
}

// classify takes the class from its column.
func (p *Preference) classify(r Row, column string) error {
	if column == "" {
		return nil
	}
	if !r.Has(column) {
		return fmt.Errorf("found columns %s, no value in %s: want one in every row", List(r.Columns()), column)
	}
	p.Class = fmt.Sprint(r.Fields[column])
	return nil
}

// splitPrompt takes the prompt from its column, or from the common beginning of both answers.
func (p *Preference) splitPrompt(fields map[string]any) (err error) {
	column := fields["prompt"]
	if column != nil {
		if p.Prompt, err = textOf("prompt", column); err != nil {
			return err
		}
	}
	switch {
	case p.Chosen.IsChat() != p.Rejected.IsChat():
		return errors.New("one of chosen and rejected is a string, the other a conversation: want both alike")
	case column != nil && p.Prompt.IsChat() == p.Chosen.IsChat():
		return nil
	case p.Prompt.IsChat():
		return errors.New("prompt is a conversation but chosen and rejected are strings: want them as lists of " +
			"{role, content} too")
	}
	if column == nil && !p.Chosen.IsChat() && !strings.Contains(p.Chosen.Plain, humanMark) {
		if err := guesses(fields); err != nil {
			return err
		}
	}
	// A plain prompt beside whole conversations repeats their first turn (UltraFeedback): the conversations decide.
	// Beside the assistant's turns alone it is that first turn.
	asked := p.Prompt.Plain
	p.extractPrompt()
	if column != nil && p.Prompt.Empty() && isReply(p.Chosen) && isReply(p.Rejected) {
		first := &p.Chosen.Messages[0]
		p.Prompt = Text{Messages: []Message{{Role: "user", Content: asked, Tools: first.Tools}}}
	}
	return nil
}

// isReply says that a conversation begins with the assistant.
func isReply(t Text) bool { return len(t.Messages) > 0 && t.Messages[0].Role == "assistant" }

// reasonUnusable is the reason why no training can use the pair, "" if it can.
func reasonUnusable(p Preference) string {
	switch {
	case p.Prompt.Empty():
		return "no prompt"
	case p.Chosen.Empty():
		return "chosen is empty"
	case p.Rejected.Empty():
		return "rejected is empty"
	case p.Chosen.Equal(p.Rejected):
		return "chosen and rejected are equal"
	}
	return ""
}

// SeveralTurns is the remark of an answer that continues after the assistant's own turn.
const SeveralTurns = "an answer has turns of the user"

// note counts the remarks and scores of a kept pair.
func (r *Report) note(p Preference, columns string) {
	if p.Scored {
		r.Scored++
		if r.ScoreColumns == "" {
			r.ScoreColumns = columns
		}
	}
	if p.Chosen.Blank() {
		r.Remark("chosen is only white space", p.Source)
	}
	if p.Rejected.Blank() {
		r.Remark("rejected is only white space", p.Source)
	}
	if hasUserTurns(p.Chosen) || hasUserTurns(p.Rejected) {
		r.Remark(SeveralTurns, p.Source)
	}
	if p.Scored && p.ChosenScore < p.RejectedScore {
		r.Remark("rejected scores higher than chosen", p.Source)
	}
}

// Turn marks of the plain dialogues of HH-RLHF.
const (
	humanMark     = "\n\nHuman:"
	assistantMark = "\n\nAssistant:"
)

// extractPrompt splits off the prompt that both answers begin with, as TRL's extract_prompt does: the common messages
// of conversations, or the text that splitPlain finds.
func (p *Preference) extractPrompt() {
	c, r := &p.Chosen, &p.Rejected
	if !c.IsChat() {
		n := splitPlain(c.Plain, r.Plain)
		p.Prompt, c.Plain, r.Plain = Text{Plain: c.Plain[:n]}, c.Plain[n:], r.Plain[n:]
		return
	}
	n := splitMessages(c.Messages, r.Messages)
	p.Prompt, c.Messages, r.Messages = Text{Messages: c.Messages[:n:n]}, c.Messages[n:], r.Messages[n:]
}

// splitMessages counts the common first messages; the shorter answer keeps at least one.
func splitMessages(a, b []Message) int {
	n := 0
	for n < min(len(a), len(b))-1 && a[n] == b[n] {
		n++
	}
	return n
}

// splitPlain is the length in bytes of the prompt that both texts begin with. In an HH-RLHF dialogue it ends with the
// last "\n\nAssistant:" that both have. Elsewhere it ends where the texts differ first, cut back to the end of a
// word: the white space before the first different word belongs to the answers. (TRL gives them only the one space, and
// splits inside a word where the words begin alike.) Text without white space is split between two characters.
func splitPlain(a, b string) int {
	n := commonPrefix(a, b)
	common := a[:n]
	if strings.Contains(common, humanMark) {
		if i := strings.LastIndex(common, assistantMark); i >= 0 {
			return i + len(assistantMark)
		}
	}
	if cut := lastWordEnd(common); cut > 0 {
		return cut
	}
	return n
}

// commonPrefix is the length in bytes of the longest common prefix that ends between two characters of both.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && (!startsRune(a, n) || !startsRune(b, n)) {
		n--
	}
	return n
}

func startsRune(s string, i int) bool { return i >= len(s) || utf8.RuneStart(s[i]) }

// lastWordEnd is where the last run of white space begins; 0 without any, or when it opens the text.
func lastWordEnd(s string) int {
	i := strings.LastIndexFunc(s, unicode.IsSpace)
	if i < 0 {
		return 0
	}
	return len(strings.TrimRightFunc(s[:i], unicode.IsSpace))
}

// hasUserTurns says whether an answer continues after the assistant's own turn.
func hasUserTurns(t Text) bool {
	return strings.Contains(t.Plain, humanMark) || slices.ContainsFunc(t.Messages, isUsers)
}
