package privacylens

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/eval/bench"
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

func checkCase(t *testing.T, c *Case) {
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
	p := ownPrompts(t)
	for _, kind := range Kinds {
		text := must[string](t)(p.write(kind, c, filling{}))
		wantParts(t, kind, text, "\n"+c.Trajectory.FinalAction+": ", c.Trajectory.Instruction,
			strings.TrimSpace(c.Trajectory.Past), c.Trajectory.FinalAction, c.Trajectory.UserName)
	}
	for _, level := range Levels {
		yes := must[string](t)(p.write(probeKind+level, c, filling{YesFirst: true}))
		no := must[string](t)(p.write(probeKind+level, c, filling{}))
		wantParts(t, level, yes, "(A) Yes\n(B) No\n")
		wantParts(t, level, no, "(A) No\n(B) Yes\n")
		if strings.Replace(yes, "(A) Yes\n(B) No\n", "(A) No\n(B) Yes\n", 1) != no {
			t.Errorf("%s, %s: the two orders differ in more than the order", c.Name, level)
		}
	}
	const action = "Do this: {}"
	for _, item := range c.Trajectory.Items {
		text := must[string](t)(p.write(leakage, c, filling{Action: action, Item: item}))
		wantParts(t, "leakage", text, action, item, "Answer: Yes")
	}
	text := must[string](t)(p.write(helpfulness, c, filling{Action: action}))
	wantParts(t, "helpfulness", text, action, c.Trajectory.Instruction, "Answer: ")
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
	c := privacyCases(1)[0]
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

func TestAgentPrompt(t *testing.T) {
	c := privacyCases(1)[0]
	text := must[string](t)(ownPrompts(t).write(Naive, &c, filling{}))
	wantParts(t, "naive", text, "### Gmail\n", "GmailSendEmail: Sends an email, now or later.\n  Arguments:\n    to "+
		"(string, required): addresses", "  Result:\n    success (boolean): whether",
		"Ann (ann@example.org)", "Write to Cay, number 0.")
	if strings.Contains(text, "privacy") || strings.Contains(text, "<no value>") || strings.Contains(text, "\n\n\n") {
		t.Error(text)
	}
}

func TestRecordedPrompts(t *testing.T) {
	cases := privacyCases(2)
	agents := `{"name":"case0","kind":"naive","prompt":"p0"}` + "\n" + `{"name":"case1","kind":"naive","prompt":"p1"}` +
		"\n\n" + `{"name":"other","kind":"cot","prompt":"p2"}`
	path := write(t, "a.jsonl", agents)
	agent := func(path, kind string) (*exact, error) {
		x, err := readExact(path)
		if err == nil {
			err = x.check(kind, false, cases)
		}
		return x, err
	}
	a := must[*exact](t)(agent(path, Naive))
	if text := must[string](t)(a.write(Naive, &cases[1], filling{})); text != "p1" {
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
	judge := func(path string) (*exact, error) {
		x, err := readExact(path)
		if err == nil {
			err = cmp.Or(x.check(helpfulness, false, cases), x.check(leakage, false, cases))
		}
		return x, err
	}
	j := must[*exact](t)(judge(write(t, "j.jsonl", strings.Join(rows, "\n"))))
	if text := must[string](t)(j.write(leakage, &cases[1], filling{Action: "act {{.X}} %s",
		Item: cases[1].Trajectory.Items[1]})); text != "<act {{.X}} %s|Ben stays in room 1>" {
		t.Error(text)
	}
	if text := must[string](t)(j.write(helpfulness, &cases[0], filling{Action: "act"})); text != "[act]" {
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
	cases := privacyCases(2)
	cases[1].Seed.DataType = "" // it cannot be probed
	x := must[*exact](t)(readExact(write(t, "p.jsonl", `{"name":"case0","kind":"probe-seed","before":"Fit?\n",`+
		`"after":"\nSay.","think":"\nThink."}`+"\n"+`{"name":"case0","kind":"probe-vignette","before":"Well?\n"}`)))
	for want, ask := range map[string]struct{ think, yesFirst bool }{
		"Fit?\n(A) Yes\n(B) No\nSay.": {false, true}, "Fit?\n(A) No\n(B) Yes\nSay.": {false, false},
		"Fit?\n(A) Yes\n(B) No\nThink.": {true, true}, "Fit?\n(A) No\n(B) Yes\nThink.": {true, false},
	} {
		if err := x.check("probe-seed", ask.think, cases); err != nil {
			t.Error(err)
		}
		with := filling{YesFirst: ask.yesFirst, Think: ask.think}
		if text := must[string](t)(x.write("probe-seed", &cases[0], with)); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
	wantError(t, x.check("probe-vignette", true, cases), "of 2 cases have no probe-vignette prompt with think (first: case0)")
	wantError(t, x.check("probe-trajectory", false, cases), `p.jsonl: no prompts of kind "probe-trajectory": it has probe-seed, probe-vignette`)
}

// TestSource: released names the file beside the cases.
func TestSource(t *testing.T) {
	dir := t.TempDir()
	o := Defaults()
	o.Prompts, o.Data = bench.Released, dir
	_, err := readPrompts(&o)
	wantError(t, err, filepath.Join(dir, PromptsName)+": no such file", "export_prompts.py writes it from a checkout")
	if err := os.WriteFile(filepath.Join(dir, PromptsName), []byte(`{"name":"case0","kind":"cot","prompt":"p"}`),
		0o666); err != nil {
		t.Fatal(err)
	}
	for _, cases := range []string{dir, filepath.Join(dir, "other.json")} {
		o.Data = cases
		from := must[prompts](t)(readPrompts(&o))
		if text := must[string](t)(from.write(CoT, &privacyCases(1)[0], filling{})); text != "p" {
			t.Error(text)
		}
	}
	o.Prompts = write(t, "own.jsonl", "{}")
	_, err = readPrompts(&o)
	wantError(t, err, "own.jsonl:1: kind \"\": want naive, ")
	o.Prompts, o.Data = bench.Released, "embedded"
	_, err = readPrompts(&o)
	wantError(t, err, "prompts released: the embedded cases have none: want the cases of a checkout of PrivacyLens")
}
