package records

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// options are the command's defaults.
var options = Options{Near: 0.7}

// checked checks a file with these lines.
func checked(t *testing.T, o Options, lines ...string) *Report {
	t.Helper()
	path := expect.File(t, "f.jsonl", strings.Join(lines, "\n"))
	return expect.Must(Check(context.Background(), path, o))(t)
}

// found writes the groups of a report: severity, rule, places and rows.
func found(r *Report) string {
	var all []string
	for _, g := range r.Groups {
		all = append(all, fmt.Sprintf("%s %s %d/%d", g.Severity, g.Name, g.Count, g.Rows))
	}
	return strings.Join(all, ", ")
}

// TestReleasedItems: the counts of the released set are those that a script of its own has counted in the JSON.
func TestReleasedItems(t *testing.T) {
	r := expect.Must(Check(context.Background(), need.File(t, "data", "contextual-integrity/dataset.json"), options))(t)
	counts := map[string]string{}
	for _, g := range r.Groups {
		counts[g.Name+": "+g.What] = fmt.Sprintf("%d in %d", g.Count, g.Rows)
	}
	for what, want := range map[string]string{
		"flattened: information value is an object":                   "79 in 41",
		"flattened: information value is a list":                      "78 in 55",
		"flattened: information value is a number":                    "3 in 3",
		"flattened: keyword is a list":                                "8 in 8",
		"flattened: keyword is an object":                             "5 in 2",
		"verbatim: a keyword does not occur in its information value": "178 in 112",
		flatVerbatim.Name + ": " + flatVerbatim.What:                  "21 in 15",
		"sides: a keyword is on both sides":                           "31 in 28",
		"inside: " + gates[gateNumber("inside")].What:                 "35 in 32",
		"task: " + gates[gateNumber("task")].What:                     "8 in 7",
		"released: " + unreleased.What:                                "90 in 90",
	} {
		if counts[what] != want {
			t.Errorf("%s: %q, want %s", what, counts[what], want)
		}
	}
	if r.Rows != 729 || r.Kept != 729 || r.Errors != 32 || !r.Fails() {
		t.Errorf("%d rows, %d kept, %d with errors", r.Rows, r.Kept, r.Errors)
	}
}

// TestRealFiles: what the other real files have.
func TestRealFiles(t *testing.T) {
	for name, want := range map[string]string{
		"hh-rlhf/harmless-base-test.jsonl.gz": "warning odd 4/4, note near-duplicate 8/8",
		"alpaca-eval/pairs.jsonl.gz":          "warning gaps 1/0, note near-duplicate 18/18, note columns 2/0",
	} {
		r := expect.Must(Check(context.Background(), need.File(t, "data", name), options))(t)
		if got := found(r); got != want || r.Fails() {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// goodItem is a line that passes all gates.
const goodItem = `{"seed":{"scenario":"email","domain":"Work","user_intention":"ask","sender":"user","recipient":"boss",` +
	`"data_subject":"user","transmission_principle":"Consent"},"dataset_item":{"user_task":"Ask for a day off",` +
	`"information":{"Name":"I am Ann Lee","Bag":"red bag"},` +
	`"annotation":{"allowed":{"Name":"Ann Lee"},"disallowed":{"Bag":"red bag"}}}}`

func change(old, with string) string { return strings.Replace(goodItem, old, with, 1) }

// TestItems: one change to a good item is found by the rules that it is about.
func TestItems(t *testing.T) {
	for _, c := range []struct {
		name, line, want string
	}{
		{"good", goodItem, ""},
		{"not JSON", `{"seed":`, "error row 1/1"},
		{"not UTF-8", change("red", "\xff"), "error row 1/1"},
		{"no seed", change(`"domain":"Work",`, ""), "error row 1/1"},
		{"no recipient", change(`"boss"`, `""`), "warning schema 1/1"},
		{"a list", change(`"red bag"`, `["red bag"]`), "note flattened 1/1, note released 1/1"},
		{"an unlabelled number", change(`"red bag"`, `"red bag","Age":7`), "note flattened 1/1, note label 1/1"},
		{"stray", change(`{"Bag":"red bag"}`, `{"Bag":"blue"}`), "warning verbatim 1/1, warning discriminates 1/1"},
		{"stray in a list", strings.Replace(change(`"Bag":"red bag"}`, `"Bag":["red bag"]}`), `{"Bag":"red bag"}`,
			`{"Bag":"blue"}`, 1),
			"warning verbatim 1/1, warning discriminates 1/1, note flattened 1/1, note released 1/1"},
		{"both sides", strings.Replace(change("red bag", "ANN LEE"), "red bag", "Ann Lee", 1),
			"error sides 1/1, error inside 1/1, warning elsewhere 1/1"},
		{"in the task", change("Ask for", "Red bag for"), "warning task 1/1"},
		{"a long keyword", strings.ReplaceAll(goodItem, "red bag", "a big bag that is red"), "note short 1/1"},
		{"twice", change(`"disallowed":{"Bag":"red bag"}`, `"disallowed":{"Bag":["red bag","red bag"]}`),
			"note flattened 1/1, note released 1/1, note label 1/1"},
	} {
		o := options
		o.Kind = KindCI
		if r := checked(t, o, c.line); found(r) != c.want || r.Fails() != strings.HasPrefix(c.want, "error") {
			t.Errorf("%s: %s, want %s", c.name, found(r), c.want)
		}
	}
}
