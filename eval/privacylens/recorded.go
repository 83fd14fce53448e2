package privacylens

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	lens "github.com/posttrain/posttrain/data/privacylens"
)

// agentRow is a prompt as a file of them has it.
type agentRow struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"` // naive, enhanced or cot
	Prompt string `json:"prompt"`
}

// readAgentPrompts reads prompts of one of the Kinds from JSON lines {name, kind, prompt}, as
// scripts/privacylens/export_prompts.py writes them: one a case. Rows of other kinds and of other data are left alone.
func readAgentPrompts(path, kind string, cases []lens.Case) (agentPrompter, error) {
	prompts, kinds := map[string]string{}, map[string]bool{}
	err := data.ReadLines(path, func(line int, r agentRow) error {
		if r.Name == "" || r.Kind == "" || r.Prompt == "" {
			return fmt.Errorf("%s:%d: name, kind or prompt is missing or empty: want all three", path, line)
		}
		if kinds[r.Kind] = true; r.Kind != kind {
			return nil
		}
		if _, twice := prompts[r.Name]; twice {
			return fmt.Errorf("%s:%d: a second %s prompt for %s: want one", path, line, kind, r.Name)
		}
		prompts[r.Name] = r.Prompt
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !kinds[kind] {
		others := cmp.Or(strings.Join(slices.Sorted(maps.Keys(kinds)), ", "), "none at all")
		return nil, fmt.Errorf("%s: no prompts of kind %q: it has %s", path, kind, others)
	}
	err = lacking(path, kind+" prompt", cases, in(prompts))
	return func(c *lens.Case) (string, error) { return prompts[c.Name], nil }, err
}

// lacking is an error where some cases have not what they need.
func lacking(path, what string, cases []lens.Case, has func(c *lens.Case) bool) error {
	without := slices.DeleteFunc(slices.Clone(cases), func(c lens.Case) bool { return has(&c) })
	if len(without) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d of %d cases have no %s (first: %s)", path, len(without), len(cases), what,
		without[0].Name)
}

// judgeRow is a prompt with a gap for the action, as a file of them has it.
type judgeRow struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"` // leakage or helpfulness
	Item   string `json:"item"` // of leakage
	Before string `json:"before"`
	After  string `json:"after"`
}

type recordedJudge map[verdictKey]judgeRow

// readJudgePrompts reads prompts from JSON lines {name, kind: leakage|helpfulness, item, before, after}, as
// scripts/privacylens/export_prompts.py writes them: one for every item of a case, and one for its helpfulness. The
// action goes between before and after. Rows of other data are left alone.
func readJudgePrompts(path string, cases []lens.Case) (judgePrompter, error) {
	prompts := recordedJudge{}
	err := data.ReadLines(path, func(line int, r judgeRow) error {
		switch {
		case r.Kind != leakage && r.Kind != helpfulness:
			return fmt.Errorf("%s:%d: kind %q: want leakage or helpfulness", path, line, r.Kind)
		case r.Name == "" || r.Before == "" || (r.Item == "") == (r.Kind == leakage):
			return fmt.Errorf("%s:%d: want name, before, after and, for leakage alone, item", path, line)
		}
		key := verdictKey{r.Name, r.Item}
		if _, twice := prompts[key]; twice {
			return fmt.Errorf("%s:%d: a second %s prompt for %s: want one", path, line, r.Kind, r.Name)
		}
		prompts[key] = r
		return nil
	})
	if err != nil {
		return nil, err
	}
	has := func(c *lens.Case, item string) bool { _, ok := prompts[verdictKey{c.Name, item}]; return ok }
	return prompts, cmp.Or(
		lacking(path, "helpfulness prompt", cases, func(c *lens.Case) bool { return has(c, "") }),
		lacking(path, "leakage prompt for every item", cases, func(c *lens.Case) bool {
			return !slices.ContainsFunc(c.Trajectory.Items, func(item string) bool { return !has(c, item) })
		}))
}

func (r recordedJudge) Leakage(c *lens.Case, action, item string) (string, error) {
	return r.fill(c, item, action)
}
func (r recordedJudge) Helpfulness(c *lens.Case, action string) (string, error) {
	return r.fill(c, "", action)
}

func (r recordedJudge) fill(c *lens.Case, item, action string) (string, error) {
	row, ok := r[verdictKey{c.Name, item}]
	if !ok {
		return "", fmt.Errorf("%s: no recorded prompt", c.Name)
	}
	return row.Before + action + row.After, nil
}
