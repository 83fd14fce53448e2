package data

import (
	"path/filepath"
	"testing"
)

// TestWriteAnswers: what is written gives the pairs of the best and the worst answer, in every form of file.
func TestWriteAnswers(t *testing.T) {
	chat := Text{Messages: []Message{{Role: "user", Content: "Q", Tools: `[{"name":"clock"}]`}}}
	for _, prompt := range []Text{{Plain: "Q"}, chat} {
		all := []Answers{{prompt, []string{"a", "b", "c"}, []float64{0, 1.5, -1}},
			{prompt, []string{"d", "e"}, []float64{0, 0}}}
		for _, name := range []string{"x.jsonl", "x.json"} {
			path := filepath.Join(t.TempDir(), name)
			if err := WriteAll(path, all); err != nil {
				t.Fatal(err)
			}
			pairs, report, err := ReadPreferences(path, PreferenceOptions{})
			if err != nil || report.Read != 2 || len(pairs) != 1 {
				t.Fatalf("%s: %+v, %v, %v", name, pairs, report, err)
			}
			p := pairs[0]
			if !p.Prompt.Equal(prompt) || !p.Chosen.Equal(prompt.Reply("b")) ||
				!p.Rejected.Equal(prompt.Reply("c")) || p.ChosenScore != 1.5 || p.RejectedScore != -1 || !p.Scored {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}
