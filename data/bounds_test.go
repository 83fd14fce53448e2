package data

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/parquet-go/parquet-go"
)

// readBounded reads a file of pairs and wants no more memory in all than a reader may take: ten times the file and
// 200 MB. The collector runs often, so that the memory is what the reader holds and not what a busy machine leaves.
func readBounded(t *testing.T, name string, content []byte) (int, error) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	debug.FreeOSMemory()
	before := resident()
	pairs, _, err := StreamPreferences(fstest.MapFS{name: {Data: content}}, name, PreferenceOptions{}).Collect()
	if grown := resident() - before; grown > 200<<20+10*int64(len(content)) {
		t.Errorf("%d MiB of memory for a file of %d bytes", grown>>20, len(content))
	}
	return len(pairs), err
}

// resident is the bytes that Go has from the system.
func resident() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}

type dictRow struct {
	Prompt   string `parquet:"prompt,dict,zstd"`
	Chosen   string `parquet:"chosen,dict,zstd"`
	Rejected string `parquet:"rejected"`
}

// A page names a long text of the dictionary in a bit: the rows would take ten thousand times the file.
func TestDictionaryBomb(t *testing.T) {
	rows := make([]dictRow, 20000)
	long := strings.Repeat("x", 1<<18)
	for i := range rows {
		rows[i] = dictRow{long, "yes", "no"}
	}
	_, err := readBounded(t, "f.parquet", []byte(parquetOf(t, rows...)))
	wantError(t, err, "f.parquet: row ", "unpacks to more than", "want it unpacked, as .jsonl")
}

// A text that many rows have is kept once.
func TestDictionaryOfLongTexts(t *testing.T) {
	rows := make([]dictRow, 2000)
	long := strings.Repeat("x", 1<<17)
	for i := range rows {
		rows[i] = dictRow{long, "yes", "no"}
	}
	n, err := readBounded(t, "f.parquet", []byte(parquetOf(t, rows...)))
	if n != len(rows) || err != nil {
		t.Fatalf("%d rows, %v", n, err)
	}
}

// The texts of one row come from a dictionary too.
func TestParquetRowBomb(t *testing.T) {
	type row struct {
		Chosen   []string `parquet:"chosen,dict"`
		Rejected string   `parquet:"rejected"`
	}
	long := strings.Repeat("x", 1<<14)
	many := make([]string, 6000)
	for i := range many {
		many[i] = long
	}
	_, err := readBounded(t, "f.parquet", []byte(parquetOf(t, row{many, "no"})))
	wantError(t, err, "f.parquet: row 1:", "MiB of text", "16 MiB")
}

func TestPageBomb(t *testing.T) {
	var b bytes.Buffer
	w := parquet.NewGenericWriter[onlyText](&b, parquet.Compression(&parquet.Zstd), parquet.PageBufferSize(1<<30))
	rows := make([]onlyText, 200)
	for i := range rows {
		rows[i] = onlyText{"Q", "yes", strings.Repeat(string(rune('a'+i%26)), 1<<19)}
	}
	if _, err := w.Write(rows); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	_, err := readBounded(t, "f.parquet", b.Bytes())
	wantError(t, err, "f.parquet: not a readable parquet file: its pages claim to need", "for a file of its size")
}

// LZ4 as pyarrow writes it (scripts/oracle/parquet_fixtures.py): the codec of the library returns pages of zeros.
func TestLZ4(t *testing.T) {
	pairs, _, err := ReadPreferences(filepath.Join("testdata", "lz4.parquet"), PreferenceOptions{})
	if err != nil || len(pairs) != 60 {
		t.Fatalf("%d rows, %v", len(pairs), err)
	}
	for i, p := range pairs {
		var words []string
		for k := 1; k < 40; k++ {
			words = append(words, fmt.Sprint(i*i*k%997))
		}
		if want := strings.Join(words, " "); p.Prompt.Plain != fmt.Sprint("Q", i) || p.Rejected.Plain != want {
			t.Fatalf("row %d: %+v", i+1, p)
		}
	}
}

// Every byte of a small LZ4 file changed: an error or the rows, never memory without end.
func TestDamagedLZ4(t *testing.T) {
	var b bytes.Buffer
	w := parquet.NewGenericWriter[onlyText](&b, parquet.Compression(&parquet.Lz4Raw))
	if _, err := w.Write([]onlyText{{"Q", "good, good, good, good", "bad, bad, bad"}}); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	for i := range b.Bytes() {
		content := bytes.Clone(b.Bytes())
		content[i] ^= 0x41
		if _, err := readBounded(t, "f.parquet", content); err != nil {
			wantError(t, err, "f.parquet: ")
		}
	}
}

// zipped is gzip of the parts.
func zipped(t *testing.T, parts ...io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.Copy(z, io.MultiReader(parts...)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// repeat is a text without end.
type repeat string

func (r repeat) Read(p []byte) (n int, err error) {
	n = copy(p, strings.Repeat(string(r), 1+len(p)/len(r)))
	return n - n%min(n, len(r)), nil
}

func TestGzipBombs(t *testing.T) {
	endless := func(text string) io.Reader { return io.LimitReader(repeat(text), 100<<20) }
	row := `{"prompt":"q","chosen":"a","rejected":"b"}` + "\n"
	for name, content := range map[string]struct {
		parts []io.Reader
		want  string
	}{
		"rows.jsonl.gz": {[]io.Reader{endless(row)}, "unpacks to more than"},
		"line.jsonl.gz": {[]io.Reader{endless("x")}, "longer than 16 MiB"},
		"value.json.gz": {[]io.Reader{strings.NewReader(`{"chosen":"`), endless("x")}, "longer than 16 MiB"},
		"values.json.gz": {[]io.Reader{strings.NewReader("["), endless(strings.ReplaceAll(row, "\n", ","))},
			"unpacks to"},
		"list.json.gz": {[]io.Reader{strings.NewReader(`{"chosen":[`), io.LimitReader(repeat("0,"), 1<<20)},
			"ends inside"},
		"f.parquet.gz": {[]io.Reader{endless("PAR1")}, "unpacks to more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readBounded(t, name, zipped(t, content.parts...))
			wantError(t, err, name, content.want)
		})
	}
}

// A value takes two bytes in JSON, and fifty in memory.
func TestManyValues(t *testing.T) {
	text := `{"prompt":"q","chosen":"a","rejected":"b","x":[` + strings.Repeat("0,", 1<<20) + "0]}"
	for _, name := range []string{"f.jsonl", "f.json"} {
		_, err := readBounded(t, name, []byte(text))
		wantError(t, err, name+":", "more than 262144 JSON values")
	}
}

func TestLongJSONValue(t *testing.T) {
	text := `[{"chosen":"a","rejected":"b","prompt":"` + strings.Repeat("x", 65<<20) + `"}]`
	_, err := readBounded(t, "f.json", []byte(text))
	wantError(t, err, "f.json: cannot be read in row 1: a JSON value is longer than 64 MiB")
}

func TestBytesBehindGzip(t *testing.T) {
	row := `{"prompt":"q","chosen":"a","rejected":"b"}` + "\n"
	whole := gzipText(row)
	for _, c := range []struct {
		name, content, want string
	}{
		{"two members", whole + whole, ""},
		{"empty members", strings.Repeat(gzipText(""), 1000) + whole + strings.Repeat(gzipText(""), 1000), ""},
		{"zeros", whole + "\x00\x00\x00", ""},
		{"text", whole + "other bytes behind it", "other bytes follow the compressed data"},
		{"a byte", whole + "x", "other bytes follow the compressed data"},
		{"cut", (whole + whole)[:len(whole)+12], "ends early"},
		{"cut in its head", (whole + whole)[:len(whole)+4], "ends early"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pairs, _, err := StreamPreferences(mapFS("f.jsonl.gz", c.content), "f.jsonl.gz", PreferenceOptions{}).Collect()
			if c.want != "" {
				wantError(t, err, "f.jsonl.gz", c.want)
			} else if err != nil || len(pairs) == 0 {
				t.Fatal(err)
			}
		})
	}
}

// An unpacked temporary file is removed whatever happens.
func TestParquetGzipLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	whole := parquetOf(t, dictRow{"q", "a", "b"})
	for _, content := range []string{gzipText(whole), gzipText(whole[:40]), gzipText(whole)[:40]} {
		StreamPreferences(mapFS("f.parquet.gz", content), "f.parquet.gz", PreferenceOptions{}).Collect()
	}
	left, err := fs.ReadDir(os.DirFS(os.TempDir()), ".")
	if len(left) != 0 || err != nil {
		t.Fatal(left, err)
	}
}
