package privacylens

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/embedded"
)

// The ways in which an agent is asked for its next action.
const (
	Naive    = "naive"    // nothing is said of privacy
	Enhanced = "enhanced" // the assistant is asked to guard it
	CoT      = "cot"      // CI-CoT: it reasons about every piece of information first, in think tags
)

// Kinds are the prompts that agents know.
var Kinds = []string{Naive, Enhanced, CoT}

// The kinds of a judge's prompts. helpfulness is the key of the question how helpful an action is, too; the key of a
// leakage's question is the item.
const (
	leakage     = "leakage"
	helpfulness = "helpfulness"
)

// Levels are those of probing; in the last one the agent is asked to guard privacy.
var Levels = []string{"seed", "vignette", "trajectory", "trajectory-enhanced"}

const probeKind = "probe-" // begins the kinds of probes

// promptKinds are all kinds of prompts.
func promptKinds() []string {
	all := slices.Concat(Kinds, []string{leakage, helpfulness})
	for _, level := range Levels {
		all = append(all, probeKind+level)
	}
	return all
}

// filling is what a prompt about a case has besides the case.
type filling struct {
	Action   string // for judges: what the agent wrote after "Action:"
	Item     string // for the judge of leakage
	YesFirst bool   // for probes: (A) is Yes
	Think    bool   // for probes: the model thinks first
}

// prompts writes what models are asked.
type prompts interface {
	write(kind string, c *Case, with filling) (string, error)
	// check wants prompts of a kind for all cases. think: for a model that thinks first.
	check(kind string, think bool, cases []Case) error
}

//go:embed prompts/*.tmpl
var promptFiles embed.FS

// own are prompts in our own words, from templates. Of the trajectory these use UserName, UserEmail, Instruction, Past
// (the steps so far) and FinalAction (the tool that the next action should use).
type own struct{ *template.Template }

func (own) check(string, bool, []Case) error { return nil }

func (p own) write(kind string, c *Case, with filling) (text string, err error) {
	values := struct {
		Trajectory
		filling
		Case     *Case
		Toolkits []Toolkit // described, where the prompt lists them
	}{c.Trajectory, with, c, nil}
	agent := slices.Contains(Kinds, kind)
	if agent || strings.HasPrefix(kind, probeKind+"trajectory") {
		if values.Toolkits, err = known.of(c); err != nil {
			return "", err
		}
	}
	switch {
	case agent:
		kind = "agent-" + kind
	case !strings.HasPrefix(kind, probeKind):
		kind = "judge-" + kind
	}
	var b strings.Builder
	err = p.ExecuteTemplate(&b, kind+".tmpl", values)
	return strings.TrimSpace(b.String()), err
}

// PromptsName is the file of the benchmark's own prompts, beside the cases.
const PromptsName = "prompts.jsonl"

// exactRow is a prompt as a file of them has it, whole or with a gap: for the action that is judged, or for the choices
// of a probe.
type exactRow struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`   // one of promptKinds
	Item   string `json:"item"`   // of leakage
	Prompt string `json:"prompt"` // of an agent
	Before string `json:"before"` // the gap
	After  string `json:"after"`
	Think  string `json:"think"` // of a probe: what is behind the gap for a model that thinks first; "": nothing is
}

// fault says what the prompt lacks.
func (r *exactRow) fault() error {
	agent := slices.Contains(Kinds, r.Kind)
	switch {
	case !slices.Contains(promptKinds(), r.Kind):
		return fmt.Errorf("kind %q: want %s", r.Kind, strings.Join(promptKinds(), ", "))
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
		err := r.fault()
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

func (x *exact) check(kind string, think bool, cases []Case) error {
	there := slices.DeleteFunc(promptKinds(), func(kind string) bool {
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
	level, probing := strings.CutPrefix(kind, probeKind)
	what := kind + " prompt"
	switch {
	case kind == leakage:
		what = "leakage prompt for every item"
	case think:
		what += " with think"
	}
	return lacking(x.path, what, cases, func(c *Case) bool {
		items := []string{""}
		if kind == leakage {
			items = c.Trajectory.Items
		}
		return probing && !canProbe(c, level) || !slices.ContainsFunc(items, func(item string) bool {
			row, there := x.rows[exactKey{kind, c.Name, item}]
			return !there || think && row.Think == ""
		})
	})
}

func (x *exact) write(kind string, c *Case, with filling) (string, error) {
	row, ok := x.rows[exactKey{kind, c.Name, with.Item}]
	gap, after := with.Action, row.After
	if strings.HasPrefix(kind, probeKind) { // the choices are those of the benchmark's questions
		if gap = "(A) No\n(B) Yes"; with.YesFirst {
			gap = "(A) Yes\n(B) No"
		}
		if with.Think {
			after = row.Think
		}
	}
	switch {
	case !ok:
		return "", fmt.Errorf("%s: no recorded prompt", c.Name)
	case row.Prompt != "":
		return row.Prompt, nil
	}
	return row.Before + gap + after, nil
}

// lacking is an error where some cases have not what they need.
func lacking(path, what string, cases []Case, has func(c *Case) bool) error {
	without := slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return has(&c) })
	if len(without) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d of %d cases have no %s (first: %s)", path, len(without), len(cases), what,
		without[0].Name)
}

// readPrompts reads the prompts that the options name: a file of exact ones, or our own.
func readPrompts(o *Options) (prompts, error) {
	path := o.Prompts
	switch {
	case path == "":
		t, err := template.ParseFS(promptFiles, "prompts/*.tmpl")
		return own{t}, err
	case path == bench.Released && o.Data == embedded.Name:
		return nil, errors.New("prompts released: the embedded cases have none: want the cases of a checkout of " +
			"PrivacyLens")
	case path == bench.Released:
		path = filepath.Join(filepath.Dir(casesPath(o.Data)), PromptsName)
	}
	x, err := readExact(path)
	if errors.Is(err, fs.ErrNotExist) && filepath.Base(path) == PromptsName {
		err = fmt.Errorf("%w: scripts/privacylens/export_prompts.py writes it from a checkout of PrivacyLens", err)
	}
	return x, err
}
