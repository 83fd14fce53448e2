package data

import (
	"bytes"
	"cmp"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// readAll gives a file to every reader; what comes out must keep the promises of the records.
func readAll(t *testing.T, name, content string) {
	fsys := mapFS(name, content)
	pairs, report, err := StreamPreferences(fsys, name, PreferenceOptions{}).Collect()
	checkOutcome(t, len(pairs), report, err)
	for _, p := range pairs {
		for _, text := range []Text{p.Prompt, p.Chosen, p.Rejected} {
			if text.Empty() || !utf8.ValidString(text.Plain) {
				t.Fatalf("%+v", p)
			}
		}
		if p.Chosen.Equal(p.Rejected) || p.Chosen.IsChat() != p.Rejected.IsChat() ||
			p.Prompt.IsChat() != p.Chosen.IsChat() || p.Source == "" {
			t.Fatalf("%+v", p)
		}
	}
	demos, report, err := StreamDemonstrations(fsys, name).Collect()
	checkOutcome(t, len(demos), report, err)
	for _, d := range demos {
		if d.Completion.Empty() {
			t.Fatalf("%+v", d)
		}
	}
}

// checkOutcome wants rows or a one-line error that begins with the file's name.
func checkOutcome(t *testing.T, rows int, report *Report, err error) {
	t.Helper()
	if err == nil && (rows == 0 || report.Kept != rows) {
		t.Fatalf("%d rows, report %+v", rows, report)
	}
	if err != nil && (rows > 0 || !strings.HasPrefix(err.Error(), "f.")) {
		t.Fatalf("%d rows beside the error %q", rows, err)
	}
}

var jsonSeeds = []string{
	`{"prompt":"Q","chosen":"a","rejected":"b","chosen_score":1,"rejected_score":0}`,
	`{"chosen":[{"role":"user","content":"Q"},{"role":"assistant","content":"a"}],"rejected":[{"role":"user",` +
		`"content":"Q"},{"role":"assistant","content":"b"}]}`,
	`{"chosen":"\n\nHuman: a\n\nAssistant: é","rejected":"\n\nHuman: a\n\nAssistant: è"}`,
	`{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"a"}],"text":"t"}`,
	`{"a":1e999,"b":"\ud800"}`,
}

func FuzzJSONL(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add(s + "\n" + s)
	}
	f.Fuzz(func(t *testing.T, content string) { readAll(t, "f.jsonl", content) })
}

func FuzzJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add("[" + s + ",\n" + s + "]")
		f.Add(s + s)
	}
	f.Fuzz(func(t *testing.T, content string) { readAll(t, "f.json", content) })
}

func FuzzGzip(f *testing.F) {
	f.Add(gzipText(jsonSeeds[0]))
	f.Fuzz(func(t *testing.T, content string) { readAll(t, "f.jsonl.gz", content) })
}

// fuzzRow has every kind of column that the readers know, and rows with several values.
type fuzzRow struct {
	Prompt   string    `parquet:"prompt,optional"`
	Chosen   []Message `parquet:"chosen,list"`
	Rejected []Message `parquet:"rejected,list"`
	Score    float64   `parquet:"chosen_score,optional,dict"`
	Other    float64   `parquet:"rejected_score,split"`
	Text     string    `parquet:"text,delta"`
	Flag     bool      `parquet:"flag,optional"`
	Number   int32     `parquet:"number,delta"`
}

// fuzzFiles are small whole files in every compression, with pages of both versions, with and without dictionaries.
func fuzzFiles(f *testing.F) (files [][]byte) {
	turn := func(text string) []Message {
		return []Message{{Role: "user", Content: "Q"}, {Role: "assistant", Content: text}}
	}
	var plain []onlyText
	var rows []fuzzRow
	for i := range 12 {
		rows = append(rows, fuzzRow{"Q", turn("a"), turn("b"), float64(i % 3), 1, "text", i%2 == 0, int32(i)})
		plain = append(plain, onlyText{"Q", "good " + "goods"[:i%5], "bad, worse, worst, worst, worst"})
	}
	for i, codec := range []compress.Codec{
		&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Brotli, &parquet.Zstd, &parquet.Lz4Raw,
	} {
		options := []parquet.WriterOption{parquet.Compression(codec), parquet.DataPageVersion(1 + i%2)}
		files = append(files, fuzzFile(f, plain, options...))
		if i%3 == 0 {
			files = append(files, fuzzFile(f, rows, options...))
		}
	}
	for _, name := range []string{"runs", "pairs", "texts"} { // without checksums, which find all damage in a page
		file := expect.Bytes(f, "testdata/"+name+".parquet")
		files = append(files, file)
	}
	return files
}

type onlyText struct {
	Prompt   string `parquet:"prompt,dict,optional"`
	Chosen   string `parquet:"chosen,dict"`
	Rejected string `parquet:"rejected,plain"`
}

func fuzzFile[T any](f *testing.F, rows []T, options ...parquet.WriterOption) []byte {
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, options...)
	_, err := w.Write(rows)
	expect.OK(f, cmp.Or(err, w.Close()))
	return b.Bytes()
}

// FuzzParquet damages whole files in a few bytes: bytes at random would hardly ever be a parquet file.
func FuzzParquet(f *testing.F) {
	expect.LimitMemory(f)
	files := fuzzFiles(f)
	for i := range files {
		f.Add(uint8(i), []byte(nil))
		f.Add(uint8(i), []byte{40, 0, 2, 0, 10, 0, 0, 200})
	}
	f.Fuzz(func(t *testing.T, file uint8, edits []byte) {
		content := expect.Edit(files[int(file)%len(files)], edits)
		defer expect.Within("")()
		pairs, report, err := StreamPreferences(fstest.MapFS{"f.parquet": {Data: content}}, "f.parquet", PreferenceOptions{}).Collect()
		checkOutcome(t, len(pairs), report, err)
	})
}
