package ci

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
)

// comeBack writes items in every form and wants them back the same.
func comeBack(t *testing.T, items []Item) {
	t.Helper()
	for _, name := range allForms {
		path := filepath.Join(t.TempDir(), name)
		if err := Write(path, items); err != nil {
			t.Fatal(err)
		}
		back, _, err := Read(path)
		if err != nil || len(back) != len(items) {
			t.Fatalf("%s: %d items, %v", name, len(back), err)
		}
		for i := range back {
			if back[i].Source == "" {
				t.Errorf("%s: row %d has no source", name, i)
			}
			if back[i].Source = items[i].Source; !reflect.DeepEqual(back[i], items[i]) {
				t.Fatalf("%s, %s:\n%+v\nwant\n%+v", name, items[i].Source, back[i], items[i])
			}
		}
	}
}

func TestCIInEveryForm(t *testing.T) {
	items := Synthesize(30, 5)
	items[0].DatasetItem.Annotation.Allowed[0].Words = []string{"two", "<words>"}
	items[1].DatasetItem.Annotation.Disallowed = nil
	items[2].Seed.InformationType = InformationType{Allowed: []string{}, Reasoning: "why"}
	items[3].DatasetItem.Information = append(items[3].DatasetItem.Information, items[3].DatasetItem.Information[0], Field{"", "no\nkey"})
	comeBack(t, items)
}

func TestCIReleaseInEveryForm(t *testing.T) {
	items, before, err := Read(realData(t, "contextual-integrity/dataset.json"))
	if err != nil {
		t.Fatal(err)
	}
	comeBack(t, items)
	// The warts of the items stay; those of the file's form (values that are lists, objects, numbers) go with the form.
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := Write(path, items); err != nil {
		t.Fatal(err)
	}
	_, after, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	info, _ := os.Stat(path)
	t.Logf("%d bytes\n%s", info.Size(), after)
	for _, w := range before.Warts {
		i := slices.IndexFunc(after.Warts, func(x data.Tally) bool { return x.What == w.What })
		form := slices.Contains([]string{"information value is an object", "information value is a list", "information value is a number", "keyword is an object", "keyword is a list"}, w.What)
		if !form && (i < 0 || after.Warts[i].Count != w.Count) {
			t.Errorf("%s is lost: %v", w, after.Warts)
		}
	}
}

// The files of testdata are laid out by pyarrow (scripts/oracle/parquet_fixtures.py), one item in each.
func TestCIParquetAsOthersWriteIt(t *testing.T) {
	inOrder := Fields{{"Zip", "90210"}, {"Name", "Mira"}, {"Chats", "hi\nbye é"}}
	byName := Fields{{"Chats", "hi\nbye é"}, {"Name", "Mira"}, {"Zip", "90210"}}
	for name, want := range map[string]Fields{"ci": inOrder, "ci-json": inOrder, "ci-struct": byName, "ci-map": byName} {
		items, report, err := Read(filepath.Join("testdata", name+".parquet"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		item := items[0]
		if !reflect.DeepEqual(item.DatasetItem.Information, want) {
			t.Errorf("%s: information %q", name, item.DatasetItem.Information)
		}
		required := slices.Sorted(slices.Values(item.Required()))
		if !slices.Equal(required, []string{"Mira", "bye", "hi"}) || !slices.Equal(item.Restricted(), []string{"90210"}) {
			t.Errorf("%s: required %q, restricted %q", name, required, item.Restricted())
		}
		if item.Seed.Domain != "Hospitality" || !slices.Equal(item.Seed.InformationType.Disallowed, []string{"health"}) || item.DatasetItem.UserTask != "Book a room" {
			t.Errorf("%s: %+v", name, item)
		}
		if len(report.Warts) != 1 || report.Warts[0].What != "keyword is a list" {
			t.Errorf("%s: warts %v", name, report.Warts)
		}
	}
}

func TestCIParquetFaults(t *testing.T) {
	type seed struct {
		Domain string `parquet:"domain"`
	}
	type item struct {
		UserTask    string   `parquet:"user_task"`
		Information []string `parquet:"information,list"`
	}
	for _, c := range []struct{ content, want string }{
		{parquetOf(t, struct{ Question string }{"a"}), "ci.parquet: row 1: seed.domain is missing or empty"},
		{parquetOf(t, struct {
			Seed string `parquet:"seed"`
		}{"Work"}), "ci.parquet: row 1: seed is of JSON type string: want struct"},
		{parquetOf(t, struct {
			Seed seed `parquet:"seed"`
			Item item `parquet:"dataset_item"`
		}{seed{"Work"}, item{"do", []string{"a"}}}), "ci.parquet: row 1: information is a list: want an object, or a list of {key, text} or {key, words}"},
		{parquetOf(t, struct {
			Seed seed `parquet:"seed"`
		}{seed{"\xff"}}), "ci.parquet: row 1: seed.domain is not valid UTF-8"},
		{parquetOf(t, struct {
			Seed struct {
				X float64 `parquet:"x"`
			} `parquet:"seed"`
		}{struct {
			X float64 `parquet:"x"`
		}{math.NaN()}}), "ci.parquet: row 1: unsupported value: NaN: want text, finite numbers"},
		{parquetOf(t, struct {
			Seed  seed   `parquet:"seed"`
			Image []byte `parquet:"image"` // nobody asked for it
		}{seed{"Work"}, []byte("\xff")}), "ci.parquet: row 1: dataset_item.user_task is missing or empty"},
		{parquetOf[struct{ X int }](t), "ci.parquet: no rows: the file is empty"},
	} {
		_, _, err := readFS(files("ci.parquet", c.content), "ci.parquet")
		wantError(t, err, c.want)
	}
}

// A text of JSON that nests without end is an error, not an overflow.
func TestCIDeepText(t *testing.T) {
	deep := make([]byte, 1<<20)
	for i := range deep {
		deep[i] = '['
	}
	row := `{"seed":{"domain":"Work"},"dataset_item":{"user_task":"x","information":"` + string(deep) + `"}}`
	_, _, err := readFS(files("ci.jsonl", row), "ci.jsonl")
	wantError(t, err, "ci.jsonl:1: information is a string: want an object")
}

// Whatever stands in the texts, every form gives it back.
func TestCIAwkwardTexts(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	pieces := []string{"a", " ", "\n", "\t", "\x00", "\"", "\\", "<think>", "é", "e\u0301", "日本", "👩\u200d🔬", "\u2028", "null", "{}", "[\"x\"]", "1e9", "\ufeff", "&amp;", "\u007f"}
	text := func() string {
		var b strings.Builder
		for range 1 + rng.IntN(4) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		return b.String()
	}
	word := func() string { return "w" + text() + "w" } // readers trim keywords
	items := Synthesize(40, 8)
	for i := range items {
		c := &items[i]
		c.Seed.Domain, c.DatasetItem.UserTask, c.Seed.InformationType.Allowed = text(), text(), []string{text(), ""}
		c.DatasetItem.Information = Fields{{text(), text()}, {"", ""}, {text(), text()}}
		c.DatasetItem.Annotation = Annotation{Allowed: Keywords{{text(), []string{word(), word()}}}, Disallowed: Keywords{{text(), []string{word()}}, {"", []string{word()}}}}
	}
	comeBack(t, items)
}
