package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/doctor"
	"github.com/posttrain/posttrain/internal/run"
)

// Names of files in run folders.
const (
	configName  = "config.yaml"
	metricsName = "metrics.jsonl"
)

// source is a run that is shown.
type source struct {
	path  string // as the user named it
	whole string // absolute
	name  string

	kind    string // posttrain, TRL or verl
	config  []byte // of a run folder; nil: no such file
	command string // of the config
	table   *table
	metrics tail     // of ours
	stacks  []*stack // of samples, in the order of the training
	log     string   // of another program
	stamps  string   // of the files that were read last
	changed time.Time
	problem error // why the last reading failed

	cases   []privacylens.CaseResult // of PrivacyLens; nil: no results
	stories map[string]lens.Case     // the cases themselves, by name
	unread  string                   // why they could not be read
}

// openSource opens a run folder of ours, or another log that package doctor reads.
func openSource(path, whole string) (*source, error) {
	s := &source{path: path, whole: whole, table: newTable()}
	text, err := os.ReadFile(filepath.Join(whole, configName))
	switch {
	case err == nil:
		s.kind, s.config, s.command = "posttrain", text, config.CommandOf(text)
		s.metrics.path = s.file(metricsName)
		for _, of := range stacks {
			s.stacks = append(s.stacks, &stack{tail: tail{path: s.file(of.name)}, label: of.label})
		}
	case filepath.Base(whole) == metricsName:
		s.kind, s.metrics.path = "posttrain", whole
	default:
		if err := s.openLog(); err != nil {
			return nil, err
		}
	}
	s.refresh()
	if s.problem == nil && s.empty() && (s.finished() || s.command == "") {
		s.problem = fmt.Errorf("%s: there is nothing to show in it: want a run folder with metrics, samples "+
			"or PrivacyLens cases", path)
	}
	return s, s.problem
}

// empty says that no file of the run has anything yet.
func (s *source) empty() bool { return len(s.table.steps) == 0 && s.sets() == nil && s.cases == nil }

// file is a file of the run's folder.
func (s *source) file(name string) string { return filepath.Join(s.whole, name) }

// openLog finds the kind of a log that is not ours.
func (s *source) openLog() error {
	l, err := doctor.Read(s.path)
	if err != nil {
		return err
	}
	s.kind, s.log = l.Kind, l.Path
	return nil
}

// refresh reads what is new. An error stays as the run's problem until a later reading goes well.
func (s *source) refresh() {
	stamps, changed := stampsOf(s.watched()...)
	if stamps == s.stamps && s.problem == nil {
		return
	}
	s.changed = changed
	if s.problem = s.read(); s.problem == nil {
		s.stamps = stamps
	}
}

// watched are the files that are read again when one of them changes.
func (s *source) watched() []string {
	if s.log != "" { // TRL writes the state of a checkpoint after the rest of it
		states, _ := filepath.Glob(s.file("checkpoint-*/trainer_state.json"))
		return append(states, s.whole, s.log)
	}
	paths := []string{s.metrics.path}
	for _, of := range s.stacks {
		paths = append(paths, of.path)
	}
	if s.config != nil {
		paths = append(paths, s.file(configName), s.file(privacylens.CasesName))
	}
	return paths
}

// stampsOf gives a text that differs once one of the files has changed, and the time of the last change.
func stampsOf(paths ...string) (stamps string, changed time.Time) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			stamps += "-;"
			continue
		}
		if info.ModTime().After(changed) && !info.IsDir() {
			changed = info.ModTime()
		}
		stamps += fmt.Sprintf("%d,%d;", info.ModTime().UnixNano(), info.Size())
	}
	return stamps, changed
}

func (s *source) read() error {
	if s.log != "" {
		return s.readLog()
	}
	for _, of := range s.stacks {
		if err := of.read(); err != nil {
			return err
		}
	}
	if err := s.readCases(); err != nil {
		return err
	}
	return s.metrics.read(func() { s.table = newTable() }, func(_ int64, text []byte) error {
		var r run.Record
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("not a line of metrics: %s", strings.Join(strings.Fields(err.Error()), " "))
		}
		s.table.add(r)
		return nil
	})
}

// readLog reads a log of another program as a whole.
func (s *source) readLog() error {
	l, err := doctor.Read(s.path)
	if err != nil {
		return err
	}
	s.log, s.table = l.Path, newTable()
	for _, r := range l.Records {
		s.table.add(r)
	}
	return nil
}

// finished says that the run has come to its end, as far as the page can know. What measures leaves a summary in
// numbers alone.
func (s *source) finished() bool {
	_, err := os.Stat(s.file("summary.json"))
	return s.config == nil || run.Finished(s.whole) || err == nil && strings.HasPrefix(s.command, "eval ")
}

// keys are the run's config by dotted keys.
func (s *source) keys() (map[string]string, error) {
	out := map[string]string{}
	if s.config == nil {
		return out, nil
	}
	text, err := os.ReadFile(s.file(configName)) // a run that resumes may change it
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return out, nil
		}
		return nil, fmt.Errorf("%s cannot be read: %w", s.file(configName), run.Cause(err))
	}
	changes, err := config.Changes(nil, text)
	for _, c := range changes {
		out[c.Key] = c.Now
	}
	return out, err
}
