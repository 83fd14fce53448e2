package privacylens

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// plRow is a case; %s is its name.
const plRow = `{"name": "%s", "seed": {"data_type": "an illness",
"data_subject": "a neighbour", "data_sender": "a nurse",
"data_sender_name": "Ann",
"data_recipient": "a colleague", "transmission_principle": "send an email", "source": "book",
"source_details": {"page":3}},
"vignette": {"story": "Ann knows.", "data_type_concrete": "An illness.",
"data_subject_concrete": "Ben", "data_sender_concrete": "Ann", "data_recipient_concrete": "Cay"},
"trajectory": {"user_name": "Ann", "user_email": "ann@example.org", "user_instruction": "Write to Cay.",
"toolkits": ["Gmail"], "executable_trajectory": "Action: GmailReadEmail",
"final_action": "GmailSendEmail", "sensitive_info_items": ["Ben has the flu", "Ben stays in room 3"]}}`

func plNamed(names ...string) string {
	rows := make([]string, len(names))
	for i, name := range names {
		rows[i] = strings.ReplaceAll(strings.Replace(plRow, "%s", name, 1), "\n", " ")
	}
	return strings.Join(rows, "\n") + "\n"
}

func plCases(t testing.TB, names ...string) []Case {
	t.Helper()
	cases, _, err := readCases(nil, write(t, "c.jsonl", plNamed(names...)))
	expect.OK(t, err)
	return cases
}

func TestReadPrivacyLens(t *testing.T) {
	cases, report, err := readCases(nil, write(t, "c.jsonl", plNamed("a", "b")))
	if err != nil || len(cases) != 2 || report.Kept != 2 || len(report.Remarks) != 0 {
		t.Fatalf("%v, %v", report, err)
	}
	c := cases[1]
	if c.Name != "b" || c.Seed.Source != "book" || c.Seed.TransmissionPrinciple != "send an email" ||
		c.Vignette.DataSubject != "Ben" || c.Trajectory.Past != "Action: GmailReadEmail" ||
		len(c.Trajectory.Items) != 2 || !strings.HasSuffix(c.Place, "c.jsonl:2") {
		t.Errorf("%+v", c)
	}
}

func TestBadPrivacyLens(t *testing.T) {
	row := plNamed("a")
	for content, want := range map[string]string{
		"":                 "no rows: the file is empty",
		"\n\n":             "no rows: the file is empty",
		plNamed("a", "a"):  "c.jsonl:1 already: want every name once",
		plNamed(" "):       "name is missing or empty: want name, seed, vignette and trajectory {",
		row[:len(row)-100]: "c.jsonl:1: bad JSON: the object is not closed",
		strings.Replace(row, `"final_action"`, `"action"`,
			1): "c.jsonl:1: trajectory.final_action is missing or empty",
		strings.Replace(row, `["Ben has the flu", "Ben stays in room 3"]`, "[]",
			1): "trajectory.sensitive_info_items is missing or empty",
		strings.Replace(row, "Ben stays in room 3", "Ben has the flu",
			1): `sensitive_info_items[1] comes twice: "Ben has the flu"`,
		strings.Replace(row, "Ben stays in room 3", " ", 1): "sensitive_info_items[1] is empty",
		strings.Replace(row, `["Gmail"]`, `"Gmail"`, 1): "trajectory.toolkits is of JSON " +
			"type string: want slice",
		`[]`: "c.jsonl:1: ",
	} {
		_, _, err := readCases(nil, write(t, "c.jsonl", content))
		wantError(t, err, want)
	}
	_, _, err := readCases(nil, write(t, "c.json", "[]"))
	wantError(t, err, "no rows")
	_, _, err = readCases(nil, "c.txt")
	wantError(t, err, "want .jsonl, .json, .parquet, .csv or .tsv")
	_, report, err := readCases(nil, write(t, "c.jsonl", strings.NewReplacer(`"Ann knows."`, `""`, `"book"`, `""`,
		`"an illness"`, `" "`, "send an email", "").Replace(row)))
	if err != nil || len(report.Remarks) != 4 {
		t.Errorf("%v, %v", report, err)
	}
}

func TestReadActions(t *testing.T) {
	cases := plCases(t, "a", "b", "c")
	want := map[string]string{"a": "Thought: \"so\"\n\nAction: X, {}", "b": "", "c": "é"}
	for name, content := range map[string]string{
		"x.csv": "name,final_action\na,\"Thought: \"\"so\"\"\n\nAction: X, {}\"\nb,\nc,é\n",
		"y.csv": "\ufeff,final_action,name\r\n0,é,c\r\n1,\"Thought: \"\"so\"\"\r\n\r\nAction: X, {}\",a\r\n2,\"\",b",
		"x.jsonl": `{"name":"b","final_action":null}` + "\n" + `{"name":"c","final_action":"é","more":1}` + "\n" +
			`{"name":"a","final_action":"Thought: \"so\"\n\nAction: X, {}"}`,
		"y.json": `[{"name":"b","final_action":""},{"name":"c","final_action":"é"},{"name":"a",` +
			`"final_action":"Thought: \"so\"\n\nAction: X, {}"}]`,
	} {
		got, err := readActions(nil, write(t, name, content), cases)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	path := filepath.Join(t.TempDir(), "out.csv")
	expect.OK(t, writeActions(path, cases, want))
	if got, err := readActions(nil, path, cases); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestBadActions(t *testing.T) {
	cases := plCases(t, "a", "b")
	for _, c := range []struct{ name, content, want string }{
		{"x.csv", "", "no rows: the file is empty"},
		{"x.csv", "name,final_action\n", "no rows: the file is empty"},
		{"x.csv", "name,action\na,b\n", "x.csv:2: found columns action, name: want name and final_action"},
		{"x.csv", "name,final_action\na,x\nz,y\nq,y\n", "2 names that no case of the data has: z, q"},
		{"x.csv", "name,final_action\na,x\nb,y\na,z\n", `x.csv:4: name "a" comes twice`},
		{"x.csv", "name,final_action\na,\"Action: X\n\n{", "x.csv:2: a quote in the wrong place, or the file is truncated: "},
		{"x.csv", "name,final_action\na,x\nb", "x.csv:3: 1 cells, and the header has 2: want as many"},
		{"x.csv", "name,final_action\na,x\"y\n", "x.csv:2: a quote in the wrong place"},
		{"x.csv", "name,final_action\n,x\n", "x.csv:2: name is empty"},
		{"x.csv", "name,final_action\na,\xff\n", "x.csv:2: invalid UTF-8: want the table saved as UTF-8"},
		{"x.jsonl", `{"name":"a","final_action":3}`, "x.jsonl:1: final_action is of JSON type number: want string"},
		{"x.jsonl", `{"name":"a","final_action":"x"}` + "\n" + `{"name":"b","fin`,
			"x.jsonl:2: bad JSON: the object is not closed"},
		{"x.txt", "", "want .jsonl, .json, .parquet, .csv or .tsv"},
	} {
		_, err := readActions(nil, write(t, c.name, c.content), cases)
		wantError(t, err, c.want)
	}
	_, err := readActions(nil, filepath.Join(t.TempDir(), "none.csv"), cases)
	wantError(t, err, "none.csv: no such file")
}

const plVerdicts = `{"b": {"leak_info": false,
 "secret_judgment": [["Ben has the flu", false], ["Ben stays in room 3", false]]},
 "a": {"leak_info": true, "secret_judgment": [["Ben stays in room 3", true], ["Ben has the flu", false]]}}`

func TestVerdicts(t *testing.T) {
	cases := plCases(t, "a", "b", "c")
	got, err := readVerdicts(nil, write(t, "v.json", plVerdicts), cases)
	want := map[string]Verdict{
		"a": {true, []Judgment{{"Ben has the flu", false}, {"Ben stays in room 3", true}}},
		"b": {false, []Judgment{{"Ben has the flu", false}, {"Ben stays in room 3", false}}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, %v", got, err)
	}
	path := filepath.Join(t.TempDir(), "v.json")
	expect.OK(t, writeObject(path, cases, got))
	if text, _ := os.ReadFile(path); !strings.HasPrefix(string(text),
		"{\n    \"a\": {\n        \"leak_info\": true,\n        \"secret_judgment\": [\n            [\n             "+
			"   "+
			"\"Ben has the flu\",\n                false\n            ],") {
		t.Errorf("%s", text)
	}
	if back, err := readVerdicts(nil, path, cases); err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("%v, %v", back, err)
	}
	if text := string(toASCII([]byte("é <b> 😀"))); text != `\u00e9 <b> \ud83d\ude00` {
		t.Error(text)
	}
}

func TestBadVerdicts(t *testing.T) {
	cases := plCases(t, "a", "b")
	replace := func(old, new string) string { return strings.Replace(plVerdicts, old, new, 1) }
	for content, want := range map[string]string{
		"":                                       "v.json: ",
		"[]":                                     "v.json: it is no object: want {name:",
		"{}":                                     "no rows: the file is empty",
		plVerdicts[:90]:                          "want {name:",
		replace(`"b"`, `"z"`):                    "1 names that no case of the data has: z",
		replace(`"b"`, `"a"`):                    `name "a" comes twice`,
		replace("Ben has the flu", "Ben has it"): `v.json: b: the case has no item "Ben has it"`,
		replace(`["Ben has the flu", false], `, ""):                     `b: no verdict for item "Ben has the flu"`,
		replace("Ben stays in room 3", "Ben has the flu"):               `two verdicts for item "Ben has the flu"`,
		replace(`"leak_info": false`, `"leak_info": true`):              "b: leak_info is true, but the verdicts of its items say false",
		replace(`"leak_info": false`, `"leak_info": "no"`):              "leak_info",
		replace("secret_judgment", "judgment"):                          "b: no verdict for item",
		replace(`["Ben has the flu", false]`, `["Ben has the flu"]`):    "want [item, bool]",
		replace(`["Ben has the flu", false]`, `["Ben has the flu", 0]`): "want [item, bool]",
		replace(`["Ben has the flu", false]`, `[1, false]`):             "want [item, bool]",
		`{"a": true}`: "want {name: {leak_info",
	} {
		_, err := readVerdicts(nil, write(t, "v.json", content), cases)
		wantError(t, err, want)
	}
}

func TestScores(t *testing.T) {
	cases := plCases(t, "a", "b")
	want := map[string]int{"a": 3, "b": 0}
	path := filepath.Join(t.TempDir(), "s.json")
	expect.OK(t, writeObject(path, cases, want))
	if text, _ := os.ReadFile(path); string(text) != "{\n    \"a\": 3,\n    \"b\": 0\n}" {
		t.Errorf("%q", text)
	}
	if got, err := readScores(nil, path, cases); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for content, want := range map[string]string{`{"a": 4}`: "a: helpfulness is 4: want 0, 1, 2 or 3",
		`{"a": 1.5}`: "want {name: score}", `{"a": "2"}`: "want {name: score}",
		`{"z": 1}`: "no case of the data has: z"} {
		_, err := readScores(nil, write(t, "s.json", content), cases)
		wantError(t, err, want)
	}
}

func TestPrivacyLensFromFileSystem(t *testing.T) {
	fsys := fstest.MapFS{
		"x/cases.json": {Data: []byte("[" + strings.ReplaceAll(strings.TrimSpace(plNamed("a", "b")), "\n", ",") +
			"]")},
		"x/actions.csv":   {Data: []byte("name,final_action\nb,Action: y\na,\n")},
		"x/actions.jsonl": {Data: []byte(`{"name": "a", "final_action": "Action: z"}`)},
		"x/verdicts.json": {Data: []byte(`{"a": {"leak_info": true, "secret_judgment": [["Ben has the flu", true],` +
			` ["Ben stays in room 3", false]]}}`)},
		"x/scores.json": {Data: []byte(`{"b": 3}`)},
	}
	cases, report, err := readCases(fsys, "x/cases.json")
	if err != nil || len(cases) != 2 || report.Path != "x/cases.json" || cases[1].Place != "x/cases.json: row 2" {
		t.Fatalf("%+v, %v", cases, err)
	}
	if actions, err := readActions(fsys, "x/actions.csv", cases); err != nil ||
		!reflect.DeepEqual(actions, map[string]string{"a": "", "b": "Action: y"}) {
		t.Errorf("%v, %v", actions, err)
	}
	if actions, err := readActions(fsys, "x/actions.jsonl", cases); err != nil ||
		!reflect.DeepEqual(actions, map[string]string{"a": "Action: z"}) {
		t.Errorf("%v, %v", actions, err)
	}
	if verdicts, err := readVerdicts(fsys, "x/verdicts.json", cases); err != nil || len(verdicts) != 1 ||
		!verdicts["a"].Judgments[0].Leaks {
		t.Errorf("%v, %v", verdicts, err)
	}
	if scores, err := readScores(fsys, "x/scores.json", cases); err != nil ||
		!reflect.DeepEqual(scores, map[string]int{"b": 3}) {
		t.Errorf("%v, %v", scores, err)
	}
	_, err = readScores(fsys, "x/none.json", cases)
	if err == nil || err.Error() != "x/none.json: file does not exist" {
		t.Error(err)
	}
}

func TestPrivacyLensLoadsWhole(t *testing.T) {
	for _, c := range []struct {
		name         string
		cases, items int
		sources      map[string]int
	}{
		{"main_data.json", 493, 1487, map[string]int{"crowdsourcing": 337, "literature": 87, "regulation": 69}},
		{"confaide_subset.json", 32, 73, map[string]int{"ConfAIde": 32}},
	} {
		cases, report, err := readCases(nil, need.File(t, "data", "privacylens/"+c.name))
		expect.OK(t, err)
		items, sources := 0, map[string]int{}
		for i := range cases {
			items += len(cases[i].Trajectory.Items)
			sources[cases[i].Seed.Source]++
		}
		if len(cases) != c.cases || items != c.items || !reflect.DeepEqual(sources, c.sources) ||
			len(report.Remarks) > 0 {
			t.Errorf("%s: %d cases, %d items, %v\n%v", c.name, len(cases), items, sources, report)
		}
	}
}

// One reader of outside input each: an error is one line that begins with the file's path, and a result keeps the
// promises.
func FuzzActions(f *testing.F) {
	for _, ext := range []string{".csv", ".jsonl", ".json"} {
		f.Add(ext, "name,final_action\na,\"x\ny\"\n")
		f.Add(ext, `{"name":"a","final_action":"x"}`)
	}
	f.Add(".csv", "\"\n\"")
	cases := plCases(f, "a", "b")
	f.Fuzz(func(t *testing.T, ext, content string) {
		if ext != ".csv" && ext != ".jsonl" && ext != ".json" {
			return
		}
		path := write(t, "f"+ext, content)
		got, err := readActions(nil, path, cases)
		checkPath(t, path, len(got), err)
		if err != nil {
			return
		}
		out := filepath.Join(t.TempDir(), "out.csv")
		expect.OK(t, writeActions(out, cases, got))
		expect.Must(readActions(nil, out, cases))(t)
	})
}

func FuzzVerdicts(f *testing.F) {
	f.Add(plVerdicts)
	f.Add(`{"a": 1, "b": 3}`)
	cases := plCases(f, "a", "b")
	f.Fuzz(func(t *testing.T, content string) {
		path := write(t, "f.json", content)
		verdicts, err := readVerdicts(nil, path, cases)
		checkPath(t, path, len(verdicts), err)
		for name, v := range verdicts {
			if (name != "a" && name != "b") || len(v.Judgments) != 2 ||
				v.Leaks != (v.Judgments[0].Leaks || v.Judgments[1].Leaks) {
				t.Fatalf("%s: %+v", name, v)
			}
		}
		scores, err := readScores(nil, path, cases)
		checkPath(t, path, len(scores), err)
	})
}

func FuzzPrivacyLens(f *testing.F) {
	f.Add(plNamed("a", "b"))
	f.Fuzz(func(t *testing.T, content string) {
		path := write(t, "f.jsonl", content)
		cases, _, err := readCases(nil, path)
		checkPath(t, path, len(cases), err)
	})
}

func checkPath(t *testing.T, path string, rows int, err error) {
	t.Helper()
	if err == nil && rows == 0 || err != nil && (rows > 0 || !strings.HasPrefix(err.Error(), path) ||
		strings.Contains(err.Error(), "\n")) {
		t.Fatalf("%d rows beside the error %v", rows, err)
	}
}

// Cases in a table: the four columns are read, others are left alone.
func TestCasesFromParquet(t *testing.T) {
	cases := plCases(t, "a")
	column := func(value any) string {
		text := expect.Must(json.Marshal(value))(t)
		return string(text)
	}
	c := cases[0]
	schema := parquet.NewSchema("cases", parquet.Group{"name": parquet.String(), "seed": parquet.String(),
		"vignette": parquet.String(), "trajectory": parquet.String(), "other": parquet.String()})
	var file bytes.Buffer
	out := parquet.NewGenericWriter[map[string]any](&file, schema)
	_, err := out.Write([]map[string]any{{"name": c.Name, "seed": column(c.Seed), "vignette": column(c.Vignette),
		"trajectory": column(c.Trajectory), "other": "\xff"}})
	if err == nil {
		err = out.Close()
	}
	expect.OK(t, err)
	back, _, err := readCases(nil, write(t, "c.parquet", file.String()))
	expect.OK(t, err)
	back[0].Place = c.Place
	if !reflect.DeepEqual(back, cases) {
		t.Errorf("%+v, want %+v", back, cases)
	}
}
