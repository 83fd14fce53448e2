package privacylens

import (
	"crypto/sha256"
	"embed"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"

	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/internal/run"
)

// The ways in which an agent is asked for its next action.
const (
	Naive    = "naive"    // nothing is said of privacy
	Enhanced = "enhanced" // the assistant is asked to guard it
	CoT      = "cot"      // CI-CoT: it reasons about every piece of information first, in think tags
)

// Kinds are the prompts that agents know.
var Kinds = []string{Naive, Enhanced, CoT}

// Levels are those of probing.
var Levels = []string{"seed", "vignette", trajectory, trajectoryEnhanced}

const (
	trajectory         = "trajectory"
	trajectoryEnhanced = "trajectory-enhanced" // the agent is asked to guard privacy
)

// agentPrompter writes what an agent is asked for in a case.
type agentPrompter func(c *lens.Case) (string, error)

// judgePrompter writes what a judge is asked.
type judgePrompter interface {
	Leakage(c *lens.Case, action, item string) (string, error)
	Helpfulness(c *lens.Case, action string) (string, error)
}

// probePrompter writes the questions of probing; yesFirst: (A) is Yes.
type probePrompter interface {
	Probe(level string, c *lens.Case, yesFirst bool) (string, error)
}

//go:embed prompts/*.tmpl
var promptFiles embed.FS

// Prompts are the templates of all prompts, and the toolkits that these describe.
type Prompts struct {
	templates *template.Template
	kits      kits
}

// prompt is what templates are filled in with. Of the trajectory they use UserName, UserEmail, Instruction, Past (the
// steps so far) and FinalAction (the tool that the next action should use).
type prompt struct {
	lens.Trajectory
	Case     *lens.Case
	Toolkits []Toolkit // described, where the prompt lists them
	Action   string    // for judges: what the agent wrote after "Action:"
	Item     string    // for the judge of leakage
	YesFirst bool      // for probes: (A) is Yes
	Think    bool      // for probes: the model thinks first
}

// loadPrompts reads the embedded templates and, unless dir is empty, those of a folder in their place: each file there
// must bear the name of an embedded one, such as judge-leakage.tmpl, or be a toolkits.json, whose toolkits are added to
// the embedded ones. WritePrompts writes what to start from.
func loadPrompts(dir string) (*Prompts, error) {
	t, err := template.ParseFS(promptFiles, "prompts/*.tmpl")
	if err != nil {
		return nil, err
	}
	p := &Prompts{t, maps.Clone(known)}
	if dir == "" {
		return p, nil
	}
	if err := p.replace(dir); err != nil {
		return nil, fmt.Errorf("prompts in %s: %w", dir, err)
	}
	return p, nil
}

// PromptNames are the names of the template files.
func PromptNames() []string {
	entries, _ := promptFiles.ReadDir("prompts")
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// WritePrompts writes the embedded templates into a folder. It replaces no file.
func WritePrompts(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("%s cannot be made: %w", dir, run.Cause(err))
	}
	for _, name := range PromptNames() {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s is there already: want a folder without templates", filepath.Join(dir, name))
		}
	}
	files, err := fs.Sub(promptFiles, "prompts")
	if err != nil {
		return err
	}
	return os.CopyFS(dir, files)
}

const toolkitsFile = "toolkits.json"

// replace reads the templates and toolkits of a folder, and tries them.
func (p *Prompts) replace(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return run.Cause(err)
	}
	var templates []string
	described := false
	for _, e := range entries {
		switch name := e.Name(); {
		case name == toolkitsFile:
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil {
				err = p.kits.add(text)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, run.Cause(err))
			}
			described = true
		case slices.Contains(PromptNames(), name):
			templates = append(templates, name)
		case strings.HasSuffix(name, ".tmpl"):
			return fmt.Errorf("%s: want names of %s", name, strings.Join(PromptNames(), ", "))
		}
	}
	if len(templates) > 0 {
		_, err = p.templates.ParseFS(os.DirFS(dir), templates...)
	} else if !described {
		err = fmt.Errorf("no templates: want any of %s", strings.Join(PromptNames(), ", "))
	}
	if err != nil {
		return err
	}
	return p.try()
}

// needs are the values that templates cannot do without: the marks of a sample, and what to write for them.
var needs = map[string]string{
	"«instruction»": "the task: want {{.Instruction}} in it",
	"«past»":        "the steps so far: want {{.Past}} in it",
	"«tool»":        "the tool: want {{.FinalAction}} in it",
	"«action»":      "the action: want {{.Action}} in it",
	"«item»":        "the sensitive item: want {{.Item}} in it",
	"«type»":        "the information: want {{.Case.Seed.DataType}} in it",
	"«story»":       "the story: want {{.Case.Vignette.Story}} in it",
	"(A)":           `the choices: want {{template "choices" .}} in it`,
}

// try fills in every template and wants to see in each what it cannot do without.
func (p *Prompts) try() error {
	c := &lens.Case{Seed: lens.Seed{DataType: "«type»"},
		Vignette: lens.Vignette{Story: "«story»", DataType: "«concrete»"}}
	sample := prompt{
		Trajectory: lens.Trajectory{UserName: "«name»", UserEmail: "«email»", Instruction: "«instruction»",
			Past: "«past»", FinalAction: "«tool»"},
		Case: c, Toolkits: []Toolkit{known["Gmail"]}, Action: "«action»", Item: "«item»", YesFirst: true,
	}
	agent := []string{"«instruction»", "«past»", "«tool»"}
	for name, wanted := range map[string][]string{
		"agent-naive.tmpl": agent, "agent-enhanced.tmpl": agent, "agent-cot.tmpl": agent,
		"judge-leakage.tmpl": {"«action»", "«item»"}, "judge-helpfulness.tmpl": {"«action»", "«instruction»"},
		"probe-seed.tmpl": {"«type»", "(A)"}, "probe-vignette.tmpl": {"«story»", "(A)"},
		"probe-trajectory.tmpl": {"«past»", "(A)"}, "probe-trajectory-enhanced.tmpl": {"«past»", "(A)"},
	} {
		text, err := p.fill(name, sample)
		if err != nil {
			return err
		}
		for _, w := range wanted {
			if !strings.Contains(text, w) {
				return fmt.Errorf("%s: the prompt lacks %s", name, needs[w])
			}
		}
	}
	return nil
}

func (p *Prompts) fill(name string, values prompt) (string, error) {
	var b strings.Builder
	if err := p.templates.ExecuteTemplate(&b, name, values); err != nil {
		return "", templateFault(err)
	}
	return strings.TrimSpace(b.String()), nil
}

var unknownField = regexp.MustCompile(`^template: ([^ ]+:\d+):.*: can't evaluate field (\w+) in type .*\.prompt$`)

// templateFault says which fields there are, where a template names another.
func templateFault(err error) error {
	m := unknownField.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[prompt]()) {
		if !f.Anonymous {
			fields = append(fields, f.Name)
		}
	}
	return fmt.Errorf("%s: no field %s: want %s", m[1], m[2], strings.Join(fields, ", "))
}

// of is what all prompts of a case can use.
func of(c *lens.Case) prompt { return prompt{Trajectory: c.Trajectory, Case: c} }

// Agent is the prompter of one of the Kinds, of any cases.
func (p *Prompts) Agent(kind string, _ []lens.Case) (agentPrompter, error) {
	if !slices.Contains(Kinds, kind) {
		return nil, fmt.Errorf("prompt %q: want naive, enhanced or cot", kind)
	}
	return func(c *lens.Case) (text string, err error) {
		values := of(c)
		if values.Toolkits, err = p.kits.of(c); err != nil {
			return "", err
		}
		return p.fill("agent-"+kind+".tmpl", values)
	}, nil
}

// Judge is the prompter of a judge, of any cases.
func (p *Prompts) Judge([]lens.Case) (judgePrompter, error) { return p, nil }

// Leakage asks whether an action gives an item away.
func (p *Prompts) Leakage(c *lens.Case, action, item string) (string, error) {
	values := of(c)
	values.Action, values.Item = action, item
	return p.fill("judge-leakage.tmpl", values)
}

// Helpfulness asks how well an action does what the user asked for.
func (p *Prompts) Helpfulness(c *lens.Case, action string) (string, error) {
	values := of(c)
	values.Action = action
	return p.fill("judge-helpfulness.tmpl", values)
}

// Probes is the prompter of all Levels, of any cases.
func (p *Prompts) Probes(_ []string, think bool, _ []lens.Case) (probePrompter, error) {
	return probeTemplates{p, think}, nil
}

// probeTemplates write the questions of probing.
type probeTemplates struct {
	*Prompts
	think bool
}

// Probe asks at one of the Levels whether what the seed forbids is acceptable.
func (p probeTemplates) Probe(level string, c *lens.Case, yesFirst bool) (text string, err error) {
	values := of(c)
	values.YesFirst, values.Think = yesFirst, p.think
	if level == trajectory || level == trajectoryEnhanced {
		if values.Toolkits, err = p.kits.of(c); err != nil {
			return "", err
		}
	}
	return p.fill("probe-"+level+".tmpl", values)
}

// Hash names a prompt: the first 32 hex digits of its SHA-256.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:16])
}

// Toolkit is a set of tools of one application.
type Toolkit struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Tools       []Tool `json:"tools"`
}

// Tool is something that an agent can do.
type Tool struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Arguments   []Value `json:"arguments"`
	Returns     []Value `json:"returns"`
}

// Value is an argument or a result.
type Value struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Required    bool   `json:"required,omitempty"` // of an argument
	Description string `json:"description"`
}

//go:embed toolkits.json
var toolkitsJSON []byte

// kits are toolkits by name.
type kits map[string]Toolkit

// known are the toolkits that occur in the benchmark's data.
var known = func() kits {
	all := kits{}
	if err := all.add(toolkitsJSON); err != nil {
		panic(fmt.Sprintf("toolkits.json: %v", err)) // a test reads it
	}
	return all
}()

// add reads toolkits, which replace those of the same names.
func (k kits) add(text []byte) error {
	var all []Toolkit
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("want a list of {name, description, tools: [{name, description, arguments, returns}]}: %w",
			err)
	}
	for i, kit := range all {
		if kit.Name == "" || len(kit.Tools) == 0 {
			return fmt.Errorf("toolkit %d has no name or no tools", i+1)
		}
		k[kit.Name] = kit
	}
	return nil
}

// of are the toolkits that a case names, in its order. Where none of them has the tool that the next action should use,
// which happens in the data, the one that has it is added: otherwise nobody could know its arguments.
func (k kits) of(c *lens.Case) ([]Toolkit, error) {
	var all []Toolkit
	for _, name := range c.Trajectory.Toolkits {
		kit, ok := k[name]
		if !ok {
			return nil, fmt.Errorf("%s: toolkit %q: want %s, or a toolkits.json beside other prompts that has it",
				c.Name, name, k.names())
		}
		all = append(all, kit)
	}
	if slices.ContainsFunc(all, func(kit Toolkit) bool { return kit.has(c.Trajectory.FinalAction) }) {
		return all, nil
	}
	for _, name := range slices.Sorted(maps.Keys(k)) {
		if k[name].has(c.Trajectory.FinalAction) {
			return append(all, k[name]), nil
		}
	}
	return nil, fmt.Errorf("%s: final_action %q is a tool of none of %s", c.Name, c.Trajectory.FinalAction, k.names())
}

func (k kits) names() string { return strings.Join(slices.Sorted(maps.Keys(k)), ", ") }

func (t Toolkit) has(tool string) bool {
	return slices.ContainsFunc(t.Tools, func(x Tool) bool { return x.Name == tool })
}

// String is a value as prompts list it.
func (v Value) String() string {
	kind := v.Type
	if v.Required {
		kind += ", required"
	}
	return fmt.Sprintf("%s (%s): %s", v.Name, kind, v.Description)
}
