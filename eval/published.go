package eval

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
)

//go:embed published.json
var publishedFile []byte

// Published are the figures that others have published for a benchmark, as tables; "" without any. The paper on CI-RL has
// percentages only: the untrained Llama and Mistral have ones that fit no number of 64 items; 42 and 49 are the only
// denominators that fit all three of a row, so they are of answers.
func Published(benchmark string) string {
	var all map[string][]struct {
		Source  string
		Columns []string
		Rows    [][]string
	}
	if err := json.Unmarshal(publishedFile, &all); err != nil {
		panic(err) // the file is part of the program
	}
	var b strings.Builder
	for _, table := range all[benchmark] {
		fmt.Fprintf(&b, "\npublished (%s):\n", table.Source)
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{table.Columns}, table.Rows...) {
			fmt.Fprintln(t, strings.Join(row, "\t"))
		}
		t.Flush()
	}
	return b.String()
}
