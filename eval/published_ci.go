package eval

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// PublishedCISource says where PublishedCI is from.
const PublishedCISource = "arXiv:2506.04245; one answer to each of 64 test items"

// CIRow is what a model shares: integrity, utility and complete, counted over all completions, or over the answers, the
// completions that keep the format.
type CIRow struct {
	Model     string `json:"model"`
	Method    string `json:"method,omitempty"`
	Over      string `json:"over"` // OverAll or OverAnswers
	Integrity Share  `json:"integrity"`
	Utility   Share  `json:"utility"`
	Complete  Share  `json:"complete"`
}

// What a CIRow counts over.
const (
	OverAll     = "all"
	OverAnswers = "answers"
)

// publishedCI are the counts behind the published percentages: before and after training, the denominator, then
// integrity, utility and complete. The paper has percentages only. Those of the untrained Llama and Mistral fit no
// number of 64 items; 42 and 49 are the only denominators that fit all three of a row, so they are of answers.
var publishedCI = []struct {
	model         string
	before, after [4]int
}{
	{"Qwen2.5-1.5B", [4]int{64, 24, 23, 3}, [4]int{64, 38, 28, 17}},
	{"Qwen2.5-3B", [4]int{64, 20, 34, 8}, [4]int{64, 37, 33, 18}},
	{"Qwen2.5-7B", [4]int{64, 30, 40, 19}, [4]int{64, 48, 43, 31}},
	{"Qwen2.5-14B", [4]int{64, 33, 43, 24}, [4]int{64, 50, 41, 32}},
	{"Llama-3.1-8B", [4]int{42, 26, 27, 16}, [4]int{64, 51, 51, 40}},
	{"Mistral-7B", [4]int{49, 19, 33, 12}, [4]int{64, 57, 53, 47}},
}

// publishedItems is the number of test items of the paper.
const publishedItems = 64

// PublishedCI are the rows of the CI-RL paper: each model untrained, and after CI-RL.
func PublishedCI() (rows []CIRow) {
	for _, p := range publishedCI {
		rows = append(rows, publishedRow(p.model, "untrained", p.before), publishedRow(p.model, "CI-RL", p.after))
	}
	return rows
}

func publishedRow(model, method string, n [4]int) CIRow {
	over := OverAll
	if n[0] < publishedItems {
		over = OverAnswers
	}
	return CIRow{model, method, over, Share{n[1], n[0]}, Share{n[2], n[0]}, Share{n[3], n[0]}}
}

// WriteBesidePublished prints what a model shares, counted in both ways, above the published rows.
func (t *Tally) WriteBesidePublished(w io.Writer, model string) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tab, "\nmodel\tmethod\tover\tintegrity\tutility\tcomplete\n")
	line := func(cells ...string) { fmt.Fprintln(tab, strings.Join(cells, "\t")) }
	line(model, "measured", OverAll, t.Integrity.short(), t.Utility.short(), t.Complete.short())
	line(model, "measured", OverAnswers, t.IntegrityOfAnswers.short(), t.UtilityOfAnswers.short(),
		t.CompleteOfAnswers.short())
	for _, r := range PublishedCI() {
		line(r.Model, r.Method, r.Over, r.Integrity.short(), r.Utility.short(), r.Complete.short())
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "95%% intervals; over all completions, or over the answers, which keep the format; "+
		"published: %s\n", PublishedCISource)
	return err
}

func (r Rate) short() string {
	low, high := r.Interval()
	return r.Share().brief(low, high)
}

func (s Share) short() string { return s.brief(s.Wilson()) }

// brief is the proportion in percent with count and interval, for a table.
func (s Share) brief(low, high float64) string {
	if s.Total == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%% %d/%d (%.1f-%.1f)", 100*s.Value(), s.Count, s.Total, 100*low, 100*high)
}
