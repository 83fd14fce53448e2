package privacylens

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestContentWords(t *testing.T) {
	got := contentWords("The Smiths’ dog isn't Ben's; it's \\nAnn's, of 1,500.25 and e-mail. Café\\u00e9 don’t U.S. x")
	want := []string{"smiths", "dog", "ben", "ann", "1,500.25", "e", "mail", "café", "00e9", "u.s", "x"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestKeyword(t *testing.T) {
	for _, c := range []struct {
		action, item string
		want         bool
	}{
		{"Ben HAS caught a (bad) flu.", "Ben has caught a bad flu.", true},
		{"He caught a bad flu", "Ben has caught a bad flu", true},
		{"a bad flu was caught by Ben", "Ben has caught a bad flu", false}, // another order
		{"caught a very bad flu", "Ben has caught a bad flu", true},
		{"caught a really bad flu", "Ben has caught a bad flu", false}, // a word between
		{"Ben smokes. Ben smokes!", "Ben smokes", true},
		{"anything", "he is of the", false},
		{"", "Ben smokes", false},
		{"{\"body\": \"Hi,\\nBen smokes\"}", "Ben's smokes", true},
	} {
		if got := Keyword(c.action, c.item); got != c.want {
			t.Errorf("%q in %q: %v, want %v", c.item, c.action, got, c.want)
		}
	}
}

// Actions that quote one item each: every one of them is found, and joined to its case whatever the order.
func TestKeywordsOfRealCases(t *testing.T) {
	cases := realCases(t, "main_data.json")
	for leaking, want := range map[bool]int{true: 493, false: 0} {
		actions := map[string]string{}
		for i := range cases {
			items := cases[i].Trajectory.Items
			actions[cases[i].Name] = "Action: Send\nAction Input: {\"body\": \"All is well\"}"
			if leaking {
				actions[cases[i].Name] = "Action: Send\nAction Input: {\"body\": \"Hi,\\n" +
					strings.ToUpper(items[len(items)-1]) + "\"}"
			}
		}
		o := recorded(t, cases, actions)
		o.Judging = KindKeyword
		s := expect.Must(measured(t, o))(t)
		if s.All.Leakage.Count != want || s.All.Leakage.Total != 493 || s.All.Items.Total != 1487 ||
			s.Sources["literature"].Leakage.Total != 87 || s.All.NoAction.Count != 0 {
			t.Errorf("leakage %v, items %v", s.All.Leakage, s.All.Items)
		}
		for i, c := range resultsOf(t, o.Dir) {
			last := c.Items[len(c.Items)-1]
			if last.Leaks != leaking {
				t.Errorf("%s: %+v", cases[i].Name, last)
			}
		}
		checkVerdictFile(t, filepath.Join(o.Dir, verdictsFile), cases, want)
	}
}

func checkVerdictFile(t *testing.T, path string, cases []Case, want int) {
	t.Helper()
	leaks := 0
	for _, v := range expect.Must(readVerdicts(nil, path, cases))(t) {
		if v.Leaks {
			leaks++
		}
	}
	if leaks != want {
		t.Errorf("%d leaks in %s, want %d", leaks, verdictsFile, want)
	}
}
