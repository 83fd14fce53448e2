package privacylens

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/journal"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/run"
)

// Settings say by stage what it was run with: what its rows depend on, and nothing else. A stage continues with the
// rows that are there only if its settings are the same.
type Settings map[string]map[string]string

// leftOut is the setting of recorded actions that says how many cases have none.
const leftOut = "left_out"

// settingsOfActions are what the actions of a model depend on.
func (e *evaluation) settingsOfActions() (all map[string]string, err error) {
	a := e.Agent
	all = a.identify(e.Seed, a.MaxNew)
	all["prompt"], all["temperature"], all["top_p"] = a.Prompt, fmt.Sprint(a.Temperature), fmt.Sprint(a.TopP)
	for key, value := range map[string]any{"top_k": a.TopK, "min_p": a.MinP, "stop": a.Stop} {
		if !reflect.ValueOf(value).IsZero() { // absent from older runs
			all[key] = fmt.Sprint(value)
		}
	}
	all["prompts"], err = hashPrompts(e.cases, func(c *lens.Case, add func(string, error)) {
		add(e.actions.Prompts(c))
	})
	return all, err
}

// importSettings are what recorded actions depend on.
func (e *evaluation) importSettings() (map[string]string, error) {
	hash, err := hashFile(e.Agent.Actions)
	settings := map[string]string{"kind": AgentRecorded, "contents": hash}
	if e.leftOut != "" {
		settings[leftOut] = e.leftOut
	}
	return settings, err
}

// probeSettings are what the answers to probes depend on. The levels are not among them: more may be probed later.
func (e *evaluation) probeSettings() (all map[string]string, err error) {
	all = e.Agent.identify(e.Seed, e.Probe.MaxNew)
	delete(all, "prefill") // answers to probes are not prefilled
	all["prompts"], err = hashPrompts(e.cases, func(c *lens.Case, add func(string, error)) {
		for _, level := range Levels {
			add(e.prompts.Probe(level, c, true))
		}
	})
	return all, err
}

// identify notes which model it is, and what all of its answers depend on.
func (a AgentConfig) identify(seed uint64, maxNew int) map[string]string {
	all := map[string]string{"kind": a.Way(), "seed": fmt.Sprint(seed), "max_new_tokens": fmt.Sprint(maxNew)}
	if a.Way() == AgentServer {
		all["model"], all["base_url"] = a.APIModel, strings.TrimRight(a.BaseURL, "/")
	} else {
		all["model"], all["backend"], all["prefill"] = wholePath(a.Model), a.Backend, fmt.Sprint(a.Prefill)
		if a.Adapter != "" {
			all["adapter"] = wholePath(a.Adapter)
		}
	}
	return all
}

// settingsOfJudge are what the verdicts depend on, besides the actions.
func (e *evaluation) settingsOfJudge() (map[string]string, error) {
	j := e.Judge
	switch j.Kind {
	case KindReplay:
		verdicts, err := hashFile(j.Verdicts)
		scores, scoresErr := hashFile(j.Helpfulness)
		return map[string]string{"kind": j.Kind, "verdicts": verdicts, "helpfulness": scores}, cmp.Or(err, scoresErr)
	case KindModel:
		hash, err := hashPrompts(e.cases, func(c *lens.Case, add func(string, error)) {
			for _, item := range c.Trajectory.Items {
				add(e.judgePrompts.Leakage(c, "", item))
			}
			add(e.judgePrompts.Helpfulness(c, ""))
		})
		return map[string]string{"kind": j.Kind, "model": j.Model, "base_url": strings.TrimRight(j.BaseURL, "/"),
			"max_new_tokens": fmt.Sprint(j.MaxNew), "prompts": hash}, err
	}
	return map[string]string{"kind": j.Kind}, nil
}

// hashFile names a file by its contents; an empty path and embedded by themselves.
func hashFile(path string) (string, error) {
	if path == "" || path == embedded.Name {
		return path, nil
	}
	text, err := os.ReadFile(path)
	sum := sha256.Sum256(text)
	return fmt.Sprintf("sha256 %x", sum[:8]), err
}

// hashPrompts names the prompts that a function adds for every case.
func hashPrompts(cases []lens.Case, of func(c *lens.Case, add func(text string, err error))) (string, error) {
	sum := sha256.New()
	var first error
	for i := range cases {
		of(&cases[i], func(text string, err error) {
			if err != nil && first == nil {
				first = fmt.Errorf("%s: %w", cases[i].Place, err)
			}
			io.WriteString(sum, text)
		})
	}
	return fmt.Sprintf("sha256 %x", sum.Sum(nil)[:16]), first
}

// hashCases names cases by all that they hold.
func hashCases(cases []lens.Case) string {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for i := range cases {
		enc.Encode(&cases[i])
	}
	return fmt.Sprintf("%d, sha256 %x", len(cases), sum.Sum(nil)[:8])
}

// readSettings reads those of a run's folder; a new run has no settings.
func readSettings(dir string) (Settings, error) {
	path, all := filepath.Join(dir, settingsName), Settings{}
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

// begin opens the journal of a stage and writes the stage's settings, the cases among them. A row that binds (nil: any)
// keeps the stage to the settings that it came from. If there are only others (replies of a judge that never gives a
// verdict, say), the settings may change, and these rows are removed.
func begin[R any](s *store, name, file string, settings map[string]string, tick func(progress),
	binds func(row *R, before map[string]string) bool) (*stage[R], error) {
	j, rows, err := journal.Open[R](s.path(file))
	if err != nil {
		return nil, err
	}
	all, err := readSettings(s.Dir)
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	now := map[string]string{"cases": hashCases(s.Cases)}
	maps.Copy(now, settings)
	before, known := all[name]
	switch {
	case len(rows) == 0 || maps.Equal(before, now):
	case !known:
		err = fmt.Errorf("%s has no settings for stage %s, but its answers exist: restore the file, or start a new "+
			"run with --out DIR", s.path(settingsName), name)
	case binds == nil || slices.ContainsFunc(rows, func(row R) bool { return binds(&row, before) }):
		err = changeError(s.Dir, name, before, now)
	default:
		rows, err = nil, j.Clear()
	}
	if err == nil {
		all[name] = now
		err = data.WriteJSON(s.path(settingsName), all)
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return &stage[R]{Journal: j, store: s, name: name, rows: rows, tick: tick}, nil
}

// changeError names the first setting that has changed: the kind, if that has.
func changeError(dir, stage string, before, now map[string]string) error {
	both := maps.Clone(before)
	maps.Copy(both, now)
	then := "continue with the same, or name another --out DIR"
	if stage == StageJudge {
		then += fmt.Sprintf(" (with --actions %s it judges the same actions)", filepath.Join(dir, actionsName))
	}
	for _, name := range append([]string{"kind"}, slices.Sorted(maps.Keys(both))...) {
		if a, b := before[name], now[name]; a != b {
			return fmt.Errorf("%s: stage %s was begun with %s %q, now it is %q: %s", dir, stage, name, a, b, then)
		}
	}
	return nil
}

// sameCases wants a stage to have been run on the cases that are counted now.
func (s *store) sameCases(settings Settings, stage string) error {
	before, ok := settings[stage]
	if now := hashCases(s.Cases); ok && before["cases"] != now {
		return fmt.Errorf("%s: stage %s was run on other cases (%s, now %s): want the same data, whole or the same "+
			"part", s.Dir, stage, before["cases"], now)
	}
	return nil
}
