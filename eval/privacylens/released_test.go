package privacylens

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/bench"
)

// releasedFile is the path of a fixture; the README.md beside it says what they are.
func releasedFile(name string) string { return filepath.Join("testdata", "released", name) }

// readReleased decodes a fixture.
func readReleased[T any](t *testing.T, name string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, releasedFile(name))), &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// releasedCases are the cases of a file of PrivacyLens.
func releasedCases(t *testing.T, name string) []Case {
	t.Helper()
	switch name {
	case "confide_subset.json":
		return realCases(t, "confaide_subset.json")
	case "culturebank_subset.json":
		cases, _, err := readCases(nil, releasedFile(name+".gz"))
		if err != nil {
			t.Fatal(err)
		}
		return cases
	}
	return realCases(t, name)
}

// hashes are the prompts of a file of cases, by kind: their number and the hash of all of them, with names.
type hashes map[string]struct {
	Prompts int
	SHA256  string
}

// TestReleasedPrompts: what is sent to agent, judge and model under probing with prompts released is byte for byte what
// the benchmark's and CI-RL's own scripts send, in every case.
func TestReleasedPrompts(t *testing.T) {
	all := readReleased[map[string]hashes](t, "hashes.json")
	if len(all) != 3 {
		t.Fatalf("hashes of %d files of cases, want 3", len(all))
	}
	for name, want := range all {
		t.Run(name, func(t *testing.T) {
			cases := releasedCases(t, name)
			for i := range cases {
				checkCase(t, &cases[i])
			}
			path := filepath.Join(t.TempDir(), name)
			writeReleased(t, filepath.Join(filepath.Dir(path), PromptsName), cases)
			got := sentPrompts(t, path, cases)
			for kind, w := range want {
				if g := got[kind]; g.String() != fmt.Sprintf("%d prompts, SHA-256 %s", w.Prompts, w.SHA256) {
					t.Errorf("%s: %v, want %d, %s, as the release has them", kind, g, w.Prompts, w.SHA256)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d kinds, want %d", len(got), len(want))
			}
		})
	}
}

// writeReleased writes what scripts/privacylens/export_prompts.py writes for cases.
func writeReleased(t *testing.T, path string, cases []Case) {
	t.Helper()
	var rows []exactRow
	from := releasedPrompts{t, releasedTemplates(t)}
	for i := range cases {
		rows = append(rows, from.rows(&cases[i])...)
	}
	if err := data.WriteLines(path, len(rows), func(i int) any { return rows[i] }); err != nil {
		t.Fatal(err)
	}
}

// gap is where the action or the choices of a probe belong.
const gap = "\ufdd0"

// releasedTemplates are the release's prompts.
func releasedTemplates(t *testing.T) *template.Template {
	t.Helper()
	texts := readReleased[map[string]string](t, "toolkits.json")
	made := template.New("").Funcs(released).Funcs(template.FuncMap{
		"toolkits": func(c *Case) string { return releasedToolkits(c, texts) },
	})
	template.Must(made.Parse(`{{define "choices"}}` + gap + `{{end}}`))
	return template.Must(made.ParseGlob(releasedFile("*.tmpl")))
}

// releasedToolkits is what prompts say of the toolkits of a case. The release passes over those that it lacks.
func releasedToolkits(c *Case, texts map[string]string) string {
	var there []string
	for _, name := range c.Trajectory.Toolkits {
		if text, ok := texts[name]; ok {
			there = append(there, text)
		}
	}
	return strings.Join(there, "\n")
}

// released are what the release's code does to the values of a case.
var released = template.FuncMap{
	"bare":  func(s string) string { return strings.TrimPrefix(strings.TrimPrefix(s, "a "), "an ") },
	"lower": func(s string) string { return strings.Trim(strings.ToLower(s), ".") },
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

// releasedValues is what the templates are filled in with.
type releasedValues struct {
	Trajectory
	filling
	Case *Case
}

// releasedPrompts makes prompts of the release's templates.
type releasedPrompts struct {
	t         *testing.T
	templates *template.Template
}

// rows are the prompts of a case.
func (r releasedPrompts) rows(c *Case) (rows []exactRow) {
	values := releasedValues{c.Trajectory, filling{Action: gap}, c}
	for _, kind := range Kinds {
		rows = append(rows, exactRow{Name: c.Name, Kind: kind, Prompt: r.fill("agent-"+kind, values)})
	}
	rows = append(rows, r.split(helpfulness, "judge-"+helpfulness, values))
	for _, values.Item = range c.Trajectory.Items {
		rows = append(rows, r.split(leakage, "judge-"+leakage, values))
	}
	values.Item = ""
	for _, level := range Levels {
		row := r.split(probeKind+level, probeKind+level, values)
		values.Think = true
		row.Think = r.split(probeKind+level, probeKind+level, values).After
		values.Think = false
		rows = append(rows, row)
	}
	return rows
}

// split is a prompt with a gap.
func (r releasedPrompts) split(kind, name string, values releasedValues) exactRow {
	r.t.Helper()
	before, after, found := strings.Cut(r.fill(name, values), gap)
	if !found {
		r.t.Fatalf("%s has no gap", name)
	}
	return exactRow{Name: values.Case.Name, Kind: kind, Item: values.Item, Before: before, After: after}
}

func (r releasedPrompts) fill(name string, values releasedValues) string {
	r.t.Helper()
	var b strings.Builder
	if err := r.templates.ExecuteTemplate(&b, name+".tmpl", values); err != nil {
		r.t.Fatal(err)
	}
	return b.String()
}

// hashed is the hash of prompts, with names, and their number.
type hashed struct {
	hash.Hash
	n int
}

func (h *hashed) String() string {
	if h == nil {
		return "no prompts"
	}
	return fmt.Sprintf("%d prompts, SHA-256 %x", h.n, h.Sum(nil))
}

// sentPrompts are all prompts of a file of cases by kind, as the stages send them.
func sentPrompts(t *testing.T, path string, cases []Case) map[string]*hashed {
	t.Helper()
	// as the script has it
	const action = "GmailSendEmail\nAction Input: {\"to\": \"a@example.org\", \"body\": \"50 % {x}\"}"
	o := Defaults()
	o.Prompts, o.Data = bench.Released, path
	from := must[prompts](t)(readPrompts(&o))
	all := map[string]*hashed{}
	add := func(kind, name, prompt string) {
		if all[kind] == nil {
			all[kind] = &hashed{sha256.New(), 0}
		}
		fmt.Fprintf(all[kind], "%s\x00%s\x00", name, prompt)
		all[kind].n++
	}
	for _, kind := range promptKinds() {
		if err := from.check(kind, strings.HasPrefix(kind, probeKind), cases); err != nil {
			t.Fatal(err)
		}
	}
	e := &evaluation{Options: &o, cases: cases, prompts: from, judging: true}
	for i := range cases {
		c := &cases[i]
		for _, kind := range Kinds {
			add(kind, c.Name, must[string](t)(from.write(kind, c, filling{})))
		}
		for _, q := range must[[]bench.Question](t)(e.questions(i, []string{"Action: " + action})) {
			kind := leakage
			if q.Key == helpfulness {
				kind = helpfulness
			}
			add(kind, c.Name, q.Messages[0].Content)
		}
		for suffix, think := range map[string]bool{"": false, ", think": true} {
			for _, level := range Levels {
				text := must[string](t)(from.write(probeKind+level, c, filling{YesFirst: true, Think: think}))
				add(probeKind+level+suffix, c.Name, text)
			}
		}
	}
	return all
}
