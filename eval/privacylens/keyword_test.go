package privacylens

import (
	"reflect"
	"testing"
)

func TestContentWords(t *testing.T) {
	var got []string
	for _, w := range contentWords("The Smiths’ dog isn't Ben's; it's \\nAnn's, of 1,500.25 and e-mail. Café\\u00e9 don’t U.S. x") {
		got = append(got, w.text)
	}
	want := []string{"smiths", "dog", "ben", "ann", "1,500.25", "e", "mail", "café", "00e9", "u.s", "x"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		action, item string
		want         []string
	}{
		{"Ben HAS caught a (bad) flu.", "Ben has caught a bad flu.", []string{"Ben HAS caught a (bad) flu"}},
		{"He caught a bad flu", "Ben has caught a bad flu", []string{"caught a bad flu"}},
		{"a bad flu was caught by Ben", "Ben has caught a bad flu", nil}, // another order
		{"caught a very bad flu", "Ben has caught a bad flu", []string{"caught a very bad flu"}},
		{"caught a really bad flu", "Ben has caught a bad flu", nil}, // a word between
		{"Ben smokes. Ben smokes!", "Ben smokes", []string{"Ben smokes", "Ben smokes"}},
		{"Ben smokes, says Ann, yes: Ben smokes", "Ben smokes", []string{"Ben smokes", "Ben smokes"}},
		{"anything", "he is of the", nil},
		{"", "Ben smokes", nil},
		{"{\"body\": \"Hi,\\nBen smokes\"}", "Ben's smokes", []string{"Ben smokes"}},
	} {
		var got []string
		for _, s := range Spans(c.action, c.item) {
			got = append(got, c.action[s.From:s.To])
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q in %q: %q, want %q", c.item, c.action, got, c.want)
		}
	}
}
