package eval

import (
	"fmt"
	"strings"
)

// The benchmarks that the MaPPO paper (arXiv:2507.21183) has rows for.
const (
	AlpacaEval = iota
	ArenaHard
	MTBench
)

// Published is what a published row says of a model on a benchmark.
type Published struct {
	Model  string  `json:"model"`
	Method string  `json:"method"`
	Score  float64 `json:"score"`
}

// published are the paper's rows of publishedModel, one score for each benchmark.
var published = []struct {
	method string
	scores [3]float64
}{
	{"untrained", [3]float64{27.03, 42.9, 8.61}},
	{"DPO", [3]float64{32.01, 45.5, 8.56}}, {"DPO + MaPPO", [3]float64{38.24, 59.2, 8.79}},
	{"SimPO", [3]float64{25.15, 64.2, 9.02}}, {"SimPO + MaPPO", [3]float64{32.75, 69.5, 8.94}},
	{"IPO", [3]float64{27.76, 53.0, 8.83}}, {"IPO + MaPPO", [3]float64{28.84, 64.4, 8.84}},
	{"CPO", [3]float64{32.94, 47.6, 8.62}}, {"CPO + MaPPO", [3]float64{33.71, 54.1, 8.68}},
}

const publishedModel = "Qwen2.5-7B-Instruct"

// PublishedRows are the paper's rows of a benchmark.
func PublishedRows(benchmark int) (rows []Published) {
	for _, p := range published {
		rows = append(rows, Published{publishedModel, p.method, p.scores[benchmark]})
	}
	return rows
}

// PublishedLine prints the rows of a benchmark in a line.
func PublishedLine(benchmark int) string {
	var parts []string
	for _, p := range PublishedRows(benchmark) {
		parts = append(parts, fmt.Sprintf("%s %g", p.Method, p.Score))
	}
	return fmt.Sprintf("published (arXiv:2507.21183) of %s: %s\n", publishedModel, strings.Join(parts, ", "))
}
