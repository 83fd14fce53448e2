package privacylens

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/testkit"
)

// Every toolkit, every tool that an action should use or that a trajectory uses, and every prompt of the real cases.
func TestRealCasesAreCovered(t *testing.T) {
	for name, n := range map[string]int{"main_data.json": 493, "confaide_subset.json": 32} {
		cases := realCases(t, name)
		if len(cases) != n {
			t.Errorf("%s: %d cases, want %d", name, len(cases), n)
		}
		for i := range cases {
			checkCase(t, &cases[i])
		}
	}
}

func checkCase(t *testing.T, c *lens.Case) {
	t.Helper()
	tools := map[string]bool{}
	for _, k := range known {
		for _, tool := range k.Tools {
			tools[tool.Name] = true
		}
	}
	for _, used := range append(usedTools(c.Trajectory.Past), c.Trajectory.FinalAction) {
		if !tools[used] {
			t.Errorf("%s: tool %s is in no toolkit", c.Name, used)
		}
	}
	p := must[*Prompts](t)(loadPrompts(""))
	for _, kind := range Kinds {
		text := must[string](t)(must[agentPrompter](t)(p.Agent(kind, nil))(c))
		wantParts(t, kind, text, "\n"+c.Trajectory.FinalAction+": ", c.Trajectory.Instruction,
			strings.TrimSpace(c.Trajectory.Past), c.Trajectory.FinalAction, c.Trajectory.UserName)
	}
	probes := probeTemplates{p, false}
	for _, level := range Levels {
		yes, no := must[string](t)(probes.Probe(level, c, true)), must[string](t)(probes.Probe(level, c, false))
		wantParts(t, level, yes, "(A) Yes\n(B) No\n", c.Seed.TransmissionPrinciple[:0])
		wantParts(t, level, no, "(A) No\n(B) Yes\n")
		if strings.Replace(yes, "(A) Yes\n(B) No\n", "(A) No\n(B) Yes\n", 1) != no {
			t.Errorf("%s, %s: the two orders differ in more than the order", c.Name, level)
		}
	}
	for _, item := range c.Trajectory.Items {
		wantParts(t, "leakage", must[string](t)(p.Leakage(c, "Do this: {}", item)), "Do this: {}", item, "Answer: Yes")
	}
	wantParts(t, "helpfulness", must[string](t)(p.Helpfulness(c, "Do this: {}")), "Do this: {}",
		c.Trajectory.Instruction, "Answer: ")
}

func usedTools(past string) (names []string) {
	for _, line := range strings.Split(past, "\n") {
		if name, found := strings.CutPrefix(line, "Action: "); found {
			names = append(names, strings.Trim(name, " \""))
		}
	}
	return names
}

func wantParts(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", what, part, text)
		}
	}
}

func TestToolkitsJSON(t *testing.T) {
	var all []Toolkit
	if err := json.Unmarshal(toolkitsJSON, &all); err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if k.Name == "" || k.Description == "" || len(k.Tools) == 0 {
			t.Errorf("%+v", k)
		}
		for _, tool := range k.Tools {
			if !strings.HasPrefix(tool.Name, k.Name) || tool.Description == "" || len(tool.Returns) == 0 {
				t.Errorf("%+v", tool)
			}
			for _, v := range append(tool.Arguments, tool.Returns...) {
				if v.Name == "" || v.Type == "" || v.Description == "" {
					t.Errorf("%s: %+v", tool.Name, v)
				}
			}
		}
	}
	c := testkit.PrivacyCases(1)[0]
	c.Trajectory.Toolkits = []string{"Gmail", "Telegraph"}
	_, err := known.of(&c)
	wantError(t, err, `case0: toolkit "Telegraph": want FacebookManager, Gmail,`)
	c.Trajectory.Toolkits, c.Trajectory.FinalAction = []string{"NotionManager"}, "TelegraphSend"
	_, err = known.of(&c)
	wantError(t, err, `case0: final_action "TelegraphSend" is a tool of none of FacebookManager, `)
	c.Trajectory.FinalAction = "GmailSendEmail" // as main389 of the data has it
	if all := must[[]Toolkit](t)(known.of(&c)); len(all) != 2 || all[1].Name != "Gmail" {
		t.Error(all)
	}
}

func TestOtherToolkits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "toolkits.json")
	for text, want := range map[string]string{`{}`: "toolkits.json: want a list of",
		`[{"name":"X"}]`: "toolkits.json: toolkit 1 has no name or no tools"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := loadPrompts(dir)
		wantError(t, err, want)
	}
	text := `[{"name":"Telegraph","description":"Wires.","tools":[{"name":"TelegraphSend","description":"Sends.",` +
		`"arguments":[],"returns":[{"name":"ok","type":"boolean","description":"done"}]}]}]`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c := testkit.PrivacyCases(1)[0]
	c.Trajectory.Toolkits, c.Trajectory.FinalAction = []string{"Telegraph"}, "TelegraphSend"
	p := must[*Prompts](t)(loadPrompts(dir))
	wantParts(t, "prompt", must[string](t)(must[agentPrompter](t)(p.Agent(CoT, nil))(&c)),
		"### Telegraph\nWires.\n\nTelegraphSend: Sends.\n  Arguments: none\n  Result:\n    ok (boolean): done\n")
	_, err := must[agentPrompter](t)(must[*Prompts](t)(loadPrompts("")).Agent(CoT, nil))(&c)
	wantError(t, err, "toolkit \"Telegraph\"")
}

func TestAgentPrompt(t *testing.T) {
	c := testkit.PrivacyCases(1)[0]
	text := must[string](t)(must[agentPrompter](t)(must[*Prompts](t)(loadPrompts("")).Agent(Naive, nil))(&c))
	wantParts(t, "naive", text, "### Gmail\n", "GmailSendEmail: Sends an email, now or later.\n  Arguments:\n    to "+
		"(string, required): addresses", "  Result:\n    success (boolean): whether",
		"Ann (ann@example.org)", "Write to Cay, number 0.")
	if strings.Contains(text, "privacy") || strings.Contains(text, "<no value>") || strings.Contains(text, "\n\n\n") {
		t.Error(text)
	}
}

func TestReplacedPrompts(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err := loadPrompts(dir)
	wantError(t, err, "no templates: want any of agent-cot.tmpl")
	put("judge-leakage.tmpl", "Does {{.Action}} say {{.Item}}? It is {{.UserName}}'s.")
	p := must[*Prompts](t)(loadPrompts(dir))
	c := testkit.PrivacyCases(1)[0]
	if text := must[string](t)(p.Leakage(&c, "this", "that")); text != "Does this say that? It is Ann's." {
		t.Error(text)
	}
	wantParts(t, "another", must[string](t)(p.Helpfulness(&c, "this")), "Excellent (3)")
	for text, want := range map[string]string{
		"Does {{.Action}} leak?": "judge-leakage.tmpl: the prompt lacks the sensitive item: want {{.Item}} " +
			"in it",
		"{{.Action}} {{.Item}} {{.Oops}}": "judge-leakage.tmpl:1:24: no field Oops: want UserName, UserEmail, ",
		"{{.Action":                       "unclosed action",
	} {
		put("judge-leakage.tmpl", text)
		_, err := loadPrompts(dir)
		wantError(t, err, want)
	}
	put("judge-leak.tmpl", "x")
	_, err = loadPrompts(dir)
	wantError(t, err, "judge-leak.tmpl: want names of agent-cot.tmpl, ")
	_, err = loadPrompts(filepath.Join(dir, "none"))
	wantError(t, err, "none: no such file")
	fresh := filepath.Join(t.TempDir(), "prompts")
	if err := WritePrompts(fresh); err != nil {
		t.Fatal(err)
	}
	must[*Prompts](t)(loadPrompts(fresh))
	wantError(t, WritePrompts(fresh), "agent-cot.tmpl is there already")
	if err := os.Remove(filepath.Join(fresh, "agent-cot.tmpl")); err != nil {
		t.Fatal(err)
	}
	wantError(t, WritePrompts(fresh), "agent-enhanced.tmpl is there already")
	if _, err := os.Stat(filepath.Join(fresh, "agent-cot.tmpl")); err == nil {
		t.Error("a refused folder was written to")
	}
	_, err = p.Agent("polite", nil)
	wantError(t, err, `prompt "polite": want naive, enhanced or cot`)
}

func TestRecordedPrompts(t *testing.T) {
	cases := testkit.PrivacyCases(2)
	agents := `{"name":"case0","kind":"naive","prompt":"p0"}` + "\n" + `{"name":"case1","kind":"naive","prompt":"p1"}` +
		"\n\n" + `{"name":"other","kind":"cot","prompt":"p2"}`
	path := write(t, "a.jsonl", agents)
	agent := func(path, kind string) (agentPrompter, error) {
		x, err := readExact(path)
		if err != nil {
			return nil, err
		}
		return x.Agent(kind, cases)
	}
	a := must[agentPrompter](t)(agent(path, Naive))
	if text := must[string](t)(a(&cases[1])); text != "p1" {
		t.Error(text)
	}
	_, err := agent(path, CoT)
	wantError(t, err, "2 of 2 cases have no cot prompt (first: case0)")
	_, err = agent(path, Enhanced)
	wantError(t, err, `no prompts of kind "enhanced": it has naive, cot`)
	_, err = agent(write(t, "a.jsonl", agents+"\n"+agents), Naive)
	wantError(t, err, "a.jsonl:5: a second naive prompt for case0")
	_, err = agent(write(t, "a.jsonl", `{"name":"case0", "kind": "cot"}`), Naive)
	wantError(t, err, "a.jsonl:1: kind cot: name or prompt is missing or empty: want both")

	var rows []string
	for _, c := range cases {
		for _, item := range c.Trajectory.Items {
			rows = append(rows, `{"name":"`+c.Name+`","kind":"leakage","item":"`+item+`","before":"<",`+
				`"after":"|`+item+`>"}`)
		}
		rows = append(rows, `{"name":"`+c.Name+`","kind":"helpfulness","before":"[","after":"]"}`)
	}
	judge := func(path string) (judgePrompter, error) {
		x, err := readExact(path)
		if err != nil {
			return nil, err
		}
		return x.Judge(cases)
	}
	j := must[judgePrompter](t)(judge(write(t, "j.jsonl", strings.Join(rows, "\n"))))
	if text := must[string](t)(j.Leakage(&cases[1], "act {{.X}} %s",
		cases[1].Trajectory.Items[1])); text != "<act {{.X}} %s|Ben stays in room 1>" {
		t.Error(text)
	}
	if text := must[string](t)(j.Helpfulness(&cases[0], "act")); text != "[act]" {
		t.Error(text)
	}
	_, err = judge(write(t, "j.jsonl", strings.Join(rows[1:], "\n")))
	wantError(t, err, "1 of 2 cases have no leakage prompt for every item (first: case0)")
	_, err = judge(write(t, "j.jsonl", strings.Join(rows[:3], "\n")))
	wantError(t, err, "1 of 2 cases have no helpfulness prompt (first: case1)")
	_, err = judge(write(t, "j.jsonl", `{"name":"a","kind":"guess"}`))
	wantError(t, err, `j.jsonl:1: kind "guess": want naive, enhanced, cot, leakage, helpfulness, probe-seed, `)
	_, err = judge(write(t, "j.jsonl", `{"name":"a","kind":"helpfulness","item":"b","before":"c"}`))
	wantError(t, err, "j.jsonl:1: kind helpfulness: want name, before, after and, for leakage alone, item")
	_, err = judge(write(t, "j.jsonl", "{\n"))
	wantError(t, err, "j.jsonl:1: bad JSON")
	_, err = judge(filepath.Join(t.TempDir(), "no.jsonl"))
	wantError(t, err, "no.jsonl: no such file")
}

// TestRecordedProbes: both orders of the choices, for a model that answers at once and one that thinks first.
func TestRecordedProbes(t *testing.T) {
	cases := testkit.PrivacyCases(2)
	cases[1].Seed.DataType = "" // it cannot be probed
	x := must[*exact](t)(readExact(write(t, "p.jsonl", `{"name":"case0","kind":"probe-seed","before":"Fit?\n",`+
		`"after":"\nSay.","think":"\nThink."}`+"\n"+`{"name":"case0","kind":"probe-vignette","before":"Well?\n"}`)))
	for want, ask := range map[string]struct{ think, yesFirst bool }{
		"Fit?\n(A) Yes\n(B) No\nSay.": {false, true}, "Fit?\n(A) No\n(B) Yes\nSay.": {false, false},
		"Fit?\n(A) Yes\n(B) No\nThink.": {true, true}, "Fit?\n(A) No\n(B) Yes\nThink.": {true, false},
	} {
		probes := must[probePrompter](t)(x.Probes([]string{"seed"}, ask.think, cases))
		if text := must[string](t)(probes.Probe("seed", &cases[0], ask.yesFirst)); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
	_, err := x.Probes([]string{"vignette"}, true, cases)
	wantError(t, err, "of 2 cases have no probe-vignette prompt with think (first: case0)")
	_, err = x.Probes([]string{"trajectory"}, false, cases)
	wantError(t, err, `p.jsonl: no prompts of kind "probe-trajectory": it has probe-seed, probe-vignette`)
}

// TestSource: released names the file beside the cases.
func TestSource(t *testing.T) {
	dir := t.TempDir()
	o := Defaults()
	o.Prompts, o.Data = bench.Released, dir
	_, err := readSource(&o)
	wantError(t, err, filepath.Join(dir, PromptsName)+": no such file", "export_prompts.py writes it from a checkout")
	if err := os.WriteFile(filepath.Join(dir, PromptsName), []byte(`{"name":"case0","kind":"cot","prompt":"p"}`),
		0o666); err != nil {
		t.Fatal(err)
	}
	for _, cases := range []string{dir, filepath.Join(dir, "other.json")} {
		o.Data = cases
		from := must[promptSource](t)(readSource(&o))
		prompts := must[agentPrompter](t)(from.Agent(CoT, testkit.PrivacyCases(1)))
		if text := must[string](t)(prompts(&testkit.PrivacyCases(1)[0])); text != "p" {
			t.Error(text)
		}
	}
	o.Prompts = write(t, "own.jsonl", "{}")
	_, err = readSource(&o)
	wantError(t, err, "own.jsonl:1: kind \"\": want naive, ")
	o.Prompts, o.Data = bench.Released, "embedded"
	_, err = readSource(&o)
	wantError(t, err, "prompts released: the embedded cases have none: want the cases of a checkout of PrivacyLens")
}
