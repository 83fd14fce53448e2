package privacylens

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// Every prompt of the real cases has what it is about.
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
	p := releasedPrompts(t)
	for _, kind := range Kinds {
		text := expect.Must(p.write(kind, c, filling{}))(t)
		wantParts(t, kind, text, c.Trajectory.Instruction,
			c.Trajectory.Past, c.Trajectory.FinalAction, c.Trajectory.UserName)
	}
	for _, level := range Levels {
		yes := expect.Must(p.write(probeKind+level, c, filling{YesFirst: true}))(t)
		no := expect.Must(p.write(probeKind+level, c, filling{}))(t)
		wantParts(t, level, yes, "(A) Yes\n(B) No\n")
		wantParts(t, level, no, "(A) No\n(B) Yes\n")
		if strings.Replace(yes, "(A) Yes\n(B) No\n", "(A) No\n(B) Yes\n", 1) != no {
			t.Errorf("%s, %s: the two orders differ in more than the order", c.Name, level)
		}
	}
	const action = "Do this: {}"
	for _, item := range c.Trajectory.Items {
		text := expect.Must(p.write(leakage, c, filling{Action: action, Item: item}))(t)
		wantParts(t, "leakage", text, action, item, "Answer: ${Yes/No}")
	}
	text := expect.Must(p.write(helpfulness, c, filling{Action: action}))(t)
	wantParts(t, "helpfulness", text, action, c.Trajectory.Instruction, "Answer: ")
}

func wantParts(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", what, part, text)
		}
	}
}

func TestAgentPrompts(t *testing.T) {
	c := privacyCases(1)[0]
	p := releasedPrompts(t)
	naive := expect.Must(p.write(Naive, &c, filling{}))(t)
	wantParts(t, Naive, naive, "<Gmail>: Tool for managing emails", "* GmailSendEmail: Send an email", "Ann",
		"Write to Cay, number 0.")
	frame, _, _ := strings.Cut(naive, "\n\nPlease output your **NEXT**")
	cot := expect.Must(p.write(CoT, &c, filling{}))(t)
	if !strings.HasPrefix(cot, frame) || !strings.HasSuffix(cot, "\n\n"+strings.TrimSpace(ci.CoT)) ||
		strings.Contains(cot, "directly start") {
		t.Error(cot)
	}
	c.Trajectory.Toolkits = []string{"Telegraph", "Gmail"}
	if text := expect.Must(p.write(Naive, &c, filling{}))(t); text != naive {
		t.Errorf("a toolkit that the benchmark does not describe: %s", text)
	}
}

// TestPromptsFolder: templates of a folder replace the templates of the same names, to the letter.
func TestPromptsFolder(t *testing.T) {
	c := &privacyCases(1)[0]
	o := Options{Prompts: filepath.Dir(write(t, "judge-leakage.tmpl", "{{.Item}} in {{.Action}}?\n"))}
	p := expect.Must(readPrompts(&o))(t)
	if text := expect.Must(p.write(leakage, c, filling{Action: "{{.X}}", Item: "i"}))(t); text != "i in {{.X}}?\n" {
		t.Error(text)
	}
	released := expect.Must(releasedPrompts(t).write(Naive, c, filling{}))(t)
	if text := expect.Must(p.write(Naive, c, filling{}))(t); text != released {
		t.Error(text)
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		_, err := readPrompts(&Options{Prompts: path})
		wantError(t, err, "prompts "+path, "want released, or a folder with templates such as agent-naive.tmpl")
	}
	_, err := readPrompts(&Options{Prompts: filepath.Dir(write(t, "agent-naive.tmpl", "{{"))})
	wantError(t, err, "agent-naive.tmpl:1: ")
}

// TestDiffers: published figures are beside a run with what is not as it was there.
func TestDiffers(t *testing.T) {
	settings := func(prompt, judge string) bench.Settings {
		return bench.Settings{bench.StageAnswers: {"prompt": prompt, "temperature": "0.7"},
			bench.StageJudge: {"model": judge}}
	}
	main := realCases(t, mainData)
	for _, c := range []struct {
		prompt, judge string
		change        func(o *Options)
		cases         []Case
		want          string
	}{
		{Naive, publishedJudge, func(*Options) {}, main, ""},
		{CIRL, publishedJudge, func(o *Options) { o.Think = bench.ThinkKeep }, main, ""},
		{CoT, "gpt-4o", func(o *Options) {}, main[1:], "prompt cot: the CI-CoT text of the paper's figure (CI-RL's release: " +
			"prompt ci-rl)\nthink strip: thoughts are dropped (CI-RL's script: keep)\njudge: gpt-4o (published: " +
			"gpt-4o-2024-11-20)\ncases: not those of PrivacyLens's main_data.json"},
		{Naive, "", func(o *Options) { o.Prompts, o.Judging = "mine", KindKeyword }, main, "prompts: with templates of mine " +
			"(published: the benchmark's and CI-RL's)\njudge: keywords (published: gpt-4o-2024-11-20)"},
	} {
		o := Benchmark.Defaults()
		o.Prompt = c.prompt
		c.change(&o)
		e := &evaluation{Options: &o, cases: c.cases}
		got := strings.Join(e.differs(&bench.Found{Settings: settings(c.prompt, c.judge)}), "\n")
		if got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}
