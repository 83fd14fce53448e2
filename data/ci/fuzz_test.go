package ci

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// readBack gives a file to the reader; what comes out must keep the promises of the records.
func readBack(t *testing.T, name, content string) {
	items, report, err := readFrom(files(name, content), name, AllItems)
	if err == nil && (len(items) == 0 || report.Kept != len(items)) {
		t.Fatalf("%d items, report %+v", len(items), report)
	}
	if err != nil && (len(items) > 0 || !strings.HasPrefix(err.Error(), "f.")) {
		t.Fatalf("%d items beside the error %q", len(items), err)
	}
	for i := range items {
		Reference(items[i], 1)
		for _, kind := range PromptKinds {
			Prompt(items[i], kind, 1)
		}
	}
}

func FuzzJSONL(f *testing.F) {
	f.Add(oneLine(ciRow) + "\n" + oneLine(ciRow))
	f.Add(`{"a":1e999,"b":"\ud800"}`)
	f.Fuzz(func(t *testing.T, content string) { readBack(t, "f.jsonl", content) })
}

func FuzzJSON(f *testing.F) {
	f.Add("[" + oneLine(ciRow) + ",\n" + oneLine(ciRow) + "]")
	f.Add(oneLine(ciRow) + oneLine(ciRow))
	f.Fuzz(func(t *testing.T, content string) { readBack(t, "f.json", content) })
}

func FuzzParquet(f *testing.F) {
	expect.LimitMemory(f)
	var files [][]byte
	for i, name := range []string{"ci.parquet", "ci-struct.parquet", "ci-map.parquet", "ci-json.parquet"} {
		content := expect.Bytes(f, filepath.Join("testdata", name))
		files = append(files, content)
		f.Add(uint8(i), []byte{40, 0, 2, 0, 10, 0, 0, 200})
	}
	f.Fuzz(func(t *testing.T, file uint8, edits []byte) {
		defer expect.Within("")()
		readBack(t, "f.parquet", string(expect.Edit(files[int(file)%len(files)], edits)))
	})
}
