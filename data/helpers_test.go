package data

import (
	"bytes"
	"compress/gzip"
	"testing"
	"testing/fstest"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// files is a file system of one file.
func mapFS(name, content string) fstest.MapFS {
	return fstest.MapFS{name: {Data: []byte(content)}}
}

func gzipText(content string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(content))
	z.Close()
	return b.String()
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

func plainText(s string) Text { return Text{Plain: s} }

// conversation is a conversation of alternating user and assistant messages.
func conversation(first string, contents ...string) Text {
	t := Text{Messages: []Message{}}
	roles := map[string]string{"user": "assistant", "assistant": "user"}
	for _, c := range contents {
		t.Messages = append(t.Messages, Message{Role: first, Content: c})
		first = roles[first]
	}
	return t
}

// wantError checks that an error is one line that holds every one of the parts.
var wantError = expect.Error

// onePair reads a file of one row.
func onePair(t *testing.T, row string) Preference {
	t.Helper()
	pairs, _, err := StreamPreferences(mapFS("p.jsonl", row), "p.jsonl", PreferenceOptions{}).Collect()
	if err != nil {
		t.Fatalf("%s: %v", row, err)
	}
	return pairs[0]
}
