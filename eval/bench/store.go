// Package bench runs evaluations in stages, such as answers, judge and report, each of which can be stopped at any
// time and continued. A run is a folder. Rows grow in journals; settings.json says what each stage's rows come from.
package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/journal"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/internal/run"
)

// SettingsName is the file that says what each stage was run with.
const SettingsName = "settings.json"

// Settings say by stage what it was run with: what its rows depend on, and nothing else. A stage continues with the
// rows that are there only if its settings are the same.
type Settings map[string]map[string]string

// Store is the folder in which the rows of an evaluation grow. Every stage can be stopped at any time, by the context
// or by force. Called again, it continues where it was and repeats nothing. One process at a time can be at a stage.
type Store struct {
	Dir      string
	Identity string                   // of what is evaluated, as HashCases names it
	Accepted func(stage string) error // called when a stage has begun, before it asks anything; may be nil
	Held     func() error             // returns an error if the folder is no longer this run's; may be nil
}

// OpenStore creates the folder, or continues with the one that is there.
func OpenStore(dir, identity string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("run folder %s cannot be made: %w", dir, run.Cause(err))
	}
	return &Store{Dir: dir, Identity: identity}, nil
}

// Path is that of a file of the folder.
func (s *Store) Path(name string) string { return filepath.Join(s.Dir, name) }

// Progress says how far a stage is.
type Progress struct {
	Done, Total int // questions, those of earlier calls of the stage too
	Unparsed    int // verdicts not in the form asked for
}

// Stage is a stage under way. R is a row of its journal.
type Stage[R any] struct {
	*journal.Journal[R]
	Rows []R      // of earlier calls
	Now  Progress // set before Run; Step changes it afterwards

	store *Store
	name  string
	mu    sync.Mutex
	tick  func(Progress) // one call at a time; may be nil
}

// Run does what is left to do, and closes the journal. The error of an ended context comes first.
func (s *Stage[R]) Run(ctx context.Context, work func() error) (err error) {
	if s.store.Accepted != nil {
		err = s.store.Accepted(s.name)
	}
	if err == nil {
		s.step(func(*Progress) {})
		err = work()
	}
	return cmp.Or(context.Cause(ctx), err, s.Close())
}

// step changes the progress and reports it.
func (s *Stage[R]) step(change func(p *Progress)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.Now)
	if s.tick != nil {
		s.tick(s.Now)
	}
}

// Note adds a row, and changes the progress; change is called by one goroutine at a time.
func (s *Stage[R]) Note(row R, change func(p *Progress)) error {
	if s.store.Held != nil {
		if err := s.store.Held(); err != nil {
			return err
		}
	}
	if err := s.Add(row); err != nil {
		return err
	}
	s.step(change)
	return nil
}

// Begin opens the journal of a stage and writes the stage's settings, the cases among them. A row that binds (nil: any)
// keeps the stage to the settings that it came from. If there are only others (replies of a judge that never gives a
// verdict, say), the settings may change, and these rows are removed.
func Begin[R any](s *Store, name, file string, settings map[string]string, tick func(Progress),
	binds func(row *R, before map[string]string) bool) (*Stage[R], error) {
	j, rows, err := journal.Open[R](s.Path(file))
	if err != nil {
		return nil, err
	}
	all, err := ReadSettings(s.Dir)
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	now := map[string]string{"cases": s.Identity}
	maps.Copy(now, settings)
	before, known := all[name]
	switch {
	case len(rows) == 0 || maps.Equal(before, now):
	case !known:
		err = fmt.Errorf("%s has no settings for stage %s, but its answers exist: restore the file, or start a new "+
			"run with --out DIR", s.Path(SettingsName), name)
	case binds == nil || slices.ContainsFunc(rows, func(row R) bool { return binds(&row, before) }):
		err = s.changeError(name, before, now)
	default:
		rows, err = nil, j.Clear()
	}
	if err == nil {
		all[name] = now
		err = data.WriteJSON(s.Path(SettingsName), all)
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return &Stage[R]{Journal: j, store: s, name: name, Rows: rows, tick: tick}, nil
}

// changeError names the first setting that has changed: the kind, if that has.
func (s *Store) changeError(stage string, before, now map[string]string) error {
	both := maps.Clone(before)
	maps.Copy(both, now)
	for _, name := range append([]string{"kind"}, slices.Sorted(maps.Keys(both))...) {
		if a, b := before[name], now[name]; a != b {
			return fmt.Errorf("%s: stage %s was begun with %s %q, now it is %q: continue with the same, or name "+
				"another --out DIR", s.Dir, stage, name, a, b)
		}
	}
	return nil
}

// SameCases wants a stage to have been run on the cases that are counted now.
func (s *Store) SameCases(settings Settings, stage string) error {
	before, ok := settings[stage]
	if ok && before["cases"] != s.Identity {
		return fmt.Errorf("%s: stage %s was run on other cases (%s, now %s): want the same data, whole or the same "+
			"part", s.Dir, stage, before["cases"], s.Identity)
	}
	return nil
}

// ReadSettings reads those of a run's folder; a new run has no settings.
func ReadSettings(dir string) (Settings, error) {
	path, all := filepath.Join(dir, SettingsName), Settings{}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return all, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, run.Cause(err))
	case json.Unmarshal(text, &all) != nil:
		return nil, fmt.Errorf("%s: damaged: want {stage: {name: text}}, as the stages write it; "+
			"restore the file, or name another --out DIR", path)
	case all == nil: // the file says null
		return Settings{}, nil
	}
	return all, nil
}

// HashCases names cases by their number and all that they hold.
func HashCases[T any](cases []T) string {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for i := range cases {
		enc.Encode(&cases[i])
	}
	return fmt.Sprintf("%d, sha256 %x", len(cases), sum.Sum(nil)[:8])
}

// SeedOf mixes a seed with a case's name, so that draws do not depend on the case's place.
func SeedOf(seed uint64, name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return seed*0x9e3779b97f4a7c15 ^ h.Sum64()
}

// Released is what options name the prompts of a benchmark by that its authors have released.
const Released = "released"

// wholePath is a path from the root; an empty one, embedded, released and an id of the hub stay.
func wholePath(path string) string {
	if path == "" || path == embedded.Name || path == Released || hub.IsID(path) {
		return path
	}
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path // there is no working directory: relative paths are as good as any
}
