// Package doctor says in words what goes wrong in a training run ([Look]). It looks for known symptoms in the metrics
// of a run ([Examine]), and compares its files and data with the manifest that the run left.
//
// Glossary:
//   - log: the records of metrics.jsonl ([Log]);
//   - change: a metric at the beginning and at the end of a run. Of held-out examples, which are the same ones each
//     time, these are the first and the last value; of batches, the means of the first and the last tenth of the
//     values, with the standard error of their difference;
//   - symptom: what is wrong with a run, and how a log shows it: overfitting;
//   - finding: a symptom with the numbers and steps that show it, and what one may change ([Finding]).
//
// A symptom is found only where the change is more than three standard errors, and large beside a threshold that its
// constants name. A finding is a warning to look, no proof.
package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/internal/run"
)

// Finding is something that is wrong with a run.
type Finding struct {
	Symptom  string     `json:"rule"`
	Says     string     `json:"says"`
	Evidence []Evidence `json:"evidence"`
	Advice   string     `json:"advice"`
}

// Evidence is what a metric was at two steps.
type Evidence struct {
	Metric   string  `json:"metric"`
	FromStep int     `json:"from_step"`
	From     float64 `json:"from"`
	ToStep   int     `json:"to_step"`
	To       float64 `json:"to"`
	Note     string  `json:"note,omitempty"` // how they were measured
}

func (e Evidence) String() string {
	text := fmt.Sprintf("%s: %.4g at step %d, %.4g at step %d", e.Metric, e.From, e.FromStep, e.To, e.ToStep)
	if e.Note != "" {
		text += " (" + e.Note + ")"
	}
	return text
}

// Report is what was found in a log.
type Report struct {
	Log        string    `json:"log"`
	Steps      int       `json:"steps"`
	Findings   []Finding `json:"findings"`
	Looked     []string  `json:"looked_for"`
	Unmeasured []string  `json:"not_measured"` // symptoms whose metrics the log lacks, or has too few of

	Files   int      `json:"files"`   // of the run and its inputs that were compared with its manifest
	Changed []string `json:"changed"` // those that are not as they were
}

// Log is what a run has measured.
type Log struct {
	Path    string
	Records []run.Record
}

// Look examines the log of a run folder, or a metrics.jsonl; of a run that has ended it compares the files, too.
func Look(path string) (*Report, error) {
	l := &Log{Path: path}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		l.Path = filepath.Join(path, "metrics.jsonl")
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, run.Cause(err))
	}
	if l.Records, err = run.ReadMetrics(l.Path); err != nil {
		return nil, err
	}
	if len(l.Records) == 0 {
		return nil, fmt.Errorf("%s: there is no log of a run in it: want a run folder, or its metrics.jsonl", path)
	}
	r := Examine(l)
	if !info.IsDir() {
		return r, nil
	}
	m, err := run.ReadManifest(path)
	switch {
	case err != nil || m == nil:
	case m.Outputs != nil:
		r.Files, r.Changed = len(m.Inputs)+len(m.Outputs), append(r.Changed, m.Check(path)...)
	case !worksIn(path):
		r.Findings = append(r.Findings, Finding{Symptom: "no end", Evidence: []Evidence{},
			Says:   fmt.Sprintf("the run stopped behind step %d, by an interruption, a kill or a crash", r.Steps),
			Advice: fmt.Sprintf("posttrain %s --resume %s continues it from its newest checkpoint", commandOf(path), path)})
	}
	return r, err
}

// commandOf is the command of a run folder, which its config names first.
func commandOf(dir string) string {
	text, _ := os.ReadFile(filepath.Join(dir, "config.yaml")) // without it there is no name
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "command: ")
}

// worksIn says that a process works in a run folder: it holds its lock.
func worksIn(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(run.Lock(f), run.ErrInUse)
}

// Lines say it in words.
func (r *Report) Lines() []string {
	lines := []string{fmt.Sprintf("%s: %d steps", r.Log, r.Steps)}
	for _, f := range r.Findings {
		lines = append(lines, "", f.Symptom+": "+f.Says)
		for _, e := range f.Evidence {
			lines = append(lines, "  "+e.String())
		}
		lines = append(lines, "  what may help: "+f.Advice)
	}
	lines = append(lines, "", fmt.Sprintf("Found: %d. Looked for: %s.", len(r.Findings), names(r.Looked)))
	if len(r.Unmeasured) > 0 {
		lines = append(lines, fmt.Sprintf("Not looked for, since the log has too little about it: %s.",
			names(r.Unmeasured)))
	}
	if r.Files == 0 {
		return lines
	}
	for _, c := range r.Changed {
		lines = append(lines, "changed: "+c)
	}
	return append(lines, fmt.Sprintf("Files of the run and its inputs: %d, changed: %d.", r.Files, len(r.Changed)))
}

func names(all []string) string {
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// Err is an error that names what was found, nil where the run is healthy.
func (r *Report) Err() error {
	var found []string
	for _, f := range r.Findings {
		found = append(found, f.Symptom)
	}
	if len(r.Changed) > 0 {
		found = append(found, "changed files")
	}
	if found == nil {
		return nil
	}
	return fmt.Errorf("%s: found %s", r.Log, names(found))
}
