package privacylens

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Span is a part of a text, in bytes.
type Span struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Piece is a part of a text with the numbers, from 1, of the items that mark it, such as "1 3"; "" if none does.
type Piece struct {
	Text  string `json:"text"`
	Items string `json:"items,omitempty"`
}

// Cut cuts a text where the items that mark it change, so that spans that overlap need not nest. spans are those of
// each item. They are widened to whole characters; those that are not in the text are left out.
func Cut(text string, spans [][]Span) []Piece {
	inside, cuts := make([][]Span, len(spans)), []int{0, len(text)}
	for i, of := range spans {
		for _, s := range of {
			if s, ok := s.within(text); ok {
				inside[i], cuts = append(inside[i], s), append(cuts, s.From, s.To)
			}
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	out := []Piece{} // never nil, which is null in JSON
	for i := range len(cuts) - 1 {
		part, of := strings.ToValidUTF8(text[cuts[i]:cuts[i+1]], "\uFFFD"), itemsAt(inside, cuts[i])
		if last := len(out) - 1; last >= 0 && out[last].Items == of {
			out[last].Text += part
		} else {
			out = append(out, Piece{part, of})
		}
	}
	return out
}

// itemsAt lists the items that have a span over a place.
func itemsAt(spans [][]Span, at int) string {
	var numbers []string
	for i, of := range spans {
		if slices.ContainsFunc(of, func(s Span) bool { return s.From <= at && at < s.To }) {
			numbers = append(numbers, strconv.Itoa(i+1))
		}
	}
	return strings.Join(numbers, " ")
}

// within widens a span to whole characters; ok is false if it is not in the text.
func (s Span) within(text string) (wide Span, ok bool) {
	if s.From < 0 || s.To > len(text) || s.From >= s.To {
		return s, false
	}
	for s.From > 0 && !utf8.RuneStart(text[s.From]) {
		s.From--
	}
	for s.To < len(text) && !utf8.RuneStart(text[s.To]) {
		s.To++
	}
	return s, true
}
