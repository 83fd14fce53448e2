package recipe

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
)

// TestSweepTable: what finished runs came to, by hand: two steps of 0.5 seconds are 1.
func TestSweepTable(t *testing.T) {
	points, err := gridOf([]string{"seed=1, 2", "reward.restricted_weight=0.5"}, "seed=1,2")
	if err != nil {
		t.Fatal(err)
	}
	columns := []string{"integrity", "utility", "complete", "reward"}
	out, err := run.Create(filepath.Join(t.TempDir(), "s"), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var rows []sweepRow
	for _, p := range points {
		f, err := run.Create(out.Path(p.name()), "test")
		if err != nil {
			t.Fatal(err)
		}
		share := measured{Value: new(0.05), Low: new(0.0), High: new(0.1), Count: 5, Total: 100}
		all := map[string]any{"integrity": share, "utility": share, "complete": share,
			"reward": measured{Value: new(-1.0)}}
		for _, err := range []error{f.Log(run.Record{Step: 2, Values: map[string]float64{"step_time": 0.5}}),
			f.WriteSummaryJSON(map[string]any{"steps": 2, "test": map[string]any{"after": map[string]any{"all": all}}}),
			f.Close()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		row, err := readRow(f.Dir, columns)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	lines := strings.Split(sweepTable(points, rows, columns), "\n")
	if want := "2     0.5                       " + strings.Repeat("5.0% 5/100 (0.0 to 10.0)  ", 3) +
		"-1.000  2      1s"; lines[2] != want || !strings.HasPrefix(lines[0], "seed  reward.restricted_weight  integrity") {
		t.Errorf("%q, want %q", lines, want)
	}
	if err := writeTable(out, points, rows); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Path(tableName))
	var line map[string]any
	if err != nil || strings.Count(string(text), "\n") != 2 ||
		json.Unmarshal(text[:strings.Index(string(text), "\n")], &line) != nil ||
		line["run"] != "seed=1,reward.restricted_weight=0.5" || line["seconds"] != 1.0 {
		t.Errorf("%s, %v", text, err)
	}
}

// TestGrid: the last key changes fastest, and no point shares memory with another.
func TestGrid(t *testing.T) {
	points, err := gridOf([]string{"a=1,2", "b=3,4", "c=5,6"}, "a=1")
	var names []string
	for _, p := range points {
		names = append(names, p.name())
	}
	if got := strings.Join(names, " "); err != nil || got != "a=1,b=3,c=5 a=1,b=3,c=6 a=1,b=4,c=5 a=1,b=4,c=6 "+
		"a=2,b=3,c=5 a=2,b=3,c=6 a=2,b=4,c=5 a=2,b=4,c=6" {
		t.Error(got, err)
	}
}
