package view

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/internal/page"
)

// casesCommand is the command whose runs have cases.
const casesCommand = "eval privacylens"

// readCases reads the results of a reported run of PrivacyLens, and the cases that they are of where they are still in
// the place that the config names.
func (s *source) readCases() error {
	s.cases, s.stories, s.unread = nil, map[string]lens.Case{}, ""
	if !strings.HasPrefix(s.command, casesCommand) {
		return nil
	}
	if _, err := os.Stat(s.file(privacylens.CasesName)); err != nil {
		return nil // it is not reported yet
	}
	found, err := privacylens.ReadCompared(s.whole)
	if err != nil {
		return err
	}
	s.cases = found.Results
	keys, err := s.keys()
	if err != nil {
		return err
	}
	path := keys["data.cases"]
	if text, err := strconv.Unquote(path); err == nil {
		path = text
	}
	all, _, err := privacylens.ReadCases(path)
	if err != nil {
		s.unread = fmt.Sprintf("tasks and stories are not shown, since the cases cannot be read: %v", err)
	}
	for _, c := range all {
		s.stories[c.Name] = c
	}
	return nil
}

// result is a case's result in a run, nil without one.
func (s *source) result(name string) *privacylens.CaseResult {
	i := slices.IndexFunc(s.cases, func(r privacylens.CaseResult) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &s.cases[i]
}

// rate are the counts of a run.
type rate struct {
	Run         int    `json:"run"`
	Cases       int    `json:"cases"`
	Leakage     string `json:"leakage"`
	Adjusted    string `json:"adjusted"`
	Helpfulness string `json:"helpfulness"`
}

// shownCase is a case in the list of all, with its state in each of the runs.
type shownCase struct {
	Name      string   `json:"name"`
	Source    string   `json:"source"`
	Principle string   `json:"principle"`
	Tool      string   `json:"tool"`
	Task      string   `json:"task,omitempty"`
	States    []*state `json:"states"` // nil where a run does not have the case
}

type state struct {
	Leaks    bool `json:"leaks"`
	NoAction bool `json:"no_action"`
	Score    *int `json:"score"` // of helpfulness, 0 to 3; nil: not judged
}

// figure is a number with its doubt, without the spaces that line up a table.
func figure(number fmt.Stringer) string { return strings.TrimSpace(number.String()) }

func (v *View) answerCases(url.Values) (any, error) {
	rates, notes, cases, places := []rate{}, []string{}, []*shownCase{}, map[string]*shownCase{}
	for i, s := range v.runs {
		if s.cases == nil {
			continue
		}
		g := privacylens.Count(s.cases)
		rates = append(rates, rate{i, g.Cases, figure(g.Leakage), figure(g.Adjusted), figure(g.Helpfulness)})
		if s.unread != "" {
			notes = append(notes, s.name+": "+s.unread)
		}
		for _, r := range s.cases {
			c := places[r.Name]
			if c == nil {
				c = &shownCase{Name: r.Name, Source: r.Source, Principle: r.Principle, Tool: r.Tool,
					States: make([]*state, len(v.runs))}
				places[r.Name], cases = c, append(cases, c)
			}
			c.States[i] = &state{r.Leaks, r.NoAction, r.Helpfulness}
			if c.Task == "" {
				c.Task = s.stories[r.Name].Trajectory.Instruction
			}
		}
	}
	return map[string]any{"rates": rates, "notes": notes, "cases": cases}, nil
}

// wholeCase is a case with all that is known of it.
type wholeCase struct {
	Name  string             `json:"name"`
	Task  string             `json:"task,omitempty"`
	Facts []privacylens.Fact `json:"facts"`
	Story string             `json:"story,omitempty"`
	Past  string             `json:"past,omitempty"`
	Runs  []deed             `json:"runs"`
}

// deed is what the agent of a run did in a case, and how it was judged.
type deed struct {
	Run         int          `json:"run"`
	Known       bool         `json:"known"` // the action, not its verdicts alone
	TooLong     bool         `json:"too_long,omitempty"`
	NoAction    bool         `json:"no_action,omitempty"`
	Cut         bool         `json:"cut,omitempty"`
	Leaks       bool         `json:"leaks"`
	Final       string       `json:"final,omitempty"`  // the output, where it has no action
	Before      string       `json:"before,omitempty"` // the action
	Pieces      []page.Piece `json:"pieces"`           // of the action; the numbers are those of Items, from 1
	Items       []judged     `json:"items"`
	Helpfulness *int         `json:"helpfulness"`
	Reply       string       `json:"reply,omitempty"` // of the judge, about helpfulness
}

// judged is an item that the action should not give away.
type judged struct {
	Item   string `json:"item"`
	Leaks  bool   `json:"leaks"`
	Parsed bool   `json:"parsed"`
	Reply  string `json:"reply,omitempty"`
}

func (v *View) answerCase(q url.Values) (any, error) {
	out := wholeCase{Name: q.Get("name"), Facts: []privacylens.Fact{}}
	for i, s := range v.runs {
		r := s.result(out.Name)
		if r == nil {
			continue
		}
		out.Runs = append(out.Runs, deedOf(i, r))
		if c, ok := s.stories[out.Name]; ok && out.Past == "" {
			out.Task, out.Story, out.Past = c.Trajectory.Instruction, c.Vignette.Story, c.Trajectory.Past
			out.Facts = privacylens.Facts(c)
		}
	}
	if out.Runs == nil {
		return nil, notFound("there is no case %q", out.Name)
	}
	return out, nil
}

func deedOf(run int, r *privacylens.CaseResult) deed {
	d := deed{Run: run, Known: r.Recorded, TooLong: r.Reason == privacylens.TooLong, NoAction: r.NoAction, Cut: r.Cut(),
		Leaks: r.Leaks, Before: r.Before(), Pieces: privacylens.Pieces(r.Action, r.Items), Items: []judged{},
		Helpfulness: r.Helpfulness, Reply: r.ScoreReply}
	if r.NoAction {
		d.Final, d.Before = r.FinalAction, ""
	}
	for _, item := range r.Items {
		d.Items = append(d.Items, judged{item.Item, item.Leaks, item.Parsed, item.Reply})
	}
	return d
}
