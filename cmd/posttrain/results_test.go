package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestResults: each row of docs/results.md that has a verdict has a test, a command whose numbers are made again, here
// or in internal/speed, or the day and the commit of its data.
func TestResults(t *testing.T) {
	text := expect.Read(t, filepath.Join(root, "docs", "results.md"))
	simulation := regexp.MustCompile("^ `posttrain (federated simulate[^`]*)`")
	proven := regexp.MustCompile("`go test \\./|`go run \\./internal/speed seeds [^`]+` $|" +
		"\\(\\d{1,2} [A-Z][a-z]{2} 20\\d\\d, [0-9a-f]{8}\\) $")
	simulated, rows := map[string]string{}, 0
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 7 || strings.Contains(cells[4], "command") || strings.Contains(cells[1], "---") ||
			strings.Contains(cells[1], "**") {
			continue
		}
		rows++
		command := cells[4]
		if m := simulation.FindStringSubmatch(command); m != nil {
			if simulated[m[1]] == "" {
				simulated[m[1]] = simulateResult(t, m[1])
			}
			for _, x := range regexp.MustCompile(`\d+\.\d+|\d+ at most`).FindAllString(cells[2]+cells[3], -1) {
				if !regexp.MustCompile(`\b` + regexp.QuoteMeta(x) + `\b`).MatchString(simulated[m[1]]) {
					t.Errorf("%s does not give %s:\n%s", m[1], x, simulated[m[1]])
				}
			}
		} else if !proven.MatchString(command) && !strings.Contains(cells[5], "not tried") {
			t.Errorf("%s has neither a command that is tried, nor the day and commit of its data:%s", cells[1], command)
		}
		if strings.Contains(line, "one seed") && strings.Contains(cells[5], "holds small") &&
			!strings.Contains(cells[5], "one seed") {
			t.Errorf("%s holds small by one seed", cells[1])
		}
	}
	if rows < 30 || len(simulated) != 2 {
		t.Errorf("%d rows, %d simulations: want more", rows, len(simulated))
	}
}

// simulateResult is what a simulation prints, and its delays in words.
func simulateResult(t *testing.T, command string) string {
	dir := filepath.Join(t.TempDir(), "run")
	out := must(t, append(strings.Fields(command), "--out", dir)...).out
	records, err := run.ReadMetrics(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	sum, most := 0.0, 0.0
	for _, r := range records {
		sum, most = sum+r.Values["delay"], max(most, r.Values["delay"])
	}
	return fmt.Sprintf("%s\ndelays: %.2f on average, %g at most\n", out, sum/float64(len(records)), most)
}
