package data

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestKindOf(t *testing.T) {
	for content, want := range map[string]Kind{
		oneLine(ciRow): KindCI,
		`{"seed":{}}`:  KindCI,
		`{"prompt":"Q","chosen":"a","rejected":"b"}`: KindPreference,
		`{"chosen":"a"}`:                                        KindPreference,
		`{"prompt":"Q","completion":"a"}`:                       KindDemonstration,
		`{"messages":[]}`:                                       KindDemonstration,
		`{"text":"a"}`:                                          KindDemonstration,
		`{"text":"a","chosen":"a","rejected":"b"}`:              KindPreference,
		`{"completion":null,"messages":[{"role":"assistant"}]}`: KindDemonstration,
	} {
		if got, err := kindOfFile(files("f.jsonl", content), "f.jsonl"); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", content, got, err, want)
		}
	}
	for content, want := range map[string]string{
		"":                    "f.jsonl: no rows: the file is empty",
		"[":                   "f.jsonl:1: ",
		`{"prompt":"a"}`:      "f.jsonl:1: found columns prompt: want seed and dataset_item",
		`{"a":1,"seed":null}`: "f.jsonl:1: found columns a, seed (null): want",
	} {
		_, err := kindOfFile(files("f.jsonl", content), "f.jsonl")
		wantError(t, err, want)
	}
}

func TestReadOfAnyKind(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []*Records{
		{Kind: KindCI, CI: Synthesize(3, 1)},
		{Kind: KindPreference, Preferences: scored([2]float64{1, 0})},
		{Kind: KindDemonstration, Demonstrations: []Demonstration{{Prompt: plain("Q"), Completion: plain("A")}}},
	} {
		path := filepath.Join(dir, "x.parquet")
		if err := want.Write(path); err != nil {
			t.Fatal(err)
		}
		got, report, err := Read(path, PreferenceOptions{})
		if err != nil || got.Len() != want.Len() || report.Kept != want.Len() {
			t.Fatalf("%v: %v, %v", want.Kind, got, err)
		}
		forget := func(r *Records) {
			for i := range r.CI {
				r.CI[i].Source = ""
			}
			for i := range r.Preferences {
				r.Preferences[i].Source = ""
			}
			for i := range r.Demonstrations {
				r.Demonstrations[i].Source = ""
			}
		}
		forget(got)
		forget(want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		_, _, err = Read(path, PreferenceOptions{ScoreColumns: []string{"chosen_score", "rejected_score"}})
		if want.Kind == KindPreference && err != nil {
			t.Error(err)
		}
		if want.Kind != KindPreference {
			wantError(t, err, "only preference pairs have scores")
		}
	}
}

func TestDetails(t *testing.T) {
	r := &Report{Path: "p.jsonl", Read: 40, Kept: 39}
	r.drop("no prompt", "p.jsonl:7")
	for i := range 25 {
		r.wart("odd", "p.jsonl: row "+string(rune('a'+i)))
	}
	want := `p.jsonl: 40 rows read, 39 kept
  dropped 1: no prompt
    in line 7
  note: 25: odd
    in rows a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t and 5 more`
	if got := strings.Join(r.Details(), "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestProfileCI(t *testing.T) {
	items := Synthesize(3, 1)
	for i := range items {
		items[i].Seed.Domain, items[i].Seed.Scenario = []string{"B", "A", "A"}[i], ""
	}
	lines := ProfileCI(items)
	if lines[0] != "scenarios: (none) 3" || lines[1] != "domains: A 2, B 1" || !strings.Contains(lines[3], "required") {
		t.Errorf("%q", lines)
	}
	if lines := ProfileCI(nil); lines != nil {
		t.Errorf("%q", lines)
	}
}
