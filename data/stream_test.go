package data

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestStreamsKeepNoRecords: after the first quarter of the pairs, 25 MiB more are written and read in no more memory.
func TestStreamsKeepNoRecords(t *testing.T) {
	const pairs, most = 32768, 4 << 20
	var first, now runtime.MemStats
	measure := func(i int) {
		if i%8192 != 8191 {
			return
		}
		runtime.GC()
		runtime.GC() // a sync.Pool keeps its buffers over one collection
		runtime.ReadMemStats(&now)
		if i == 8191 {
			first = now
		}
		if more := int64(now.HeapAlloc) - int64(first.HeapAlloc); more > most {
			t.Errorf("after %d pairs %d MiB more are in use than after 8192", i+1, more>>20)
		}
	}
	made := func(yield func(Preference, error) bool) {
		for i := range pairs {
			text := Text{Plain: strings.Repeat(fmt.Sprintf("%08d", i), 64)}
			measure(i)
			if !yield(Preference{Prompt: Text{Plain: "Q"}, Chosen: text, Rejected: Text{Plain: text.Plain + "."},
				ChosenScore: 1, Scored: true}, nil) {
				return
			}
		}
	}
	for _, ext := range []string{".jsonl", ".json"} {
		path := filepath.Join(t.TempDir(), "pairs"+ext)
		if err := Write(path, made); err != nil {
			t.Fatal(err)
		}
		n := 0
		report, err := StreamPreferences(nil, path, PreferenceOptions{}).Each(func(p Preference) error {
			if n%1000 == 0 && !strings.HasPrefix(p.Chosen.Plain, fmt.Sprintf("%08d", n)) {
				t.Errorf("%s: %.20s, want pair %d", p.Source, p.Chosen.Plain, n)
			}
			measure(n)
			n++
			return nil
		})
		if err != nil || report.Scored != pairs {
			t.Errorf("%s: %+v, %v", ext, report, err)
		}
	}
}

// TestStreamEnds: an error of the rows, of a record or of the reader ends a stream, and comes once.
func TestStreamEnds(t *testing.T) {
	in := func(yield func(Row, error) bool) {
		for i := range 3 {
			if !yield(Row{Source: fmt.Sprint("f:", i)}, nil) {
				return
			}
		}
		yield(Row{}, fmt.Errorf("f: torn"))
	}
	s := NewStream("f", in, func(r Row, _ *Report) (string, string, error) { return r.Source, "", nil })
	var got []string
	for text, err := range s.All() {
		got = append(got, fmt.Sprint(text, err))
	}
	if want := "[f:0<nil> f:1<nil> f:2<nil> f: torn]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
	for range s.All() { // a reader that has enough
		break
	}
	stop := fmt.Errorf("enough")
	if _, err := s.Each(func(string) error { return stop }); err != stop {
		t.Error(err)
	}
}
