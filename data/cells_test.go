package data

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"testing/fstest"
)

// TestTables: pairs of .csv and .tsv, also packed: a header, quotes, line ends within texts, both kinds of line ends,
// with and without a byte order mark; scores are numbers, a text of digits stays one.
func TestTables(t *testing.T) {
	const comma = "id,prompt,chosen,rejected,chosen_score,rejected_score\n" +
		`1,"Say ""hi"", please",42,"no,` + "\n" + `never",4.5,1` + "\n" +
		"2,Où?,là,\"\t\",,\n"
	const tab = "id\tprompt\tchosen\trejected\tchosen_score\trejected_score\r\n" +
		"1\t\"Say \"\"hi\"\", please\"\t42\t\"no,\nnever\"\t4.5\t1\r\n" +
		"2\tOù?\tlà\t\"\t\"\t\t\r\n"
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte(comma))
	z.Close()
	for name, text := range map[string]string{"p.csv": comma, "marked.csv": "\ufeff" + comma, "p.tsv": tab,
		"marked.tsv": "\ufeff" + tab, "P.CSV.gz": zipped.String()} {
		fsys := fstest.MapFS{name: {Data: []byte(text)}}
		all, report, err := StreamPreferences(fsys, name, PreferenceOptions{}).Collect()
		if err != nil || len(all) != 2 || report.Scored != 1 || report.UnreadColumns() == "" {
			t.Errorf("%s: %v, %v, %v", name, all, report, err)
			continue
		}
		p, q := all[0], all[1]
		if p.Prompt.Plain != `Say "hi", please` || p.Chosen.Plain != "42" || p.Rejected.Plain != "no,\nnever" ||
			p.ChosenScore != 4.5 || p.RejectedScore != 1 || p.Source != name+":2" {
			t.Errorf("%s: %+v", name, p)
		}
		if q.Prompt.Plain != "Où?" || q.Rejected.Plain != "\t" || q.Scored || q.Source != name+":4" {
			t.Errorf("%s: %+v", name, q)
		}
	}
}

// TestTablesOfOtherRecords: labels are read, conversations as JSON, and a column of row numbers without a name is not.
func TestTablesOfOtherRecords(t *testing.T) {
	fsys := fstest.MapFS{
		"l.csv": {Data: []byte(",prompt,completion,label\n0,Q,A,True\n1,Q,B,0\n")},
		"c.csv": {Data: []byte("messages\n\"[{\"\"role\"\":\"\"user\"\",\"\"content\"\":\"\"Q\"\"}," +
			"{\"\"role\"\":\"\"assistant\"\",\"\"content\"\":\"\"A\"\"}]\"\n")},
	}
	all, report, err := ReadLabelled(fsys, "l.csv")
	if err != nil || len(all) != 2 || !all[0].Desirable || all[1].Desirable || report.Unread != nil {
		t.Errorf("%+v, %v, %v", all, report, err)
	}
	demos, _, err := StreamDemonstrations(fsys, "c.csv").Collect()
	if err != nil || len(demos) != 1 || demos[0].Completion.Last() != "A" {
		t.Errorf("%+v, %v", demos, err)
	}
}

// TestBadTables: each mistake has one line, which names file and line.
func TestBadTables(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "p.csv: no rows: the file is empty",
		"prompt,completion\n":         "p.csv: no rows: the file is empty",
		"prompt,completion\na,b\nc\n": `p.csv:3: 1 cells, and the header has 2: want as many (a separator in a text`,
		"prompt,completion\na,b\" c\n": "p.csv:2: a quote in the wrong place, or the file is truncated: want texts " +
			"with quotes in quotes, and theirs doubled",
		"prompt,completion\na,b\n\"c,d\n": "p.csv:3: a quote in the wrong place",
		"prompt,prompt\na,b\n":            "p.csv:1: the column prompt is there twice: want each once",
		"prompt;completion\na;b\n":        "p.csv:1: one column, prompt;completion: want commas between the cells",
		"prompt,completion\na,\xff\n":     "p.csv:2: invalid UTF-8",
		"\xff\xfep\x00,\x00q\x00\n":       "p.csv:1: invalid UTF-8",
		"a,b\nc,d\n":                      "p.csv:2: found columns a, b: want text, or messages, or prompt",
	} {
		_, _, err := StreamDemonstrations(fstest.MapFS{"p.csv": {Data: []byte(text)}}, "p.csv").Collect()
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	s := StreamDemonstrations(fstest.MapFS{"p.csv": {Data: []byte("prompt,completion\na,b\nc\nd,e\n")}}, "p.csv")
	var bad []string
	s = s.Lenient(func(row string, _ error) { bad = append(bad, row) })
	report, err := s.Each(func(Demonstration) error { return nil })
	if err != nil || report.Kept != 2 || len(bad) != 1 || bad[0] != "p.csv:3" {
		t.Errorf("%+v, %v, %v: a short row is not the only one that is left out", report, bad, err)
	}
}
