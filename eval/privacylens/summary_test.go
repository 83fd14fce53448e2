package privacylens

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/rollout"
)

func TestRate(t *testing.T) {
	r := eval.Share{Count: 3, Total: 10}
	text, err := json.Marshal(r)
	low, high := r.Wilson()
	want := fmt.Sprintf(`{"value":0.3,"count":3,"total":10,"low":%v,"high":%v}`, low, high)
	if err != nil || string(text) != want || r.String() != " 30.0% (3/10, 95% interval 10.8 to 60.3)" {
		t.Errorf("%s, %v: %v", text, err, r)
	}
	var again eval.Share
	if err := json.Unmarshal(text, &again); err != nil || again != r {
		t.Errorf("%v, %v", again, err)
	}
	text, err = json.Marshal(eval.Share{})
	if err != nil || string(text) != `{"value":null,"count":0,"total":0,"low":null,"high":null}` {
		t.Errorf("%s, %v", text, err)
	}
}

func TestMean(t *testing.T) {
	m := meanOf([]int{0, 3, 3, 2})
	if *m.Value != 2 || m.Sum != 8 || m.Total != 4 || *m.Low < 0 || *m.Low >= 2 || *m.High <= 2 || *m.High > 3 ||
		!strings.HasPrefix(m.String(), "2.00 (8/4, 95% interval ") {
		t.Errorf("%v", m)
	}
	if again := meanOf([]int{0, 3, 3, 2}); *again.Low != *m.Low || *again.High != *m.High {
		t.Error("the interval changes")
	}
	if m := meanOf(nil); m.Value != nil || m.Low != nil || m.String() != "not available (0 cases)" {
		t.Errorf("%v", m)
	}
	if m := meanOf([]int{2}); *m.Value != 2 || m.Low != nil || m.String() != "2.00 (2/1, no interval)" {
		t.Errorf("%v", m)
	}
}

func TestWarnings(t *testing.T) {
	zero := 0
	results := make([]CaseResult, 10)
	for i := range results {
		results[i] = CaseResult{Name: string(rune('a' + i)), Recorded: true, Helpfulness: &zero,
			Items: []ItemResult{{Item: "x", Parsed: true}}}
	}
	if w := summarize(results).Warnings; len(w) != 0 {
		t.Error(w)
	}
	for i := range 2 {
		results[i].NoAction, results[i].Reason = true, bench.TooLong
	}
	results[3].Reason, results[4].UnparsedSeen = rollout.Length, 2
	s := summarize(results)
	want := []string{"2 of 10 outputs have no action", "2 of 16 verdicts are not in the form asked for"}
	if len(s.Warnings) != len(want) {
		t.Fatalf("%q", s.Warnings)
	}
	for i := range want {
		if !strings.HasPrefix(s.Warnings[i], want[i]) {
			t.Errorf("%q, want %q", s.Warnings[i], want[i])
		}
	}
	if s.Sources["none"].Cases != 10 || s.Principles["none"].Cases != 10 || s.All.Cut != 1 || s.All.TooLong != 2 {
		t.Errorf("%+v", s)
	}
}
