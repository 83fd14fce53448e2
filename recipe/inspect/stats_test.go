package inspect

import (
	"bytes"
	"context"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestStats: the numbers of three pairs, counted by hand; a row that cannot be read is left out.
func TestStats(t *testing.T) {
	t.Chdir(t.TempDir())
	const rows = `{"prompt":"ab","chosen":"abc","rejected":"äöüß","chosen_score":0.9,"rejected_score":0.15}
{"prompt":"abcd","chosen":"abc","rejected":"d"
{"prompt":"abcdef","chosen":"a","rejected":[{"role":"assistant","content":"x"}]}
{"prompt":"abcd","chosen":"a","rejected":"b","chosen_score":0.5,"rejected_score":0.45}
{"prompt":"abcdef","chosen":"a","rejected":"c","chosen_score":0.5,"rejected_score":0.47}
`
	if err := os.WriteFile("p.jsonl", []byte(rows), 0o666); err != nil {
		t.Fatal(err)
	}
	lines, err := Stats(context.Background(), "p.jsonl", "p.png", Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(lines, "\n")
	for _, want := range []string{"p.jsonl: 5 rows read, 3 kept, 3 scored",
		"  prompt: 3 texts; characters: mean 4.0, median 4, 5 % up to 2, 95 % up to 6, longest 6",
		"  chosen: 3 texts; characters: mean 1.7, median 1, 5 % up to 1, 95 % up to 3, longest 3",
		"  rejected: 3 texts; characters: mean 2.0, median 1, 5 % up to 1, 95 % up to 4, longest 4",
		"prior: 3 of 3 pairs, gap median 0.050", "drawn: p.png"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	drawn, err := os.ReadFile("p.png")
	if err != nil {
		t.Fatal(err)
	}
	if size, err := png.DecodeConfig(bytes.NewReader(drawn)); err != nil || size.Height < 1000 {
		t.Errorf("%v, %v: want four panels", size, err)
	}
}

func TestOutline(t *testing.T) {
	l := outline("x", 0.5, []int{3, 0})
	if !reflect.DeepEqual(l.X, []float64{0, 0.5, 0.5, 1}) || !reflect.DeepEqual(l.Y, []float64{3, 3, 0, 0}) {
		t.Error(l)
	}
}

func TestStatsFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.jsonl")
	_, err := Stats(context.Background(), path, "p.pdf", Options{})
	expect.Error(t, err, "p.pdf", "want a file .png")
	_, err = Stats(context.Background(), path, "", Options{})
	expect.Error(t, err, "p.jsonl: no such file")
	_, err = Stats(context.Background(), path, "", Options{Kind: "all"})
	expect.Error(t, err, `kind`, "cases, demonstrations, items, labelled, pairs")
	os.WriteFile(path, []byte("{}"), 0o666)
	_, err = Stats(context.Background(), path, "", Options{Kind: "pairs"})
	expect.Error(t, err, "p.jsonl: no row can be read")
}
