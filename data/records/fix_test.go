package records

import (
	"context"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// mend writes lines to a file and what is right of them to another, of which it returns the report and the name.
func mend(t *testing.T, kind Kind, out string, lines ...string) (*Report, string, error) {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, out)
	expect.Write(t, in, strings.Join(lines, "\n"))
	o := options
	o.Kind, o.Out = kind, out
	r, err := Check(context.Background(), in, o)
	if err != nil {
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
			t.Errorf("something was written: %v", left)
		}
	}
	return r, out, err
}

// TestFix: rows with errors and repeated rows are left out, with the reasons, and the others are as they were.
func TestFix(t *testing.T) {
	for _, out := range []string{"out.jsonl", "out.json.gz"} {
		r, path, err := mend(t, KindPreference, out, pair, `{"prompt":`, pair,
			`{"prompt":"Q","chosen":"A","rejected":"A"}`, `{"prompt":"Q","chosen":"C","rejected":"D"}`)
		expect.OK(t, err)
		want := &Fixed{Path: path, Records: 2, Left: []Left{{"row", "a row cannot be read", 1},
			{"duplicate", twice.What, 1}, {"unusable", "chosen and rejected are equal: training leaves the row out", 1}}}
		if !reflect.DeepEqual(r.Fixed, want) {
			t.Errorf("%s: %+v, want %+v", out, r.Fixed, want)
		}
		pairs, _, err := data.ReadPreferences(path, data.PreferenceOptions{})
		if err != nil || len(pairs) != 2 || pairs[0].Chosen.Plain != "A" || pairs[1].Chosen.Plain != "C" {
			t.Errorf("%s: %v, %v", out, pairs, err)
		}
		if again, err := Check(context.Background(), path, options); err != nil || again.Fails() {
			t.Errorf("the mended file has errors: %v, %v", again, err)
		}
	}
}

func TestFixItems(t *testing.T) {
	list := change(`"red bag"`, `["red bag"]`)
	r, path, err := mend(t, KindCI, "out.json", goodItem, strings.ReplaceAll(list, "Ann", "Eve"),
		strings.Replace(change(`"Bag":"red bag"}}`, `"Bag":"ann lee"}}`), `"red bag"`, `["red bag"]`, 1))
	expect.OK(t, err)
	want := &Fixed{Path: path, Records: 2, Left: []Left{{"sides", gates[gateNumber("sides")].What, 1}}, Flattened: 1}
	if !reflect.DeepEqual(r.Fixed, want) {
		t.Errorf("%+v, want %+v", r.Fixed, want)
	}
	items, _, err := ci.Read(path)
	if err != nil || len(items) != 2 || items[1].Required()[0] != "Eve Lee" {
		t.Errorf("%v, %v", items, err)
	}
}

// TestFixOthers: answers with labels and demonstrations are written, too.
func TestFixOthers(t *testing.T) {
	for kind, lines := range map[Kind][]string{
		KindLabelled:      {pair, pair, `{"prompt":"Q","completion":"A","label":true}`},
		KindDemonstration: {`{"prompt":"Q","completion":"A"}`, `{"text":"T"}`, `{"text":"T"}`, `{"text":""}`},
	} {
		r, path, err := mend(t, kind, "out.jsonl", lines...)
		expect.OK(t, err)
		o := options
		o.Kind = kind
		again, err := Check(context.Background(), path, o)
		if err != nil || again.Fails() || r.Fixed.Records != 2 || again.Rows != 2 {
			t.Errorf("%s: %+v, %v", kind, r.Fixed, err)
		}
	}
}

// TestFixFaults: what cannot be mended is one line, and nothing is written.
func TestFixFaults(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		out   string
		lines []string
		want  []string
	}{
		{KindPreference, "in.jsonl", []string{pair}, []string{"one file", "another name"}},
		{KindPreference, "out.csv", []string{pair}, []string{`".csv"`, ".jsonl or .json"}},
		{KindPreference, "out.jsonl", []string{"{"}, []string{"no row is without error", "not written"}},
		{KindPreference, "no/out.jsonl", []string{pair}, []string{"no/out.jsonl: not written"}},
	} {
		_, _, err := mend(t, c.kind, c.out, c.lines...)
		expect.Error(t, err, c.want...)
	}
	path := expect.File(t, "in.json", "["+pair+","+pair)
	o := Options{Out: path + ".jsonl"}
	_, err := Check(context.Background(), path, o)
	expect.Error(t, err, "in.json: it cannot be read to its end (row 3: bad JSON: the file ends", "not written")
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Check(ctx, need.File(t, "data", "hh-rlhf/harmless-base-test.jsonl.gz"), o); err != context.Canceled {
		t.Error(err)
	}
}
