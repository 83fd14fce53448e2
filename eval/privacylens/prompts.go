package privacylens

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/template"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval/bench"
)

// The ways in which an agent is asked for its next action.
const (
	Naive    = "naive"    // nothing is said of privacy
	Enhanced = "enhanced" // the assistant is asked to guard it
	CoT      = "cot"      // naive with the CI-CoT text of the dissertation, word for word
	CIRL     = "ci-rl"    // CI-CoT as CI-RL's release asks for it
)

// Kinds are the prompts that agents know.
var Kinds = []string{Naive, Enhanced, CoT, CIRL}

// thinks says that an agent reasons about every piece of information in think tags first.
func thinks(kind string) bool { return kind == CoT || kind == CIRL }

// The kinds of a judge's prompts. helpfulness is the key of the question how helpful an action is, too; the key of a
// leakage's question is the item.
const (
	leakage     = "leakage"
	helpfulness = "helpfulness"
)

// Levels are the levels of probing; in the last one the agent is asked to guard privacy.
var Levels = []string{"seed", "vignette", "trajectory", "trajectory-enhanced"}

const probeKind = "probe-" // begins the kinds of probes

// filling is what a prompt about a case has besides the case.
type filling struct {
	Action   string // for judges: what the agent wrote after "Action:"
	Item     string // for the judge of leakage
	YesFirst bool   // for probes: (A) is Yes
	Think    bool   // for probes: the model thinks first
}

// promptFiles are the benchmark's prompts (MIT) with CI-RL's changes to them (Apache-2.0): prompts/README.md.
//
//go:embed prompts/*.tmpl prompts/toolkits.json
var promptFiles embed.FS

// toolkits are what the benchmark's prompts say of each toolkit.
var toolkits = func() map[string]string {
	text, err := promptFiles.ReadFile("prompts/toolkits.json")
	all := map[string]string{}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		panic(err) // the file is part of the program
	}
	return all
}()

// described are the toolkits of a case that the benchmark describes. It passes over the others.
func (c *Case) described() (texts []string) {
	for _, name := range c.Trajectory.Toolkits {
		if text, ok := toolkits[name]; ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// functions are what the benchmark's code does to the values of a case.
var functions = template.FuncMap{
	"toolkits": func(c *Case) string { return strings.Join(c.described(), "\n") },
	"cot":      func() string { return strings.TrimSpace(ci.CoT) },
	"bare":     func(s string) string { return strings.TrimPrefix(strings.TrimPrefix(s, "a "), "an ") },
	"lower":    func(s string) string { return strings.Trim(strings.ToLower(s), ".") },
	"ing": func(s string) string {
		verb, rest, _ := strings.Cut(s, " ")
		return verb + "ing " + rest
	},
	"medium": func(s string) string {
		for _, medium := range []string{"email", "message", "post"} {
			if strings.Contains(s, medium) {
				return medium
			}
		}
		return s
	},
}

// prompts writes what models are asked.
type prompts struct{ *template.Template }

// write fills in a template. Of the trajectory these use UserName, UserEmail, Instruction, Past (the steps so far) and
// FinalAction (the tool that the next action should use).
func (p prompts) write(kind string, c *Case, with filling) (string, error) {
	switch {
	case slices.Contains(Kinds, kind):
		kind = "agent-" + kind
	case kind == guardAirGap:
		kind = "guard-" + kind
	case !strings.HasPrefix(kind, probeKind):
		kind = "judge-" + kind
	}
	var b strings.Builder
	err := p.ExecuteTemplate(&b, kind+".tmpl", struct {
		Trajectory
		filling
		Case *Case
	}{c.Trajectory, with, c})
	return b.String(), err
}

// readPrompts reads the benchmark's prompts, and in their place the prompts of a folder.
func readPrompts(o *Options) (prompts, error) {
	t := template.Must(template.New("").Funcs(functions).ParseFS(promptFiles, "prompts/*.tmpl"))
	if o.Prompts == bench.Released {
		return prompts{t}, nil
	}
	_, err := t.ParseFS(os.DirFS(o.Prompts), "*.tmpl")
	if err != nil {
		err = fmt.Errorf("prompts %s: %w: want released, or a folder with templates such as agent-naive.tmpl", o.Prompts,
			err)
	}
	return prompts{t}, err
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
