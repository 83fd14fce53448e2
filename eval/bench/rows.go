package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout"
)

// SettingsName is the file that says what each stage was run with.
const SettingsName = "settings.json"

// Settings say by stage what it was run with: what its rows depend on, and nothing else. A stage continues with the
// rows that are there only if its settings are the same.
type Settings map[string]map[string]string

// Model names the model that was asked, with its adapter; path shortens their paths. "": none was asked.
func (s Settings) Model(path func(string) string) string {
	name := path(s[StageAnswers]["model"])
	if adapter := s[StageAnswers]["adapter"]; adapter != "" {
		name += " with adapter " + path(adapter)
	}
	return name
}

// Progress says how far a stage is.
type Progress struct {
	Done, Total int // questions, with those that earlier calls of the stage asked
	Unparsed    int // verdicts not in the form asked for
}

// stage is a stage under way. R is a row of its journal. It can be stopped at any time, by the context or by force.
// Called again, it continues where it was and repeats nothing.
type stage[R any] struct {
	*run.Journal[R]
	Rows []R      // of earlier calls
	Now  Progress // set before run; note changes it afterwards

	e    *evaluation
	name string
	mu   sync.Mutex
	tick func(Progress) // one call at a time
}

// begin opens the journal of a stage and writes the stage's settings, the cases among them. A row that binds (nil: any)
// keeps the stage to the settings that it came from. If there are only others (replies of a judge that never gives a
// verdict, say), the settings may change, and these rows are removed.
func begin[R any](e *evaluation, name, file string, settings map[string]string, tick func(Progress),
	binds func(row R) bool) (*stage[R], error) {
	j, rows, err := run.OpenJournal[R](e.path(file))
	if err != nil {
		return nil, err
	}
	all, err := ReadSettings(e.Dir)
	now := map[string]string{"cases": e.identity}
	maps.Copy(now, settings)
	before, known := all[name]
	switch {
	case err != nil || len(rows) == 0 || maps.Equal(before, now):
	case !known:
		err = fmt.Errorf("%s has no settings for stage %s, but its answers exist: restore the file, or start a new "+
			"run with --out DIR", e.path(SettingsName), name)
	case binds == nil || slices.ContainsFunc(rows, binds):
		err = e.changeError(name, before, now)
	default:
		rows, err = nil, j.Clear()
	}
	if err == nil {
		all[name] = now
		err = data.WriteJSON(e.path(SettingsName), all)
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return &stage[R]{Journal: j, e: e, name: name, Rows: rows, tick: tick}, nil
}

// run does what is left to do, and closes the journal. The error of an ended context comes first.
func (s *stage[R]) run(ctx context.Context, work func() error) error {
	err := s.e.accepted(s.name)
	if err == nil {
		s.tick(s.Now)
		err = work()
	}
	return cmp.Or(context.Cause(ctx), err, s.Close())
}

// note adds a row, and changes the progress; change is called by one goroutine at a time.
func (s *stage[R]) note(row R, change func(p *Progress)) error {
	if err := cmp.Or(s.e.folder.Held(), s.Add(row)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.Now)
	s.tick(s.Now)
	return nil
}

// changeError names the first setting that has changed: the kind, if that has.
func (e *evaluation) changeError(stage string, before, now map[string]string) error {
	both := maps.Clone(before)
	maps.Copy(both, now)
	for _, name := range append([]string{"kind"}, slices.Sorted(maps.Keys(both))...) {
		if a, b := before[name], now[name]; a != b {
			return fmt.Errorf("%s: stage %s was begun with %s %q, now it is %q: continue with the same, or name "+
				"another --out DIR", e.Dir, stage, name, a, b)
		}
	}
	return nil
}

// sameCases reads the settings, and wants a stage to have been run on the cases that are counted now.
func (e *evaluation) sameCases(stage string) (Settings, error) {
	settings, err := ReadSettings(e.Dir)
	if before, ok := settings[stage]; ok && before["cases"] != e.identity {
		err = fmt.Errorf("%s: stage %s was run on other cases (%s, now %s): want the same data, whole or the same "+
			"part", e.Dir, stage, before["cases"], e.identity)
	}
	return settings, err
}

// begunWith wants a stage that has begun to have some settings. A later stage reads its rows alone, and would name
// other answers, or another judge, than those that it counts.
func (e *evaluation) begunWith(settings Settings, stage string, some map[string]string) error {
	before, begun := settings[stage]
	if !begun {
		return nil
	}
	now := maps.Clone(before)
	if maps.Copy(now, some); maps.Equal(before, now) {
		return nil
	}
	return e.changeError(stage, before, now)
}

// ReadSettings reads the settings of a run's folder; a new run has none.
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

// settingsOfAnswers are what the answers depend on, besides the items.
func (e *evaluation) settingsOfAnswers(ctx context.Context) (settings map[string]string, err error) {
	if e.Recorded != nil {
		return e.settingsOfRecorded(), nil
	}
	if err := e.tryJudge(ctx); err != nil {
		return nil, err
	}
	if settings, err = e.o.Agent.identify(e.o.Seed); err != nil {
		return nil, err
	}
	maps.Copy(settings, e.Settings)
	_, missing := e.answers()
	return settings, e.subject.Weigh(e.Dir, settings, missing != nil)
}

// settingsOfRecorded name recorded answers by what they say.
func (e *evaluation) settingsOfRecorded() map[string]string {
	sum := sha256.New()
	for _, item := range e.Items {
		fmt.Fprintf(sum, "%q", e.Recorded[item.ID])
	}
	return map[string]string{"kind": Recorded, "contents": fmt.Sprintf("sha256 %x", sum.Sum(nil)[:8])}
}

// byItem sorts answers by item, and refuses answers of other items or in a wrong order.
func byItem(items []Item, rows []Answer) (map[string][]Answer, error) {
	turns, all := map[string]int{}, map[string][]Answer{}
	for _, item := range items {
		turns[item.ID] = item.turns()
	}
	for i, a := range rows {
		if a.Turn != len(all[a.ID])+1 || a.Turn > turns[a.ID] {
			return nil, fmt.Errorf("row %d: turn %d of %q is out of order or is there twice", i+1, a.Turn, a.ID)
		}
		all[a.ID] = append(all[a.ID], a)
	}
	return all, nil
}

// answers are those in the folder, which must be complete.
func (e *evaluation) answers() (map[string][]Answer, error) {
	if e.none {
		return nil, nil
	}
	path := e.path(AnswersName)
	rows, err := run.ReadJournal[Answer](path)
	var settings Settings
	if err == nil {
		settings, err = e.sameCases(StageAnswers)
	}
	if err == nil && e.Recorded != nil {
		err = e.begunWith(settings, StageAnswers, e.settingsOfRecorded())
	}
	if err != nil {
		return nil, err
	}
	all, err := byItem(e.Items, rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, item := range e.Items {
		_, ended, err := item.next(all[item.ID])
		if err != nil {
			return nil, err
		}
		if !ended {
			return nil, fmt.Errorf("%s: %d of %d questions are answered (first without: %s): the stage answers adds "+
				"the others", path, len(all), len(e.Items), item.ID)
		}
	}
	return all, nil
}

// conversation puts a turn of an item to the model, with the answers of those before it.
func (e *evaluation) conversation(item *Item, answers []Answer) (ask.Question, error) {
	messages, _, err := item.next(answers)
	c := ask.Question{Prompt: data.Text{Messages: messages}, Source: item.ID, Sampling: e.o.Agent.Sampling, Seed: item.Seed}
	said := &c.Prompt.Messages
	if c.Seed == 0 {
		c.Seed = SeedOf(e.o.Seed, fmt.Sprintf("%s/%d", item.ID, len(answers)))
	}
	if item.Temperature != nil {
		c.Temperature = *item.Temperature
	}
	if item.Then != nil && len(answers) > 0 {
		c.Seed = rollout.DrawSeed(c.Seed, len(answers))
	}
	if e.o.Agent.Prefill && (item.Then == nil || len(answers)+1 == item.turns()) {
		c.Prefill = ci.ThinkPrefill
	}
	for i := range min(len(item.Turns), len(answers)+1) {
		*said = append(*said, data.Message{Role: "user", Content: item.Turns[i]})
		if i < len(answers) {
			*said = append(*said, data.Message{Role: "assistant", Content: e.text(answers[i])})
		}
	}
	return c, err
}

// hashMessages names messages.
func hashMessages(messages []data.Message) string {
	if len(messages) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, m := range messages {
		fmt.Fprintf(sum, "%s\x00%s\x00%s%s", m.Role, m.Content, m.Whole, m.Tools)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// readAnswers reads recorded answers of one turn by id: lines of id and output, such as answers.jsonl of a run.
func readAnswers(path string) (map[string][]string, error) {
	all := map[string][]string{}
	err := data.ReadLines(path, func(line int, r struct {
		ID     string
		Output *string
		Opened bool `json:"think_opened"`
	}) error {
		if _, twice := all[r.ID]; twice || r.ID == "" || r.Output == nil {
			return fmt.Errorf("%s:%d: id %q is there twice or empty, or output is missing: want {\"id\": "+
				"\"3/control/17/1\", \"output\": TEXT}", path, line, r.ID)
		}
		all[r.ID] = []string{Answer{Output: *r.Output, Opened: r.Opened}.Whole()}
		return nil
	})
	return all, err
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
