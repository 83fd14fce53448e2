package reward

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
)

// release is the released set of contextual-integrity items, or skips the test where there is none.
func release(t *testing.T) ([]data.CIItem, *data.Report) {
	t.Helper()
	dir := os.Getenv("POSTTRAIN_DATA_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	path := filepath.Join(dir, "contextual-integrity", "dataset.json")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s: set POSTTRAIN_DATA_DIR to the folder with the real data", path)
	}
	items, report, err := data.ReadCI(path)
	if err != nil {
		t.Fatal(err)
	}
	return items, report
}

// An answer of exactly the required keywords has all of them, and the full reward but for the items that the reader
// counts as unreachable: the reader and the reward see the same degenerate items.
func TestReleaseRewards(t *testing.T) {
	items, report := release(t)
	unreachable := 0
	for _, w := range report.Warts {
		if strings.Contains(w.What, "the full reward cannot be reached") {
			unreachable = w.Count
		}
	}
	below := 0
	for i := range items {
		k := Of(&items[i])
		s := Evaluate(k, "<think></think><answer>"+strings.Join(k.Required, "\n")+"</answer>", false, paper)
		if len(k.Required) == 0 || len(k.Restricted) == 0 {
			t.Errorf("%s has an empty side, of which the release has none", items[i].Source)
		}
		if s.RequiredShare() != 1 || !s.Utility() {
			t.Errorf("%s: required share %v of an answer with every required keyword: %+v", items[i].Source, s.RequiredShare(), s)
		}
		for _, m := range append(s.Required, s.Restricted...) {
			if m.At >= 0 && !strings.EqualFold(s.Answer[m.At:m.At+len(m.Keyword)], m.Keyword) {
				t.Errorf("%s: %q is said to stand at %d of %q", items[i].Source, m.Keyword, m.At, s.Answer)
			}
		}
		if s.Reward < 1 {
			below++
			if s.Integrity() {
				t.Errorf("%s: reward %v without a leak", items[i].Source, s.Reward)
			}
		}
	}
	if below != unreachable || below != 32 {
		t.Errorf("%d items cannot have the full reward, the reader counts %d, want 32", below, unreachable)
	}
}
