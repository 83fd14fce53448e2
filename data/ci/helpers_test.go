package ci

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// wantError checks that an error is one line that holds every one of the parts.
var wantError = expect.Error

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }

// files is a file system of one file.
func files(name, content string) fstest.MapFS {
	return fstest.MapFS{name: {Data: []byte(content)}}
}

// parquetOf writes rows as a parquet file.
func parquetOf[T any](t *testing.T, rows ...T) string {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b)
	expect.Must(w.Write(rows))(t)
	expect.OK(t, w.Close())
	return b.String()
}

// allForms are the names under which records can be written.
var allForms = []string{"x.json", "x.jsonl", "x.json.gz", "x.jsonl.gz"}
