package reward

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// readRelease reads the released contextual-integrity items, or skips the test if they are not there.
func readRelease(t *testing.T) ([]ci.Item, *data.Report) {
	t.Helper()
	path := need.File(t, "data", "contextual-integrity/dataset.json")
	items, report, err := ci.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return items, report
}

// An answer of exactly the required keywords contains them all. It gets the full reward except for the items that the
// reader counts as unreachable: reader and reward agree about which items are degenerate.
func TestReleaseRewards(t *testing.T) {
	items, _ := readRelease(t)
	below := 0
	for i := range items {
		k := Of(&items[i])
		s := Evaluate(k, "<think></think><answer>"+strings.Join(k.Required, "\n")+"</answer>", false, paper)
		if len(k.Required) == 0 || len(k.Restricted) == 0 {
			t.Errorf("%s: %d required and %d restricted keywords, want some of both", items[i].Source, len(k.Required),
				len(k.Restricted))
		}
		if s.RequiredShare() != 1 || !s.Utility() {
			t.Errorf("%s: required share %v, want 1: %+v", items[i].Source, s.RequiredShare(), s)
		}
		for _, m := range append(s.Required, s.Restricted...) {
			if m.At >= 0 && !strings.EqualFold(s.Answer[m.At:m.At+len(m.Keyword)], m.Keyword) {
				t.Errorf("%s: %q is not at offset %d of %q", items[i].Source, m.Keyword, m.At, s.Answer)
			}
		}
		if s.Reward < 1 {
			below++
			if s.Integrity() {
				t.Errorf("%s: reward %v without a restricted keyword, want 1", items[i].Source, s.Reward)
			}
		}
	}
	if below != 32 {
		t.Errorf("%d items get less than the full reward, want 32", below)
	}
}
