package data

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestRenamed: columns have the names that are read; a field of an object is one; two columns may change places; a
// file that has the read names stays as it is.
func TestRenamed(t *testing.T) {
	fsys := fstest.MapFS{
		"a.jsonl": {Data: []byte(`{"ask":"Q","chosen":"no","rejected":"yes","meta":{"up":2},"down":"1"}` + "\n" +
			`{"ask":"R","chosen":"no","rejected":"yes"}` + "\n")},
		"b.csv":   {Data: []byte("prompt,chosen,rejected,chosen_score,rejected_score\nQ,yes,no,2,1\n")},
		"c.jsonl": {Data: []byte(`{"ask":"Q","Answer":"A"}` + "\n")},
		"d.tsv":   {Data: []byte("ask\tyes\tno\ta\tb\nQ\tyes\tno\t2\t1\n")},
	}
	swap := []string{"prompt=ask", "chosen=rejected", "rejected=chosen", "chosen_score=meta.up", "rejected_score=down"}
	table := []string{"prompt=ask", "chosen=yes", "rejected=no"}
	for _, c := range []struct {
		name    string
		columns []string
		scores  []string
	}{{"a.jsonl", swap, nil}, {"b.csv", table, nil}, {"d.tsv", append(table, "chosen_score=a",
		"rejected_score=b"), nil}, {"d.tsv", table, []string{"a", "b"}}} {
		o := PreferenceOptions{Columns: c.columns, ScoreColumns: c.scores}
		all, _, err := StreamPreferences(fsys, c.name, o).Collect()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		p := all[0]
		if p.Prompt.Plain != "Q" || p.Chosen.Plain != "yes" || p.Rejected.Plain != "no" || !p.Scored ||
			p.ChosenScore != 2 || p.RejectedScore != 1 || len(all) == 2 && all[1].Scored {
			t.Errorf("%s: %+v", c.name, all)
		}
	}
	demos, report, err := StreamDemonstrations(fsys, "c.jsonl", "prompt=ask", "completion=Answer").Collect()
	if err != nil || demos[0].Completion.Plain != "A" || report.Unread != nil {
		t.Error(demos, report, err)
	}
	_, _, err = StreamPrompts(fsys, "c.jsonl", "prompt=ask", "answer=answer").Collect()
	const want = "c.jsonl:1: there is no column answer (did you mean Answer?): found columns Answer, ask"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestCheckColumns: each fault has its words.
func TestCheckColumns(t *testing.T) {
	for column, want := range map[string]string{
		"prompt":                "want names such as prompt=question",
		"prompt=":               "want names such as prompt=question",
		"promt=question":        "promt is no column that is read (did you mean prompt?): want prompt, completion",
		"zebra=question":        "zebra is no column that is read: want prompt, completion",
		"prompt=a,completion=b": "",
	} {
		faults := CheckColumns(strings.Split(column, ","))
		if len(faults) != min(1, len(want)) || want != "" && !strings.Contains(faults[0].Error(), want) {
			t.Errorf("%s: %v, want %s", column, faults, want)
		}
	}
}
