package records

import (
	"path/filepath"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func plain(s string) data.Text { return data.Text{Plain: s} }

func TestKindOf(t *testing.T) {
	for content, want := range map[string]Kind{
		`{"seed":{"domain":"a"},"dataset_item":{"user_task":"b"}}`: KindCI,
		`{"seed":{}}`: KindCI,
		`{"prompt":"Q","chosen":"a","rejected":"b"}`: KindPreference,
		`{"chosen":"a"}`:                                        KindPreference,
		`{"prompt":"Q","completion":"a"}`:                       KindDemonstration,
		`{"prompt":"Q","completion":"a","label":false}`:         KindLabelled,
		`{"prompt":"Q","completion":"a","label":"a class"}`:     KindDemonstration,
		`{"messages":[]}`:                                       KindDemonstration,
		`{"text":"a"}`:                                          KindDemonstration,
		`{"text":"a","chosen":"a","rejected":"b"}`:              KindPreference,
		`{"completion":null,"messages":[{"role":"assistant"}]}`: KindDemonstration,
	} {
		if got, err := kindOf(fstest.MapFS{"f.jsonl": {Data: []byte(content)}}, "f.jsonl"); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", content, got, err, want)
		}
	}
	for content, want := range map[string]string{
		"":                    "f.jsonl: no rows: the file is empty",
		"[":                   "f.jsonl:1: ",
		`{"prompt":"a"}`:      "f.jsonl:1: found columns prompt: want seed and dataset_item",
		`{"a":1,"seed":null}`: "f.jsonl:1: found columns a, seed (null): want",
	} {
		_, err := kindOf(fstest.MapFS{"f.jsonl": {Data: []byte(content)}}, "f.jsonl")
		expect.Error(t, err, want)
	}
}

func TestReadOfAnyKind(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []*File{
		{Kind: KindCI, CI: ci.Synthesize(3, 1)},
		{Kind: KindPreference, Preferences: []data.Preference{{Prompt: plain("Q"), Chosen: plain("a"),
			Rejected: plain("b"), ChosenScore: 1, Scored: true}}},
		{Kind: KindDemonstration, Demonstrations: []data.Demonstration{{Prompt: plain("Q"), Completion: plain("A")}}},
		{Kind: KindLabelled, Labelled: []data.Labelled{{Demonstration: data.Demonstration{Prompt: plain("Q"),
			Completion: plain("A")}, Desirable: true}, {Demonstration: data.Demonstration{Prompt: plain("Q"),
			Completion: plain("B")}}}},
	} {
		path := filepath.Join(dir, "x.parquet")
		if err := want.Write(path); err != nil {
			t.Fatal(err)
		}
		got, report, err := Read(path, data.PreferenceOptions{})
		if err != nil || got.Len() != want.Len() || report.Kept != want.Len() {
			t.Fatalf("%v: %v, %v", want.Kind, got, err)
		}
		forget := func(r *File) {
			for i := range r.CI {
				r.CI[i].Source = ""
			}
			for i := range r.Preferences {
				r.Preferences[i].Source = ""
			}
			for i := range r.Demonstrations {
				r.Demonstrations[i].Source = ""
			}
			for i := range r.Labelled {
				r.Labelled[i].Source = ""
			}
		}
		forget(got)
		forget(want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		_, _, err = Read(path, data.PreferenceOptions{ScoreColumns: []string{"chosen_score", "rejected_score"}})
		if want.Kind == KindPreference && err != nil {
			t.Error(err)
		}
		if want.Kind != KindPreference {
			expect.Error(t, err, "only preference pairs have scores")
		}
	}
}
