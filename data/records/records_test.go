package records

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func plain(s string) data.Text { return data.Text{Plain: s} }

func TestKindOf(t *testing.T) {
	dir := t.TempDir()
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
		if got, err := KindOf(lineFile(t, dir, content), data.PreferenceOptions{}); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", content, got, err, want)
		}
	}
	for content, want := range map[string]string{
		"":                    "x.jsonl: no rows: the file is empty",
		"[":                   "x.jsonl:1: ",
		`{"prompt":"a"}`:      "x.jsonl:1: found columns prompt: want seed and dataset_item",
		`{"a":1,"seed":null}`: "x.jsonl:1: found columns a, seed (null): want",
	} {
		_, err := KindOf(lineFile(t, dir, content), data.PreferenceOptions{})
		expect.Error(t, err, want)
	}
}

func TestReadOfAnyKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	for kind, want := range map[Kind][]Record{
		KindCI: {{Item: &ci.Synthesize(1, 1)[0]}},
		KindPreference: {{Pair: &data.Preference{Prompt: plain("Q"), Chosen: plain("a"), Rejected: plain("b"),
			ChosenScore: 1, Scored: true}}},
		KindDemonstration: {{Demo: &data.Demonstration{Prompt: plain("Q"), Completion: plain("A")}}},
		KindLabelled: {{Answers: []data.Labelled{{Demonstration: data.Demonstration{Prompt: plain("Q"),
			Completion: plain("A")}, Desirable: true}}}, {Answers: []data.Labelled{{Demonstration: data.Demonstration{
			Prompt: plain("Q"), Completion: plain("B")}}}}},
	} {
		expect.OK(t, write(path, data.Values(want)))
		found, got, report, err := Read(path, data.PreferenceOptions{})
		if err != nil || found != kind || len(got) != len(want) || report.Kept != len(want) {
			t.Fatalf("%v: %v, %v", kind, got, err)
		}
		forget(got)
		forget(want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		_, _, _, err = Read(path, data.PreferenceOptions{ScoreColumns: []string{"chosen_score", "rejected_score"}})
		if kind == KindPreference && err != nil {
			t.Error(err)
		}
		if kind != KindPreference {
			expect.Error(t, err, "only preference pairs have scores")
		}
	}
}

// forget takes the rows away.
func forget(all []Record) {
	for i, r := range all {
		switch {
		case r.Item != nil:
			r.Item.Source, all[i].raw = "", nil
		case r.Pair != nil:
			r.Pair.Source = ""
		case r.Demo != nil:
			r.Demo.Source = ""
		default:
			r.Answers[0].Source = ""
		}
	}
}
