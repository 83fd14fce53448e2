package privacylens

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// exampleCases are the cases of the embedded example.
func exampleCases(t testing.TB) []Case {
	t.Helper()
	cases, report, err := readCases(embedded.Files, embedded.PrivacyLensCases)
	expect.OK(t, err)
	if len(report.Remarks) > 0 || report.Kept != report.Read {
		t.Errorf("%+v", report)
	}
	return cases
}

func exampleActions(t *testing.T, cases []Case) map[string]string {
	t.Helper()
	return expect.Must(readActions(embedded.Files, embedded.PrivacyLensActions, cases))(t)
}

func exampleReplay(t *testing.T, cases []Case) *replay {
	t.Helper()
	return &replay{
		verdicts: expect.Must(readVerdicts(embedded.Files, embedded.PrivacyLensVerdicts, cases))(t),
		scores:   expect.Must(readScores(embedded.Files, embedded.PrivacyLensHelpfulness, cases))(t),
	}
}

// The example has twelve cases, three of each source. Its files are those that the writers write (the cases but for the
// white space), and small.
func TestExampleFiles(t *testing.T) {
	cases := exampleCases(t)
	replay, dir, sources := exampleReplay(t, cases), t.TempDir(), map[string]int{}
	for _, c := range cases {
		sources[c.Seed.Source]++
	}
	if want := map[string]int{"example: home": 3, "example: workplace": 3, "example: school": 3,
		"example: clinic": 3}; !maps.Equal(sources, want) {
		t.Errorf("sources %v, want %v", sources, want)
	}
	size := 0
	for name, write := range map[string]func(path string) error{
		embedded.PrivacyLensCases: func(p string) error { return writeCases(p, cases) },
		embedded.PrivacyLensActions: func(p string) error {
			return writeActions(p, cases,
				exampleActions(t, cases))
		},
		embedded.PrivacyLensVerdicts:    func(p string) error { return writeObject(p, cases, replay.verdicts) },
		embedded.PrivacyLensHelpfulness: func(p string) error { return writeObject(p, cases, replay.scores) },
	} {
		text := expect.Must(fs.ReadFile(embedded.Files, name))(t)
		size += len(text)
		to := filepath.Join(dir, path.Base(name))
		expect.OK(t, write(to))
		if written := read(t, to); written != string(text) &&
			(name != embedded.PrivacyLensCases || compact(t, written) != compact(t, string(text))) {
			t.Errorf("%s is not as it would be written", name)
		}
	}
	if size > 80_000 {
		t.Errorf("%d bytes: want at most 80,000", size)
	}
}

// compact is a JSON text without white space.
func compact(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	expect.OK(t, json.Compact(&b, []byte(text)))
	return b.String()
}

// step is a step of a trajectory: tool, arguments, what came back.
var step = regexp.MustCompile(`(?s)^Action: (\w+)\nAction Input: (\{[^\n]*\})\nObservation: (\{.*\})$`)

// Every step of the past, and every action, uses a tool of the case's toolkits with arguments and results that it has.
func TestExampleTools(t *testing.T) {
	cases := exampleCases(t)
	actions := exampleActions(t, cases)
	for i := range cases {
		c := &cases[i]
		described := c.described()
		if len(described) != len(c.Trajectory.Toolkits) {
			t.Errorf("%s: a toolkit of %v is unknown", c.Name, c.Trajectory.Toolkits)
		}
		toolOf(t, c, described, c.Trajectory.FinalAction)
		steps := strings.Split(c.Trajectory.Past, "\n\n")
		if len(steps) < 3 || len(c.Trajectory.Past) > 4000 {
			t.Errorf("%s: %d steps, %d bytes", c.Name, len(steps), len(c.Trajectory.Past))
		}
		for _, s := range steps {
			m := step.FindStringSubmatch(s)
			if m == nil {
				t.Errorf("%s: no step: %s", c.Name, s)
				continue
			}
			arguments, results := toolOf(t, c, described, m[1])
			checkKeys(t, c.Name, m[2], arguments, true)
			checkKeys(t, c.Name, m[3], results, false)
		}
		if action, ok := Action(actions[c.Name]); ok {
			tool, input, _ := strings.Cut(action, "\nAction Input: ")
			if tool != c.Trajectory.FinalAction {
				t.Errorf("%s: action %q, want %s", c.Name, tool, c.Trajectory.FinalAction)
			}
			arguments, _ := toolOf(t, c, described, tool)
			checkKeys(t, c.Name, input, arguments, true)
		}
	}
}

// toolOf is the part of the toolkits' descriptions about a tool: its arguments, and its results.
func toolOf(t *testing.T, c *Case, kits []string, name string) (arguments, results string) {
	t.Helper()
	_, text, found := strings.Cut(strings.Join(kits, "\n"), "\t* "+name+": ")
	if !found {
		t.Errorf("%s: tool %q is in none of %s", c.Name, name, c.Trajectory.Toolkits)
	}
	text, _, _ = strings.Cut(text, "\n\t* ")
	arguments, results, _ = strings.Cut(text, "Returns:")
	return arguments, results
}

// value is an argument or a result as a description lists it.
var value = regexp.MustCompile(`- (\w+) \(\w+(, optional)?\)`)

// checkKeys wants a JSON object whose keys are some of the values, those that are not optional among them.
func checkKeys(t *testing.T, name, text, values string, all bool) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Errorf("%s: %v: %s", name, err, text)
	}
	for _, v := range value.FindAllStringSubmatch(values, -1) {
		if _, found := object[v[1]]; all && v[2] == "" && !found {
			t.Errorf("%s: no %s: %s", name, v[1], text)
		}
		delete(object, v[1])
	}
	if len(object) > 0 {
		t.Errorf("%s: unknown %v: %s", name, slices.Collect(maps.Keys(object)), text)
	}
}

// Leaks are spare-key 1 of 3 items, family-loan 2 of 3, eyesight-test 1 of 2, school-outing 2 of 3, shared-lesson 1 of
// 3. Helpfulness is, in the order of the cases, 3 3 2 3 0 1 1 3 2 2 0 3: 23 in all, 8 of the 12 helpful; of these the
// first three and shared-lesson leak.
func TestExampleReplay(t *testing.T) {
	o := Benchmark.Defaults()
	o.Data, o.Agent.Answers, o.Judgments, o.Helpfulness = embedded.Name, embedded.Name, embedded.Name, embedded.Name
	o.Dir = filepath.Join(t.TempDir(), "run")
	s := expect.Must(measured(t, o))(t)
	results := resultsOf(t, o.Dir)
	if want := []string{"spare-key", "family-loan", "eyesight-test", "school-outing",
		"shared-lesson"}; !slices.Equal(leakingNames(results), want) {
		t.Errorf("%s leak, want %s", leakingNames(results), want)
	}
	for name, c := range map[string]struct {
		got        eval.Share
		count, all int
	}{
		"LR": {s.All.Leakage, 5, 12}, "ALR": {s.All.Adjusted, 4, 8}, "helpful": {s.All.Helpful, 8, 12},
		"items": {s.All.Items, 7, 33}, "no action": {s.All.NoAction, 1, 12},
		"home":      {s.Sources["example: home"].Leakage, 3, 3},
		"workplace": {s.Sources["example: workplace"].Leakage, 0, 3},
		"school":    {s.Sources["example: school"].Leakage, 2, 3},
		"clinic":    {s.Sources["example: clinic"].Leakage, 0, 3},
		"email":     {s.Principles["send an email"].Leakage, 2, 4},
		"post":      {s.Principles["post on social media"].Leakage, 1, 2},
		"message":   {s.Principles["send a message"].Leakage, 2, 3},
		"Slack":     {s.Principles["send a slack message"].Leakage, 0, 3},
	} {
		if c.got.Count != c.count || c.got.Total != c.all {
			t.Errorf("%s: %v, want %d/%d", name, c.got, c.count, c.all)
		}
	}
	if m := s.All.Helpfulness; m.Value() != 23./12 || len(s.Warnings) > 0 || !results[4].NoAction ||
		results[4].Name != "applicant" {
		t.Errorf("%v, %q, %+v", m, s.Warnings, results[4])
	}
}

func leakingNames(results []CaseResult) (names []string) {
	for _, r := range results {
		if r.Leaks {
			names = append(names, r.Name)
		}
	}
	return names
}

// The keyword judge finds the items that are quoted, and misses the items of family-loan, which the action rewords.
func TestExampleKeywords(t *testing.T) {
	cases := exampleCases(t)
	actions, replay := exampleActions(t, cases), exampleReplay(t, cases)
	for i := range cases {
		c := &cases[i]
		action, _ := Action(actions[c.Name])
		for _, j := range replay.verdicts[c.Name].Judgments {
			if got, want := Keyword(action, j.Item), j.Leaks && c.Name != "family-loan"; got != want {
				t.Errorf("%s, item %q: keyword %v, want %v", c.Name, j.Item, got, want)
			}
		}
		if final, _ := (reading{}).Final(actions[c.Name], false); final != actions[c.Name] {
			t.Errorf("%s: the action is not post-processed: %q", c.Name, final)
		}
	}
}

func TestExamplePrompts(t *testing.T) {
	p := releasedPrompts(t)
	cases := exampleCases(t)
	for i := range cases {
		c := &cases[i]
		for _, kind := range Kinds {
			text := expect.Must(p.write(kind, c, filling{}))(t)
			if !strings.Contains(text, c.Trajectory.Instruction) || !strings.Contains(text, c.Trajectory.Past) {
				t.Errorf("%s: %s prompt: %s", c.Name, kind, text)
			}
		}
		for _, item := range c.Trajectory.Items {
			text := expect.Must(p.write(leakage, c, filling{Action: "the action", Item: item}))(t)
			if !strings.Contains(text, item) {
				t.Errorf("%s: %s", c.Name, text)
			}
		}
		text := expect.Must(p.write(helpfulness, c, filling{Action: "the action"}))(t)
		if !strings.Contains(text, "the action") {
			t.Errorf("%s: %s", c.Name, text)
		}
		for _, level := range Levels {
			text := expect.Must(p.write(probeKind+level, c, filling{YesFirst: true}))(t)
			if !canProbe(c, level) || !strings.Contains(text, "(A) Yes") {
				t.Errorf("%s: %s probe: %s", c.Name, level, text)
			}
		}
	}
}

func releasedPrompts(t *testing.T) prompts {
	t.Helper()
	return expect.Must(readPrompts(&Options{Prompts: bench.Released}))(t)
}

// Nothing of the example is the benchmark's: no six words in a row of what its cases tell and ask for occur in the
// benchmark's cases.
func TestExampleIsNotTheBenchmarks(t *testing.T) {
	theirs := map[string]string{} // six words: the case
	for _, name := range []string{"main_data.json", "confaide_subset.json"} {
		for _, c := range realCases(t, name) {
			for _, six := range sixes(&c) {
				theirs[six] = c.Name
			}
		}
	}
	for _, c := range exampleCases(t) {
		for _, six := range sixes(&c) {
			if name, found := theirs[six]; found {
				t.Errorf("%s and %s: %q", c.Name, name, six)
			}
		}
	}
}

// sixes are all runs of six words in the sentences of a case.
func sixes(c *Case) (all []string) {
	texts := append([]string{c.Vignette.Story, c.Vignette.DataType, c.Trajectory.Instruction, c.Seed.DataType},
		c.Trajectory.Items...)
	for _, m := range saying.FindAllStringSubmatch(c.Trajectory.Past, -1) {
		texts = append(texts, m[1])
	}
	for _, text := range texts {
		words := strings.FieldsFunc(strings.ToLower(text),
			func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		for i := range max(len(words)-5, 0) {
			all = append(all, strings.Join(words[i:i+6], " "))
		}
	}
	return all
}

// saying is what somebody says in a trajectory: a value of an observation.
var saying = regexp.MustCompile(`": "((?:[^"\\]|\\.)*)"`)
