package data

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestPreferencesComeBackAsWritten(t *testing.T) {
	pairs := []Preference{
		{Prompt: plainText("Q <think>\n\u2028"), Chosen: plainText("é"), Rejected: plainText(""), ChosenScore: 1.0 / 3,
			RejectedScore: 1e-300, Scored: true},
		{Prompt: conversation("user", "Q"), Chosen: conversation("assistant", "<answer>&</answer>"),
			Rejected: conversation("assistant", "b")},
	}
	pairs[0].Rejected = plainText(" ")
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	expect.OK(t, WriteAll(path, pairs))
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "<answer>&</answer>") {
		t.Errorf("tags are escaped: %s, %v", text, err)
	}
	back, _, err := ReadPreferences(path, PreferenceOptions{})
	for i := range back {
		back[i].Source = ""
	}
	sameRows(t, back, pairs, err)
}

func sameRows[T any](t *testing.T, back, written []T, err error) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(back, written) {
		t.Errorf("%+v, want %+v, %v", back, written, err)
	}
}

func TestDemonstrationsComeBackAsWritten(t *testing.T) {
	demos := []Demonstration{
		{Completion: plainText("bare text")},
		{Prompt: plainText("Q"), Completion: plainText("A")},
		{Prompt: conversation("user", "Q"), Completion: conversation("assistant", "A")},
		{Prompt: conversation("user"), Completion: conversation("assistant", "A")},
	}
	path := filepath.Join(t.TempDir(), "sft.jsonl")
	expect.OK(t, WriteAll(path, demos))
	back, _, err := ReadDemonstrations(path)
	for i := range back {
		back[i].Source = ""
	}
	sameRows(t, back, demos, err)
}

// A failing write leaves the old file and no litter.
func TestWritingIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pairs.jsonl")
	good := scoredPairs([2]float64{1, 0})
	expect.OK(t, WriteAll(path, good))
	before, _ := os.ReadFile(path)
	bad := append(scoredPairs([2]float64{1, 0}), scoredPairs([2]float64{nan(), 0})...)
	wantError(t, WriteAll(path, bad), "want finite numbers")
	after, _ := os.ReadFile(path)
	entries, _ := os.ReadDir(dir)
	if string(before) != string(after) || len(entries) != 1 {
		t.Errorf("%d files, content %q", len(entries), after)
	}
	wantError(t, WriteAll(filepath.Join(dir, "none", "p.jsonl"), good),
		"p.jsonl: not written: no such file or directory")
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		n        int
		fraction float64
		eval     int
	}{{10, 0.2, 2}, {10, 0, 0}, {10, 1, 10}, {10, 0.001, 1}, {10, 0.999, 9}, {1, 0.5, 1}, {0, 0.5, 0}, {729, 0.1, 73}} {
		train, eval := Split(c.n, c.fraction, 7)
		all := slices.Sorted(slices.Values(slices.Concat(train, eval)))
		if len(eval) != c.eval || len(all) != c.n || len(slices.Compact(all)) != c.n || !slices.IsSorted(train) ||
			!slices.IsSorted(eval) {
			t.Errorf("Split(%d, %v): %v | %v", c.n, c.fraction, train, eval)
		}
	}
	// Fixed for good: a run that is resumed elsewhere must hold out the same rows.
	splitOf20 := []int{8, 9, 13, 14, 19}
	if _, eval := Split(20, 0.25, 1); !slices.Equal(eval, splitOf20) {
		t.Errorf("Split(20, 0.25, 1) holds out %v, want %v", eval, splitOf20)
	}
	if _, eval := Split(20, 0.25, 2); slices.Equal(eval, splitOf20) {
		t.Error("the seed does not matter")
	}
}

func TestBestWorst(t *testing.T) {
	completions := []string{"a", "b", "c", "b"}
	for _, c := range []struct {
		scores        []float64
		ok            bool
		chosen, worst string
	}{
		{[]float64{0.5, 1, 0, 0.5}, true, "b", "c"},
		{[]float64{1, 1, 0, 0}, true, "a", "c"},
		{[]float64{1, 1, 1, 1}, false, "", ""},
		{[]float64{0.5, 1, 0.5, 0}, false, "", ""}, // best and worst say the same
		{nil, false, "", ""},
	} {
		pair, ok := BestWorst(conversation("user", "Q"), completions, c.scores, "here")
		if ok != c.ok {
			t.Errorf("%v: ok %v", c.scores, ok)
		}
		if ok && (!pair.Chosen.Equal(conversation("assistant", c.chosen)) ||
			!pair.Rejected.Equal(conversation("assistant", c.worst)) ||
			!pair.Scored || pair.ChosenScore < pair.RejectedScore) {
			t.Errorf("%v: %+v", c.scores, pair)
		}
	}
	if pair, _ := BestWorst(plainText("Q"), completions, []float64{1, 0, 0, 0}, ""); pair.Chosen.IsChat() ||
		pair.Chosen.Plain != "a" {
		t.Errorf("plain prompt: %+v", pair)
	}
}

// allForms are the names under which records can be written.
var allForms = []string{"x.json", "x.jsonl", "x.json.gz", "x.jsonl.gz", "X.JSON"}

func TestPreferencesAndDemonstrationsInEveryForm(t *testing.T) {
	for _, pairs := range [][]Preference{
		{{Prompt: plainText("Q"), Chosen: plainText("é\n"), Rejected: plainText("b"), ChosenScore: 1.0 / 3, RejectedScore: 1e-300,
			Scored: true}, {Prompt: plainText("Q"), Chosen: plainText("a"), Rejected: plainText("b")},
			{Prompt: plainText("Q"), Chosen: plainText("a"), Rejected: plainText("b"), Scored: true}},
		{{Prompt: conversation("user", "Q"), Chosen: conversation("assistant", "<answer>&</answer>"),
			Rejected: conversation("assistant", "b")}},
	} {
		for _, name := range allForms {
			path := filepath.Join(t.TempDir(), name)
			expect.OK(t, WriteAll(path, pairs))
			back, _, err := ReadPreferences(path, PreferenceOptions{})
			for i := range back {
				back[i].Source = ""
			}
			if err != nil || !reflect.DeepEqual(back, pairs) {
				t.Errorf("%s: %v\n%+v\nwant\n%+v", name, err, back, pairs)
			}
		}
	}
	for _, demos := range [][]Demonstration{
		{{Completion: plainText("bare text")}},
		{{Prompt: plainText("Q"), Completion: plainText("A")}},
		{{Prompt: conversation("user", "Q", "A", "R"), Completion: conversation("assistant", "A")}},
	} {
		for _, name := range allForms {
			path := filepath.Join(t.TempDir(), name)
			expect.OK(t, WriteAll(path, demos))
			back, _, err := ReadDemonstrations(path)
			for i := range back {
				back[i].Source = ""
			}
			if err != nil || !reflect.DeepEqual(back, demos) {
				t.Errorf("%s: %v\n%+v\nwant\n%+v", name, err, back, demos)
			}
		}
	}
}

func TestWhatNoFormHolds(t *testing.T) {
	dir := t.TempDir()
	wantError(t, WriteAll(filepath.Join(dir, "x.json"), scoredPairs([2]float64{nan(), 0})), "want finite numbers")
	for _, ext := range []string{".csv", ".parquet"} {
		wantError(t, WriteAll(filepath.Join(dir, "x"+ext), []int(nil)), `extension "`+ext+`": want .jsonl or .json, each`)
	}
	wantError(t, CheckWritable("pairs"), `pairs: extension "": want .jsonl`)
	if err := CheckWritable("a.JSON.gz"); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}
