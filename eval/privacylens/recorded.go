package privacylens

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/embedded"
)

// PromptsName is the file of the benchmark's own prompts, beside the cases.
const PromptsName = "prompts.jsonl"

// exactRow is a prompt as a file of them has it, whole or with a gap: for the action that is judged, or for the choices
// of a probe.
type exactRow struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`   // one of exactKinds
	Item   string `json:"item"`   // of leakage
	Prompt string `json:"prompt"` // of an agent
	Before string `json:"before"` // the gap
	After  string `json:"after"`
	Think  string `json:"think"` // of a probe: what is behind the gap for a model that thinks first; "": nothing is
}

const probeKind = "probe-" // begins the kinds of probes

// exactKinds are the kinds of prompts.
func exactKinds() []string {
	all := slices.Concat(Kinds, []string{leakage, helpfulness})
	for _, level := range Levels {
		all = append(all, probeKind+level)
	}
	return all
}

// check wants what the prompt is made of.
func (r *exactRow) check() error {
	agent := slices.Contains(Kinds, r.Kind)
	switch {
	case !slices.Contains(exactKinds(), r.Kind):
		return fmt.Errorf("kind %q: want %s", r.Kind, strings.Join(exactKinds(), ", "))
	case agent && (r.Name == "" || r.Prompt == ""):
		return fmt.Errorf("kind %s: name or prompt is missing or empty: want both", r.Kind)
	case !agent && (r.Name == "" || r.Before == "" || (r.Item == "") == (r.Kind == leakage)):
		return fmt.Errorf("kind %s: want name, before, after and, for leakage alone, item", r.Kind)
	}
	return nil
}

// exactKey names a prompt; item is that of leakage.
type exactKey struct{ kind, name, item string }

// exact are prompts that were made elsewhere, by the benchmark's own code for instance.
type exact struct {
	path string
	rows map[exactKey]exactRow
}

// readExact reads prompts as lines of JSON, as scripts/privacylens/export_prompts.py writes them.
func readExact(path string) (*exact, error) {
	x := &exact{path, map[exactKey]exactRow{}}
	return x, data.ReadLines(path, func(line int, r exactRow) error {
		key := exactKey{r.Kind, r.Name, r.Item}
		err := r.check()
		if _, twice := x.rows[key]; twice {
			err = fmt.Errorf("a second %s prompt for %s: want one", r.Kind, r.Name)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, line, err)
		}
		x.rows[key] = r
		return nil
	})
}

func (x *exact) has(kind, name, item string) bool {
	_, ok := x.rows[exactKey{kind, name, item}]
	return ok
}

// lacks is an error where some cases have no prompts of a kind.
func (x *exact) lacks(what, kind string, cases []lens.Case, has func(c *lens.Case) bool) error {
	there := slices.DeleteFunc(exactKinds(), func(kind string) bool {
		for key := range x.rows {
			if key.kind == kind {
				return false
			}
		}
		return true
	})
	if !slices.Contains(there, kind) {
		return fmt.Errorf("%s: no prompts of kind %q: it has %s", x.path, kind,
			cmp.Or(strings.Join(there, ", "), "none at all"))
	}
	return lacking(x.path, what, cases, has)
}

// Agent is the prompter of one of the Kinds.
func (x *exact) Agent(kind string, cases []lens.Case) (agentPrompter, error) {
	err := x.lacks(kind+" prompt", kind, cases, func(c *lens.Case) bool { return x.has(kind, c.Name, "") })
	return func(c *lens.Case) (string, error) { return x.rows[exactKey{kind, c.Name, ""}].Prompt, nil }, err
}

// Judge is the prompter of a judge.
func (x *exact) Judge(cases []lens.Case) (judgePrompter, error) {
	return x, cmp.Or(
		x.lacks("helpfulness prompt", helpfulness, cases,
			func(c *lens.Case) bool { return x.has(helpfulness, c.Name, "") }),
		x.lacks("leakage prompt for every item", leakage, cases, func(c *lens.Case) bool {
			return !slices.ContainsFunc(c.Trajectory.Items,
				func(item string) bool { return !x.has(leakage, c.Name, item) })
		}))
}

// Leakage implements judgePrompter.
func (x *exact) Leakage(c *lens.Case, action, item string) (string, error) {
	return x.fill(leakage, c, item, action)
}

// Helpfulness implements judgePrompter.
func (x *exact) Helpfulness(c *lens.Case, action string) (string, error) {
	return x.fill(helpfulness, c, "", action)
}

func (x *exact) fill(kind string, c *lens.Case, item, action string) (string, error) {
	row, ok := x.rows[exactKey{kind, c.Name, item}]
	if !ok {
		return "", fmt.Errorf("%s: no recorded prompt", c.Name)
	}
	return row.Before + action + row.After, nil
}

// Probes is the prompter of some of the Levels.
func (x *exact) Probes(levels []string, think bool, cases []lens.Case) (probePrompter, error) {
	for _, level := range levels {
		kind, what := probeKind+level, probeKind+level+" prompt"
		if think {
			what += " with think"
		}
		err := x.lacks(what, kind, cases, func(c *lens.Case) bool {
			row, there := x.rows[exactKey{kind, c.Name, ""}]
			return there && (row.Think != "" || !think) || !canProbe(c, level)
		})
		if err != nil {
			return nil, err
		}
	}
	return exactProbes{x, think}, nil
}

// exactProbes write the questions of probing.
type exactProbes struct {
	*exact
	think bool
}

// Probe implements probePrompter. The choices are those of the benchmark's questions.
func (x exactProbes) Probe(level string, c *lens.Case, yesFirst bool) (string, error) {
	row, ok := x.rows[exactKey{probeKind + level, c.Name, ""}]
	if !ok {
		return "", fmt.Errorf("%s: no recorded prompt", c.Name)
	}
	choices, after := "(A) No\n(B) Yes", row.After
	if yesFirst {
		choices = "(A) Yes\n(B) No"
	}
	if x.think {
		after = row.Think
	}
	return row.Before + choices + after, nil
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

// promptSource gives the prompts of some cases.
type promptSource interface {
	// Agent is the prompter of one of the Kinds.
	Agent(kind string, cases []lens.Case) (agentPrompter, error)
	Judge(cases []lens.Case) (judgePrompter, error)
	// Probes is the prompter of some of the Levels. think: the model thinks first.
	Probes(levels []string, think bool, cases []lens.Case) (probePrompter, error)
}

// readSource reads the prompts that the options name: templates, or a file of exact ones.
func readSource(o *Options) (promptSource, error) {
	path := o.Prompts
	switch {
	case path == bench.Released && o.Data == embedded.Name:
		return nil, errors.New("prompts released: the embedded cases have none: want the cases of a checkout of " +
			"PrivacyLens")
	case path == bench.Released:
		path = filepath.Join(filepath.Dir(casesPath(o.Data)), PromptsName)
	case filepath.Ext(path) != ".jsonl":
		return loadPrompts(path)
	}
	x, err := readExact(path)
	if errors.Is(err, fs.ErrNotExist) && filepath.Base(path) == PromptsName {
		err = fmt.Errorf("%w: scripts/privacylens/export_prompts.py writes it from a checkout of PrivacyLens", err)
	}
	return x, err
}
