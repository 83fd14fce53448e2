package data

import (
	"strings"
	"testing"
)

func TestDetails(t *testing.T) {
	r := &Report{Path: "p.jsonl", Read: 40, Kept: 39}
	r.Dropped = count(r.Dropped, "no prompt", "p.jsonl:7")
	for i := range 25 {
		r.Wart("odd", "p.jsonl: row "+string(rune('a'+i)))
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
