package pages

import (
	"fmt"
	"slices"
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
		checkFault(t, text, func() { runs([]byte(text), 1, 8, nil) }, want)
	}
}

// A schema that nests without end would make the library call itself without end.
func TestCheckSchema(t *testing.T) {
	group := format.SchemaElement{NumChildren: thrift.Null[int32]{V: 1, Valid: true}}
	leaf := format.SchemaElement{Type: thrift.Null[format.Type]{V: format.ByteArray, Valid: true}}
	wide := format.SchemaElement{NumChildren: thrift.Null[int32]{V: 1000, Valid: true}}
	two := format.SchemaElement{NumChildren: thrift.Null[int32]{V: 2, Valid: true}}
	named := func(e format.SchemaElement, name string) format.SchemaElement { e.Name = name; return e }
	var many []format.SchemaElement
	for i := range 1000 {
		many = append(many, named(group, fmt.Sprint(i)), leaf)
	}
	for _, c := range []struct {
		schema []format.SchemaElement
		want   string
	}{
		{[]format.SchemaElement{group, group, leaf}, ""},
		{append([]format.SchemaElement{wide}, many...), ""},
		{[]format.SchemaElement{two, named(leaf, "chosen"), named(leaf, "chosen")}, `the column "chosen" is there twice`},
		{[]format.SchemaElement{two, named(group, "a"), leaf, named(leaf, "b")}, ""},
		{slices.Repeat([]format.SchemaElement{group}, 100), "nest more than 32 deep"},
	} {
		checkFault(t, fmt.Sprint(len(c.schema)), func() { checkSchema(c.schema) }, c.want)
	}
}

// checkFault wants a panic with some words, or none.
func checkFault(t *testing.T, name string, do func(), want string) {
	t.Helper()
	err := func() (err error) {
		defer Catch(&err)
		do()
		return nil
	}()
	if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
		t.Errorf("%q: %v, want %q", name, err, want)
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
		"\x09\x00\x00\x00a": "are longer than the page",
	} {
		checkFault(t, text, func() { countTexts([]byte(text), 2) }, want)
	}
}
