package ci

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

const ciRow = `{"seed":{"scenario":"email","domain":"Hospitality","user_intention":"book",
"sender":"user","recipient":"desk","data_subject":"user",
"information_type":{"allowed":["name"],"disallowed":["health"]},"transmission_principle":"Consent"},
"dataset_item":{"user_task":"Book a room","information":{"Zip":90210,"Name":"Mira",
"Chats":[{"Friend":"hi","Me":["a","b"]},"bye"],"Bag":"red"},
"annotation":{"allowed":{"Name":" Mira ","Chats":["hi",""]},"disallowed":{"Zip":{"code":90210},"Bag":null}}}}`

func TestCIItemKeepsOrderAndFlattens(t *testing.T) {
	items, report, err := readFrom(files("ci.jsonl", oneLine(ciRow)), "ci.jsonl", AllItems)
	expect.OK(t, err)
	item := items[0]
	wantFields := Fields{{"Zip", "90210"}, {"Name", "Mira"}, {"Chats", "Friend: hi\nMe: a\nb\nbye"}, {"Bag", "red"}}
	if !reflect.DeepEqual(item.DatasetItem.Information, wantFields) {
		t.Errorf("information %+v", item.DatasetItem.Information)
	}
	if !slices.Equal(item.Required(), []string{"Mira", "hi"}) || !slices.Equal(item.Restricted(), []string{"90210"}) {
		t.Errorf("required %q, restricted %q", item.Required(), item.Restricted())
	}
	attributes := item.Attributes()
	if len(attributes) != 3 || attributes[0].Key != "Zip" || attributes[0].Restricted[0] != "90210" ||
		attributes[2].Required[0] != "hi" {
		t.Errorf("attributes %+v", attributes)
	}
	if report.String() != "ci.jsonl: 1 rows read, 1 kept" {
		t.Error(report)
	}
}

func TestCIErrors(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"ci.json", "[]", "ci.json: no rows: the file is empty"},
		{"ci.json", "[5]", "ci.json: row 1: "},
		{"ci.json", `[{"seed":{"domain":5}}]`, "ci.json: row 1: seed.domain is of JSON type number: want string"},
		{"ci.json", `[{"seed":{"domain":"Work"}}]`, "dataset_item.user_task is missing or empty"},
		{"ci.json", `[{"seed":{"domain":"Work"},"dataset_item":{"user_task":"x","information":["a"]}}]`,
			"information is a list: want an object"},
		{"ci.json", `[{"seed":{"domain":"Work"},"dataset_item":{"user_task":"x","information":{"a":"b"},` +
			`"annotation":{"allowed":{"a":""}}}}]`, "dataset_item.annotation is missing or empty"},
		{"ci.jsonl", `{"seed":`, "ci.jsonl:1: bad JSON: the object is not closed"},
		{"ci.parquet", "", "ci.parquet: not a readable parquet file: 0 bytes"},
		{"ci.txt", "", `ci.txt: extension ".txt": want .jsonl, .json, .parquet, .csv or .tsv`},
	} {
		_, _, err := readFrom(files(c.name, c.content), c.name, AllItems)
		wantError(t, err, c.want)
	}
}

func TestCIComesBackAsWritten(t *testing.T) {
	items := Synthesize(20, 5)
	items[0].DatasetItem.Annotation.Allowed[0].Words = []string{"two", "<words>"}
	path := filepath.Join(t.TempDir(), "ci.json")
	expect.OK(t, data.WriteAll(path, items))
	back, _, err := Read(path)
	expect.OK(t, err)
	for i := range back {
		back[i].Source = items[i].Source
	}
	if !reflect.DeepEqual(back, items) {
		t.Errorf("%+v\nwant %+v", back[0], items[0])
	}
	expect.OK(t, data.WriteAll(path, []Item{}))
	if text, _ := os.ReadFile(path); string(text) != "[]\n" {
		t.Errorf("no items: %q", text)
	}
}

func TestCensus(t *testing.T) {
	var census Census
	for i, item := range Synthesize(3, 1) {
		item.Seed.Domain, item.Seed.Scenario = []string{"B", "A", "A"}[i], ""
		census.Add(&item)
	}
	lines := census.Lines()
	if lines[0] != "scenarios: (none) 3" || lines[1] != "domains: A 2, B 1" || !strings.Contains(lines[3], "required") {
		t.Errorf("%q", lines)
	}
	if lines := new(Census).Lines(); lines != nil {
		t.Errorf("%q", lines)
	}
}

// comeBack writes items in every form and wants them back the same.
func comeBack(t *testing.T, items []Item) {
	t.Helper()
	for _, name := range allForms {
		path := filepath.Join(t.TempDir(), name)
		expect.OK(t, data.WriteAll(path, items))
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
	items[3].DatasetItem.Information = append(items[3].DatasetItem.Information, items[3].DatasetItem.Information[0],
		Field{"", "no\nkey"})
	comeBack(t, items)
}

// TestCIReleaseInEveryForm: the 729 released items load whole, and come back.
func TestCIReleaseInEveryForm(t *testing.T) {
	items, _, err := Read(need.File(t, "data", "contextual-integrity/dataset.json"))
	expect.OK(t, err)
	comeBack(t, items)
	principles := map[string]int{}
	for i := range items {
		principles[items[i].Seed.TransmissionPrinciple]++
	}
	if !reflect.DeepEqual(principles, map[string]int{confidentiality: 428, proportionality: 201, consent: 100}) {
		t.Errorf("principles %v", principles)
	}
}

// The files of testdata are laid out by pyarrow (scripts/oracle/parquet_fixtures.py), one item in each.
func TestCIParquetAsOthersWriteIt(t *testing.T) {
	inOrder := Fields{{"Zip", "90210"}, {"Name", "Mira"}, {"Chats", "hi\nbye é"}}
	byName := Fields{{"Chats", "hi\nbye é"}, {"Name", "Mira"}, {"Zip", "90210"}}
	for name, want := range map[string]Fields{"ci": inOrder, "ci-json": inOrder, "ci-struct": byName,
		"ci-map": byName} {
		items, _, err := Read(filepath.Join("testdata", name+".parquet"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		item := items[0]
		if !reflect.DeepEqual(item.DatasetItem.Information, want) {
			t.Errorf("%s: information %q", name, item.DatasetItem.Information)
		}
		required := slices.Sorted(slices.Values(item.Required()))
		if !slices.Equal(required, []string{"Mira", "bye", "hi"}) ||
			!slices.Equal(item.Restricted(), []string{"90210"}) {
			t.Errorf("%s: required %q, restricted %q", name, required, item.Restricted())
		}
		if item.Seed.Domain != "Hospitality" || !slices.Equal(item.Seed.InformationType.Disallowed,
			[]string{"health"}) || item.DatasetItem.UserTask != "Book a room" {
			t.Errorf("%s: %+v", name, item)
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
		}{seed{"Work"}, item{"do", []string{"a"}}}), "ci.parquet: row 1: information is a list: want an object, or a " +
			"list of {key, text} or {key, words}"},
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
		_, _, err := readFrom(files("ci.parquet", c.content), "ci.parquet", AllItems)
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
	_, _, err := readFrom(files("ci.jsonl", row), "ci.jsonl", AllItems)
	wantError(t, err, "ci.jsonl:1: information is a string: want an object")
}

// Whatever the texts contain, every form gives it back.
func TestCIAwkwardTexts(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	pieces := []string{"a", " ", "\n", "\t", "\x00", "\"", "\\", "<think>", "é", "e\u0301", "日本", "👩\u200d🔬", "\u2028",
		"null", "{}", "[\"x\"]", "1e9", "\ufeff", "&amp;", "\u007f"}
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
		c.DatasetItem.Annotation = Annotation{Allowed: Keywords{{text(), []string{word(), word()}}},
			Disallowed: Keywords{{text(), []string{word()}}, {"", []string{word()}}}}
	}
	comeBack(t, items)
}

// releasedRow is an item of two values and a keyword of the first.
const releasedRow = `{"seed": {"domain": "Work"}, "dataset_item": {"user_task": "t", ` +
	`"information": {"A": %s, "B": %s}, "annotation": {"allowed": {"A": %s}, "disallowed": {}}}}`

// TestReleasedItems: the released preprocessing joins the values of annotated keys as strings, and drops an item with a
// value of another kind.
func TestReleasedItems(t *testing.T) {
	for _, c := range []struct {
		a, b, keyword string
		kept          bool
	}{
		{`"x y"`, `"z"`, `"x"`, true},
		{`"x y"`, `["z"]`, `"x"`, true}, // it has no annotation
		{`["x y"]`, `"z"`, `"x"`, false},
		{`{"k": "x y"}`, `"z"`, `"x"`, false},
		{`7`, `"z"`, `"7"`, false},
		{`"x y"`, `"z"`, `["x", "y"]`, false},
		{`"x y"`, `"z"`, `{"k": "x"}`, false},
		{`"7"`, `"z"`, `7`, false},
	} {
		row := fmt.Sprintf(releasedRow, c.a, c.b, c.keyword)
		text := row + "\n" + fmt.Sprintf(releasedRow, `"q"`, `"r"`, `"q"`)
		all, _, err := readFrom(files("ci.jsonl", text), "ci.jsonl", AllItems)
		if err != nil || len(all) != 2 {
			t.Errorf("%s: %d of all, %v", row, len(all), err)
		}
		items, report, err := readFrom(files("ci.jsonl", text), "ci.jsonl", ReleasedItems)
		if err != nil || len(items) == 2 != c.kept || report.Kept != len(items) {
			t.Errorf("%s: %d items, %v, want it kept: %v", row, len(items), err, c.kept)
			continue
		}
		if !c.kept && !strings.Contains(report.String(), "a keyword, or the information that it is for, is no string") {
			t.Errorf("%s: the report does not say why:\n%s", row, report)
		}
	}
	missing := strings.Replace(fmt.Sprintf(releasedRow, `"q"`, `"r"`, `"q"`), `"allowed": {"A"`, `"allowed": {"C"`, 1)
	_, _, err := readFrom(files("ci.jsonl", missing), "ci.jsonl", ReleasedItems)
	wantError(t, err, "ci.jsonl: all 1 rows dropped", "is no string")
}

// TestReleasedItemsOfTheRelease: 639 items, of which a tenth, rounded up, are the 64 of the published table.
func TestReleasedItemsOfTheRelease(t *testing.T) {
	items, report, err := ReadItems(need.File(t, "data", "contextual-integrity/dataset.json"), ReleasedItems)
	if err != nil || len(items) != 639 || report.Read != 729 {
		t.Fatalf("%v: %d items\n%s", err, len(items), report)
	}
	train, validation, test := Split(len(items), 0.09, 0.10, 0)
	if len(train) != 517 || len(validation) != 58 || len(test) != 64 {
		t.Errorf("%d/%d/%d, want 517/58/64", len(train), len(validation), len(test))
	}
}
