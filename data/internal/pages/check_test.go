package pages

import (
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Runs that claim more values than their page has made the library take gigabytes.
func TestCheckRuns(t *testing.T) {
	for text, want := range map[string]string{
		"\x08\x01":                 "",                       // 4 times 1
		"\x03\xff":                 "",                       // a group of 8 bits
		"\xfe\xff\xff\xff\x0f\x01": "more than the 8 values", // 2^31 times 1
		"\xff\xff\xff\xff\x0f\x01": "more than the 8 values", // 2^31 groups
		"\x08":                     "longer than its page", "\xff": "without its length",
	} {
		if err := checkRuns([]byte(text), 1, 8); err == nil && want != "" || err != nil && (want == "" ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// With an unknown repetition the library and the checks would take the same bytes for different things.
func TestUnknownRepetition(t *testing.T) {
	root := format.SchemaElement{Name: "root", NumChildren: thrift.Null[int32]{V: 1, Valid: true}}
	leaf := format.SchemaElement{Name: "a", Type: thrift.Null[format.Type]{V: format.ByteArray, Valid: true},
		RepetitionType: thrift.Null[format.FieldRepetitionType]{V: 7, Valid: true}}
	if _, err := leavesOf([]format.SchemaElement{root, leaf}); err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Error(err)
	}
}

func TestCheckThrift(t *testing.T) {
	for text, want := range map[string]string{
		"\x15\x02\x00": "", strings.Repeat("\x1c", 1000): "nests more than", "\x19\xfc\xff\xff\xff\xff\x07": "EOF",
		"\x19\xfc\x40" + strings.Repeat("\x00", 80): "more parts",
	} {
		if _, err := checkThrift([]byte(text), 50); err == nil && want != "" || err != nil && (want == "" ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A page with other texts than its header claims made the library print a line of its own.
func TestCountTexts(t *testing.T) {
	for text, want := range map[string]string{
		"\x01\x00\x00\x00a\x00\x00\x00\x00": "", "\x01\x00\x00\x00a": "found 1 texts, and its header claims 2",
		"\x09\x00\x00\x00a": "longer than the page",
	} {
		p := &page{of: &chunk{leaf: leaf{kind: format.ByteArray}}}
		if err := p.countTexts([]byte(text), nil, 2); err == nil && want != "" || err != nil && (want == "" ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
