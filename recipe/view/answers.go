package view

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// answers are what the page asks for, by the last word of the address.
var answers = map[string]func(v *View, q url.Values) (any, error){
	"runs":   (*View).answerRuns,
	"curves": (*View).answerCurves,
	"config": (*View).answerConfig,

	"samples": (*View).answerSamples,
	"sample":  (*View).answerSample,
	"cases":   (*View).answerCases,
	"case":    (*View).answerCase,
}

// Points of a curve on a page that is served, and on one in a file.
const servedPoints, filedPoints = 2000, 600

// status is an error with its HTTP status.
type status struct {
	code int
	error
}

func notFound(format string, args ...any) error {
	return status{http.StatusNotFound, fmt.Errorf(format, args...)}
}

// codeOf is the status of an error.
func codeOf(err error) int {
	if s, ok := errors.AsType[status](err); ok {
		return s.code
	}
	return http.StatusInternalServerError
}

// shownRun is a run in the list of all.
type shownRun struct {
	Name     string   `json:"name"`
	Path     string   `json:"path"`
	Kind     string   `json:"kind"`
	Command  string   `json:"command,omitempty"`
	Finished bool     `json:"finished"`
	Changed  int64    `json:"changed"` // of its files, in milliseconds since 1970; 0: not known
	Stamp    string   `json:"stamp"`   // another one after every change
	Records  int      `json:"records"`
	Step     int      `json:"step"` // the last one
	Metrics  []string `json:"metrics"`
	First    []string `json:"first"` // metrics to draw at first
	Axes     []string `json:"axes"`
	Sets     int      `json:"sets"`  // of samples
	Cases    int      `json:"cases"` // of PrivacyLens
	Problem  string   `json:"problem,omitempty"`
}

func (v *View) answerRuns(url.Values) (any, error) {
	out := []shownRun{}
	for _, s := range v.runs {
		s.refresh()
		r := shownRun{Name: s.name, Path: s.path, Kind: s.kind, Command: s.command, Finished: s.finished(),
			Stamp: s.stamps, Records: len(s.table.steps), Metrics: s.table.names(), First: s.table.first(),
			Axes: []string{}, Sets: len(s.sets()), Cases: len(s.cases)}
		if n := len(s.table.steps); n > 0 {
			r.Step = slices.Max(s.table.steps)
		}
		if !s.changed.IsZero() {
			r.Changed = s.changed.UnixMilli()
		}
		for _, name := range axes {
			if s.table.axes[name] != nil {
				r.Axes = append(r.Axes, name)
			}
		}
		if s.problem != nil {
			r.Problem = s.problem.Error()
		}
		out = append(out, r)
	}
	return map[string]any{"runs": out}, nil
}

// answerCurves are the curves of the metric that is asked for, of the runs that have it.
func (v *View) answerCurves(q url.Values) (any, error) {
	return v.curves(q.Get("metric"), servedPoints), nil
}

func (v *View) curves(metric string, most int) any {
	curves := []*curve{}
	for i, s := range v.runs {
		if c := s.table.curve(metric, most); c != nil {
			c.Run = i
			curves = append(curves, c)
		}
	}
	return map[string]any{"metric": metric, "curves": curves}
}

// setting is a key of the configs with its value in every run; null where a run does not have it.
type setting struct {
	Key     string    `json:"key"`
	Values  []*string `json:"values"`
	Differs bool      `json:"differs"`
}

func (v *View) answerConfig(url.Values) (any, error) {
	all, keys, problems := make([]map[string]string, len(v.runs)), map[string]bool{}, []string{}
	for i, s := range v.runs {
		var err error
		if all[i], err = s.keys(); err != nil {
			problems = append(problems, s.name+": "+err.Error())
		}
		for key := range all[i] {
			keys[key] = true
		}
	}
	settings := []setting{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		settings = append(settings, settingOf(key, all))
	}
	return map[string]any{"settings": settings, "problems": problems}, nil
}

func settingOf(key string, configs []map[string]string) setting {
	out := setting{Key: key}
	for _, c := range configs {
		var value *string
		if text, ok := c[key]; ok {
			value = &text
		}
		out.Values = append(out.Values, value)
		first := out.Values[0]
		out.Differs = out.Differs || (first == nil) != (value == nil) || first != nil && *first != *value
	}
	return out
}

// index is a number of the query below n.
func index(q url.Values, name string, n int) (int, error) {
	i, err := strconv.Atoi(q.Get(name))
	if err != nil || i < 0 || i >= n {
		return 0, notFound("%s %q: want a number from 0, below %d", name, q.Get(name), n)
	}
	return i, nil
}
