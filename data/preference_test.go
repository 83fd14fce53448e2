package data

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestPreferenceColumns(t *testing.T) {
	for _, c := range []struct {
		name, row string
		want      Preference
	}{
		{"explicit plain prompt", `{"prompt":"Q","chosen":" yes","rejected":" no"}`,
			Preference{Prompt: plainText("Q"), Chosen: plainText(" yes"), Rejected: plainText(" no")}},
		{"explicit conversation", `{"prompt":[{"role":"user","content":"Q"}],"chosen":[{"role":"assistant",` +
			`"content":"yes"}],"rejected":[{"role":"assistant","content":"no"}]}`,
			Preference{Prompt: conversation("user", "Q"), Chosen: conversation("assistant", "yes"),
				Rejected: conversation("assistant", "no")}},
		{"prompt inside both conversations", `{"chosen":
			[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},
			{"role":"user","content":"R"},{"role":"assistant","content":"yes"}],
			"rejected":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},
			{"role":"user","content":"R"},{"role":"assistant","content":"no"}]}`,
			Preference{Prompt: conversation("user", "Q", "A", "R"), Chosen: conversation("assistant", "yes"),
				Rejected: conversation("assistant", "no")}},
		{"plain prompt beside conversations", `{"prompt":"Q","chosen":[{"role":"user","content":"Q"},` +
			`{"role":"assistant","content":"yes"}],"rejected":[{"role":"user","content":"Q"},{"role":"assistant",` +
			`"content":"no"}]}`,
			Preference{Prompt: conversation("user", "Q"), Chosen: conversation("assistant", "yes"),
				Rejected: conversation("assistant", "no")}},
		{"null prompt is like a missing one", `{"prompt":null,"chosen":"a b","rejected":"a c"}`,
			Preference{Prompt: plainText("a"), Chosen: plainText(" b"), Rejected: plainText(" c")}},
		{"conversations of different length", `{"chosen":[{"role":"user","content":"Q"},{"role":"assistant",` +
			`"content":"A"}],"rejected":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},` +
			`{"role":"user","content":"R"}]}`,
			Preference{Prompt: conversation("user", "Q"), Chosen: conversation("assistant", "A"),
				Rejected: conversation("assistant", "A", "R")}},
		{"HTML and escapes", `{"prompt":"<think>\u00e9\n","chosen":"\ud83d\ude42","rejected":"&"}`,
			Preference{Prompt: plainText("<think>é\n"), Chosen: plainText("🙂"), Rejected: plainText("&")}},
	} {
		c.want.Source = "p.jsonl:1"
		row := strings.Join(strings.Fields(c.row), " ")
		if got := onePair(t, row); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestPlainPromptIsCutAtAWord(t *testing.T) {
	hh := "\n\nHuman: hi\n\nAssistant: hello\n\nHuman: so\n\nAssistant:"
	for _, c := range []struct{ chosen, rejected, prompt string }{
		{hh + " I see", hh + " I know", hh},
		{hh + " ", hh + " yes", hh},
		{hh + " same\n\nHuman: a", hh + " same\n\nHuman: b", hh},
		{"\n\nHuman: a\n\nAssistant: x", "\n\nHuman: a\n\nAssistant: y", "\n\nHuman: a\n\nAssistant:"},
		{"The sky is blue", "The sky is green", "The sky is"},
		{"The sky is blue", "The sky is black", "The sky is"}, // not "The sky is bl"
		{"Q: why?\nA: so", "Q: why?\nA: no", "Q: why?\nA:"},
		{"two  spaces", "two  words", "two"},
		{"今日は晴れ", "今日は雨", "今日は"},
		{"é", "è", ""}, // they share their first byte, but no character
		{"same", "same but longer", "same"},
	} {
		n := splitPlain(c.chosen, c.rejected)
		if c.chosen[:n] != c.prompt {
			t.Errorf("%q | %q: prompt %q, want %q", c.chosen, c.rejected, c.chosen[:n], c.prompt)
		}
	}
}

func TestScoreColumns(t *testing.T) {
	for _, c := range []struct {
		columns string
		named   []string
		want    [2]float64
		scored  bool
	}{
		{`"chosen_score":0.75,"rejected_score":1`, nil, [2]float64{0.75, 1}, true},
		{`"score_chosen":-2,"score_rejected":1e-3`, nil, [2]float64{-2, 0.001}, true},
		{`"chosen_rating":5,"rejected_rating":1`, nil, [2]float64{5, 1}, true},
		{`"chosen-rating":5,"rejected-rating":1`, nil, [2]float64{5, 1}, true},
		{`"chosen_reward":5,"rejected_reward":1`, nil, [2]float64{5, 1}, true},
		{`"chosen_score":5,"rejected_score":null,"chosen_reward":3,"rejected_reward":4`, nil, [2]float64{3, 4}, true},
		{`"w":0.5,"l":0.25,"chosen_score":9,"rejected_score":8`, []string{"w", "l"}, [2]float64{0.5, 0.25}, true},
		{`"chosen_score":0.75`, nil, [2]float64{}, false},
		{`"other":1`, nil, [2]float64{}, false},
	} {
		row := `{"prompt":"Q","chosen":"a","rejected":"b",` + c.columns + `}`
		pairs, report, err := StreamPreferences(mapFS("p.jsonl", row), "p.jsonl",
			PreferenceOptions{ScoreColumns: c.named}).Collect()
		if err != nil {
			t.Errorf("%s: %v", c.columns, err)
			continue
		}
		p := pairs[0]
		if p.Scored != c.scored || [2]float64{p.ChosenScore, p.RejectedScore} != c.want ||
			(report.Scored == 1) != c.scored {
			t.Errorf("%s: %+v", c.columns, p)
		}
	}
}

// TestPairsOfManyForms: nested scores, and pairs of several scored answers.
func TestPairsOfManyForms(t *testing.T) {
	for _, c := range []struct{ row, want string }{
		{`{"prompt":"Q","chosen":{"text":"a","score":4},"rejected":{"text":"b","score":2}}`, "Q a 4 b 2"},
		{`{"prompt":"Q","chosen":{"content":"a","rating":4},"rejected":{"content":"b","rating":2}}`, "Q a 4 b 2"},
		{`{"prompt":"Q","all_generated_responses":["x","y","z"],"all_rm_scores":[0.1,0.9,0]}`, "Q y 0.9 z 0"},
		{`{"prompt":"Q","responses":["x","y"],"scores":[-1,-2]}`, "Q x -1 y -2"},
		{`{"prompt":"Q","chosen":"y","rejected":"x ","all_generated_responses":["x","y","z"],` +
			`"all_rm_scores":[0.1,0.9,0]}`, "Q y 0.9 x  0.1"},
		{`{"prompt":"Q","chosen":"y","rejected":"other","responses":["x","y"],"scores":[0.1,0.9]}`,
			"Q y other unscored"},
		{`{"prompt":"Q","chosen":"y","rejected":"x","responses":["x","y"],"scores":[0.1]}`, "Q y x unscored"},
		{`{"prompt":"Q","responses":["x","y"],"scores":[1,1]}`,
			"p.jsonl: all 1 rows dropped: 1: all answers, or their scores, are equal (first: p.jsonl:1)"},
		{`{"prompt":"Q","responses":["x","y"],"scores":[1]}`, "p.jsonl:1: responses has 2 answers and " +
			"scores 1 scores: want as many scores as answers, two or more"},
		{`{"prompt":"Q","responses":["x","y"],"scores":[1,null]}`,
			"p.jsonl:1: scores[1] is null: want a finite number"},
		{`{"prompt":"Q","responses":["x",7],"scores":[1,2]}`, "p.jsonl:1: responses[1] is a number: want a string"},
		{`{"responses":["x","y"],"scores":[1,2]}`, "p.jsonl:1: the row has answers and their scores, but no prompt"},
		{`{"prompt":"Q","chosen":{"text":"a","score":"x"},"rejected":{"text":"b","score":2}}`,
			`p.jsonl:1: chosen.score is the string "x": want a finite number`},
		{`{"prompt":"Q","chosen":{"score":1},"rejected":{"text":"b","score":2}}`,
			"p.jsonl:1: chosen is an object: want"},
	} {
		pairs, _, err := StreamPreferences(mapFS("p.jsonl", c.row), "p.jsonl", PreferenceOptions{}).Collect()
		if err != nil {
			wantError(t, err, c.want)
			continue
		}
		if got := describePair(pairs[0]); got != c.want {
			t.Errorf("%s: %s, want %s", c.row, got, c.want)
		}
	}
}

func describePair(p Preference) string {
	if !p.Scored {
		return fmt.Sprintf("%s %s %s unscored", p.Prompt.Plain, p.Chosen.Plain, p.Rejected.Plain)
	}
	text := fmt.Sprintf("%s %s %v %s %v", p.Prompt.Plain, p.Chosen.Plain, p.ChosenScore, p.Rejected.Plain,
		p.RejectedScore)
	return text
}

// Every container gives the same pairs.
func TestContainers(t *testing.T) {
	type parquetRow struct {
		Prompt   string  `parquet:"prompt"`
		Chosen   string  `parquet:"chosen"`
		Rejected string  `parquet:"rejected"`
		Score1   float32 `parquet:"chosen_score"`
		Score2   int32   `parquet:"rejected_score"`
	}
	var lines, array []string
	var rows []parquetRow
	for i := range 3 {
		line := fmt.Sprintf(`{"prompt":"Q%d","chosen":"é","rejected":"no","chosen_score":0.5,"rejected_score":%d}`, i,
			i)
		lines, array = append(lines, line), append(array, "\n  "+line)
		rows = append(rows, parquetRow{fmt.Sprintf("Q%d", i), "é", "no", 0.5, int32(i)})
	}
	jsonl := strings.Join(lines, "\n")
	table := parquetOf(t, rows...)
	for _, c := range []struct{ name, content, source string }{
		{"p.jsonl", jsonl, "p.jsonl:3"},
		{"p.jsonl", "\ufeff" + strings.Join(lines, "\r\n\r\n") + "\n\n", "p.jsonl:5"},
		{"P.JSONL.GZ", gzipText(jsonl), "P.JSONL.GZ:3"},
		{"p.json", "[" + strings.Join(array, ",") + "\n]\n", "p.json: row 3"},
		{"p.json", "\ufeff [" + strings.Join(array, ",") + "]", "p.json: row 3"},
		{"p.json", jsonl, "p.json: row 3"},
		{"p.json.gz", gzipText("[" + strings.Join(array, ",") + "]"), "p.json.gz: row 3"},
		{"p.parquet", table, "p.parquet: row 3"},
		{"p.parquet.gz", gzipText(table), "p.parquet.gz: row 3"},
	} {
		pairs, report, err := StreamPreferences(mapFS(c.name, c.content), c.name, PreferenceOptions{}).Collect()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(pairs) != 3 || report.Kept != 3 || report.Scored != 3 {
			t.Errorf("%s: %d pairs, %s", c.name, len(pairs), report)
			continue
		}
		want := Preference{Prompt: plainText("Q2"), Chosen: plainText("é"), Rejected: plainText("no"), ChosenScore: 0.5,
			RejectedScore: 2, Scored: true, Source: c.source}
		if !reflect.DeepEqual(pairs[2], want) {
			t.Errorf("%s: %+v, want %+v", c.name, pairs[2], want)
		}
	}
}

// The files of testdata are laid out by pyarrow (scripts/oracle/parquet_fixtures.py).
func TestParquetAsHuggingFaceWritesIt(t *testing.T) {
	pairs, report, err := ReadPreferences(filepath.Join("testdata", "pairs.parquet"), PreferenceOptions{})
	expect.OK(t, err)
	if len(pairs) != 3 || report.Scored != 2 || report.ScoreColumns != "score_chosen, score_rejected" {
		t.Errorf("%d pairs, %s", len(pairs), report)
	}
	want := Preference{Prompt: conversation("user", "Ho"), Chosen: conversation("assistant", "日本"),
		Rejected: conversation("assistant", "no"), Source: filepath.Join("testdata", "pairs.parquet") + ": row 2"}
	if !reflect.DeepEqual(pairs[1], want) {
		t.Errorf("%+v, want %+v", pairs[1], want)
	}
	if p := pairs[2]; p.ChosenScore != 3 || p.RejectedScore != 4 {
		t.Errorf("scores %v, %v", p.ChosenScore, p.RejectedScore)
	}
	demos, _, err := StreamDemonstrations(os.DirFS("testdata"), "texts.parquet").Collect()
	if err != nil || len(demos) != 5 || demos[4].Completion.Plain != "line 4" {
		t.Errorf("%v, %v", demos, err)
	}
}

func TestDropsAndRemarksAreCounted(t *testing.T) {
	rows := `{"prompt":"Q","chosen":"a","rejected":"b","chosen_score":1,"rejected_score":2}
{"prompt":"","chosen":"a","rejected":"b"}
{"prompt":"Q","chosen":"","rejected":"b"}
{"prompt":"Q","chosen":"a","rejected":""}
{"prompt":"Q","chosen":"a","rejected":"a"}
{"chosen":"x","rejected":"y"}
{"prompt":"Q","chosen":" \n","rejected":"b"}
{"prompt":"Q","chosen":"a","rejected":"b\n\nHuman: c"}
{"chosen":[{"role":"user","content":"x"}],"rejected":[{"role":"user","content":"y"}]}
`
	pairs, report, err := StreamPreferences(mapFS("p.jsonl", rows), "p.jsonl", PreferenceOptions{}).Collect()
	expect.OK(t, err)
	want := `p.jsonl: 9 rows read, 3 kept, 1 scored (chosen_score, rejected_score)
  dropped 3: no prompt (first: p.jsonl:2)
  dropped 1: chosen is empty (first: p.jsonl:3)
  dropped 1: rejected is empty (first: p.jsonl:4)
  dropped 1: chosen and rejected are equal (first: p.jsonl:5)
  note: 1: rejected scores higher than chosen (first: p.jsonl:1)
  note: 1: chosen is only white space (first: p.jsonl:7)
  note: 1: an answer has turns of the user (first: p.jsonl:8)`
	if report.String() != want {
		t.Errorf("report\n%s\nwant\n%s", report, want)
	}
	if len(pairs) != 3 || report.Read-report.Kept != 6 {
		t.Errorf("%d pairs, %d dropped", len(pairs), report.Read-report.Kept)
	}
}

func TestPreferenceErrors(t *testing.T) {
	ok := `{"prompt":"Q","chosen":"a","rejected":"b"}` + "\n"
	for _, c := range []struct{ name, content, want string }{
		{"p.jsonl", "", "p.jsonl: no rows: the file is empty"},
		{"p.jsonl", "\n \n", "p.jsonl: no rows: the file is empty"},
		{"p.json", "[]", "p.json: no rows: the file is empty"},
		{"p.json", " ", "p.json: no rows: the file is empty"},
		{"p.jsonl", ok + "{\"prompt\": \n" + ok, "p.jsonl:2: bad JSON: the object is not closed"},
		{"p.jsonl", ok + ok + "{'prompt': 1}", "p.jsonl:3: bad JSON: invalid character '\\''"},
		{"p.jsonl", `{"prompt":"Q","chosen":"a","rejected":"b","chosen_score": NaN,"rejected_score":-Infinity}`,
			"chosen_score is NaN or Infinity: want a finite number"},
		{"p.jsonl", `{"prompt": NaN,"chosen":"a","rejected":"b"}`, "prompt is a number: want a string"},
		{"p.jsonl", "{} {}", "p.jsonl:1: more than one JSON value on the line"},
		{"p.jsonl", "[1]", "p.jsonl:1: a list: want a JSON object"},
		{"p.jsonl", ok + "{\"prompt\":\"\xff\"}", "p.jsonl:2: invalid UTF-8"},
		{"p.json", "[\n" + ok + ",\n{\"a\": \"\xff\"}]", "p.json: row 2: invalid UTF-8"},
		{"p.json", "[\n" + ok + ",\n{]", "p.json: row 2: bad JSON: invalid character ']'"},
		{"p.json", "[\n" + ok + ok + "]", "p.json: row 2: bad JSON: expected comma after array element"},
		{"p.json", "[\n" + ok, "p.json: row 2: bad JSON: the file ends inside a value"},
		{"p.json", "[" + ok + "] 5", "p.json: row 2: bad JSON: text after the closing ]"},
		{"p.json", "\n\n\n{]", "p.json: row 1: bad JSON"},
		{"p.json", "5", "p.json: row 1: a number: want a JSON object"},
		{"p.jsonl", ok + `{"question":"Q","answer":null}`,
			"p.jsonl:2: found columns answer (null), question: want prompt, chosen, rejected, or chosen, rejected"},
		{"p.jsonl", `{"prompt":"Q","chosen":"a","rejected":5}`,
			"p.jsonl:1: rejected is a number: want a string or a list of {role, content}"},
		{"p.jsonl", `{"prompt":{"a":1},"chosen":"a","rejected":"b"}`, "prompt is an object"},
		{"p.jsonl", `{"chosen":["a"],"rejected":["b"]}`, "chosen[0] is a string: want {role, content}"},
		{"p.jsonl", `{"chosen":[{"from":"narrator","value":"a"}],"rejected":[]}`,
			"chosen[0].from is \"narrator\": want human, gpt, system or tool"},
		{"p.jsonl", `{"chosen":[{"role":"user","content":null}],"rejected":[]}`,
			"chosen[0].content is null: want a string"},
		{"p.jsonl", `{"chosen":"a","rejected":[{"role":"user","content":""}]}`,
			"one of chosen and rejected is a string, the other a conversation"},
		{"p.jsonl", `{"prompt":"Q","chosen":"a","rejected":[{"role":"user","content":""}]}`,
			"one of chosen and rejected is a string, the other a conversation"},
		{"p.jsonl", `{"prompt":[{"role":"user","content":"Q"}],"chosen":"a","rejected":"b"}`,
			"prompt is a conversation but chosen and rejected are strings"},
		{"p.jsonl", `{"prompt":"Q","chosen":"a","rejected":"b","chosen_score":"high"}`,
			`p.jsonl:1: chosen_score is the string "high": want a finite number`},
		{"p.jsonl", `{"prompt":"Q","chosen":"a","rejected":"b","chosen_score":1e999,"rejected_score":1}`,
			"chosen_score is 1e999: want a finite number"},
		{"p.jsonl", `{"prompt":"Q","chosen":"a","rejected":"a"}`,
			"p.jsonl: all 1 rows dropped: 1: chosen and rejected are equal"},
		{"p.txt", "a,b", `p.txt: extension ".txt": want .jsonl, .json, .parquet, .csv or .tsv, each also with .gz`},
		{"p", "a,b", `p: extension "": want .jsonl`},
		{"p.jsonl.gz", ok, "p.jsonl.gz: not a gzip file"},
		{"p.jsonl.gz", "", "p.jsonl.gz: the file ends early"},
		{"p.jsonl.gz", gzipText(ok)[:30], "p.jsonl.gz: the file ends early in line 1: it is truncated"},
		{"p.json.gz", gzipText("[" + ok + "]")[:30], "p.json.gz: the file ends early in row 1: it is truncated"},
		{"p.jsonl.gz", flipLast(gzipText(ok)), "the gzip checksum is wrong"},
		{"p.parquet.gz", gzipText("x")[:15], "p.parquet.gz: the file ends early"},
		{"p.parquet", "", "p.parquet: not a readable parquet file"},
		{"p.parquet", ok, "p.parquet: not a readable parquet file: no PAR1 at its end"},
		{"p.parquet", "PAR1xxxx\xff\xff\xff\xffPAR1", "p.parquet: not a readable parquet file: its footer claims " +
			"4294967295 of 16 bytes"},
		{"p.parquet", "PAR1xxxx\x04\x00\x00\x00PAR1", "p.parquet: not a readable parquet file"},
		{"p.parquet", parquetOf(t, struct{ A, B string }{"x", "y"}),
			"p.parquet: row 1: found columns A, B: want prompt, chosen, rejected"},
		{"p.parquet", parquetOf(t, struct {
			Chosen   string  `parquet:"chosen"`
			Rejected float64 `parquet:"rejected"`
		}{"x", 1}), "p.parquet: row 1: rejected is a number"},
		{"p.parquet", parquetOf(t, struct {
			Chosen   string `parquet:"chosen"`
			Rejected string `parquet:"rejected"`
		}{"x", "\xff"}), "p.parquet: row 1: rejected is not valid UTF-8"},
	} {
		_, _, err := StreamPreferences(mapFS(c.name, c.content), c.name, PreferenceOptions{}).Collect()
		wantError(t, err, c.want)
	}
	nan := parquetOf(t, struct {
		Prompt   string  `parquet:"prompt"`
		Chosen   string  `parquet:"chosen"`
		Rejected string  `parquet:"rejected"`
		S        float64 `parquet:"chosen_score"`
	}{"Q", "a", "b", nan()})
	_, _, err := StreamPreferences(mapFS("p.parquet", nan), "p.parquet", PreferenceOptions{}).Collect()
	wantError(t, err, "p.parquet: row 1: chosen_score is NaN: want a finite number")
}

// flipLast damages the checksum, which is before the four bytes of the length.
func flipLast(gz string) string {
	b := []byte(gz)
	b[len(b)-5] ^= 1
	return string(b)
}

func TestMissingFileAndFolder(t *testing.T) {
	dir := t.TempDir()
	_, _, err := ReadPreferences(filepath.Join(dir, "none.jsonl"), PreferenceOptions{})
	wantError(t, err, "none.jsonl: no such file or directory")
	folder := filepath.Join(dir, "folder.jsonl")
	expect.OK(t, os.Mkdir(folder, 0o755))
	_, _, err = ReadPreferences(folder, PreferenceOptions{})
	wantError(t, err, "folder.jsonl: is a folder")
}

func TestNamedScoreColumns(t *testing.T) {
	row := mapFS("p.jsonl", `{"prompt":"Q","chosen":"a","rejected":"b","w":1}`)
	for _, c := range []struct {
		columns []string
		want    string
	}{
		{[]string{"w", "l"}, "p.jsonl: no row has a number in both score columns w and l: found columns chosen, " +
			"prompt, rejected, w"},
		{[]string{"w"}, "want two column names"},
		{[]string{"w", "w"}, "want two column names"},
		{[]string{"w", ""}, "want two column names"},
	} {
		_, _, err := StreamPreferences(row, "p.jsonl", PreferenceOptions{ScoreColumns: c.columns}).Collect()
		wantError(t, err, c.want)
	}
}

func TestARowOfManyMegabytesIsRefused(t *testing.T) {
	long := strings.Repeat(" ", MaxRowBytes) + "{}\n"
	_, _, err := StreamPreferences(mapFS("p.jsonl", "\n"+long), "p.jsonl", PreferenceOptions{}).Collect()
	wantError(t, err, "p.jsonl:2: longer than 64 MiB")
}

// TestPlainPromptBesideAnswers: a plain prompt beside answers that are the assistant's turns alone is the user's turn.
func TestPlainPromptBesideAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	const row = `{"prompt":"Q","chosen":[{"role":"assistant","content":"a"}],` +
		`"rejected":[{"role":"assistant","content":"b"}]}`
	expect.Write(t, path, row+"\n")
	pairs, _, err := ReadPreferences(path, PreferenceOptions{})
	want := []Message{{Role: "user", Content: "Q"}}
	if err != nil || len(pairs) != 1 || !slices.Equal(pairs[0].Prompt.Messages, want) ||
		pairs[0].Chosen.Messages[0].Content != "a" {
		t.Errorf("%+v, %v", pairs, err)
	}
	const whole = `"chosen":[{"role":"user","content":"Q"},{"role":"assistant","content":"a"}],` +
		`"rejected":[{"role":"user","content":"Q"},{"role":"assistant","content":"b"}]}`
	if p := onePair(t, `{"prompt":" Q\n",`+whole); !slices.Equal(p.Prompt.Messages, want) {
		t.Errorf("%+v", p)
	}
	_, _, err = StreamPreferences(mapFS("p.jsonl", `{"prompt":"The shop opens at nine.",`+whole), "p.jsonl",
		PreferenceOptions{}).Collect()
	wantError(t, err, `p.jsonl:1: the column prompt has "The shop opens at nine.", which the record lacks: want it in `+
		"the columns that are read (chosen, rejected), or the column left out")
}
