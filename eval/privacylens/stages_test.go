package privacylens

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/journal"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/metered"
)

// leakyReply acts in every case: it mentions the flu in cases with an even number, says nothing with an action in it in
// case 3.
func leakyReply(prompt string) (string, error) {
	for i := 9; i >= 0; i-- {
		if !strings.Contains(prompt, fmt.Sprintf("number %d.", i)) {
			continue
		}
		switch {
		case i == 3:
			return "I would rather not.", nil
		case i%2 == 0:
			return fmt.Sprintf("Thought: n\nAction: GmailSendEmail\nAction Input: {\"body\": \"%d: Ben has caught a "+
				"bad flu\"}\nObservation: {}", i), nil
		}
		return fmt.Sprintf("Action: GmailSendEmail\nAction Input: {\"body\": \"%d: All is well\"}", i), nil
	}
	return "", errors.New("whose prompt is that?")
}

// carefulReply judges by the flu, and finds actions with an even number excellent, others poor.
func carefulReply(prompt string) (string, error) {
	action := prompt[strings.Index(prompt, "GmailSendEmail"):]
	flu := strings.Contains(action[:strings.Index(action, "}")], "flu")
	switch {
	case strings.Contains(prompt, "Excellent (3)") && flu:
		return "Fine.\nAnswer: Excellent (3)", nil
	case strings.Contains(prompt, "Excellent (3)"):
		return "Hm.\nAnswer: Poor (0)", nil
	case flu && strings.Contains(prompt, "\n\nBen has caught"):
		return "It says so.\nAnswer: Yes", nil
	}
	return "It does not.\nAnswer: No", nil
}

func someActions(t *testing.T, say agent) actionOptions {
	t.Helper()
	prompts := must[agentPrompter](t)(must[*Prompts](t)(loadPrompts("")).Agent(Naive, nil))
	return actionOptions{Prompts: prompts,
		Asking: bench.Asking{Chat: say, Settings: map[string]string{"model": "leaky"}, Parallel: 3, Batch: 2}}
}

func someJudge(t *testing.T, a judgeModel) judgeOptions {
	t.Helper()
	return judgeOptions{Judge: modelJudge{a, must[*Prompts](t)(loadPrompts(""))},
		Settings: map[string]string{"judge": "careful"}, Parallel: 4}
}

// Six cases: 0, 2 and 4 leak one item of two and are excellent, 1 and 5 are poor, 3 has no action.
func TestWholeRun(t *testing.T) {
	cases := testkit.PrivacyCases(6)
	r := openRun(t, filepath.Join(t.TempDir(), "run"), cases)
	var last bench.Progress
	o := someActions(t, leakyReply)
	o.Tick = func(p bench.Progress) { last = p }
	if err := r.Actions(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if last != (bench.Progress{Done: 6, Total: 6, Calls: 6, TotalCalls: 6}) {
		t.Errorf("%+v", last)
	}
	a := &asker{say: carefulReply}
	j := someJudge(t, a)
	j.Tick = func(p bench.Progress) { last = p }
	if err := r.Judge(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if last != (bench.Progress{Done: 6, Total: 6, Calls: 15, TotalCalls: 15, Found: 3}) || a.calls() != 15 ||
		len(a.asked) != 15 {
		t.Errorf("%+v, %d calls", last, a.calls())
	}
	summary, results, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	checkSummary(t, summary)
	if c := results[3]; !c.NoAction || c.Leaks || *c.Helpfulness != 0 || c.Action != "" || len(c.Items) != 2 ||
		c.AgentPrompt == "" {
		t.Errorf("%+v", c)
	}
	if c := results[2]; c.Action != "GmailSendEmail\nAction Input: {\"body\": \"2: Ben has caught a bad flu\"}" ||
		c.Reason != rollout.EOS ||
		!c.Items[0].Leaks || c.Items[1].Leaks || c.Items[0].Prompt == "" || c.Items[0].Prompt == c.Items[1].Prompt ||
		c.Items[0].Reply != "It says so.\nAnswer: Yes" {
		t.Errorf("%+v", c)
	}
	if s := results[2].Items[0].Spans; len(s) != 1 || results[2].Action[s[0].From:s[0].To] != "Ben has caught a bad "+
		"flu" {
		t.Errorf("%+v", s)
	}
	again := must[[]CaseResult](t)(readResults(r.Dir))
	if !reflect.DeepEqual(again, results) {
		t.Errorf("%+v\n%+v", again, results)
	}
	checkReplay(t, r, summary)
}

func checkSummary(t *testing.T, s Summary) {
	t.Helper()
	for name, c := range map[string]struct {
		got        eval.Share
		count, all int
	}{
		"leakage": {s.All.Leakage, 3, 6}, "adjusted": {s.All.Adjusted, 3, 3}, "helpful": {s.All.Helpful, 3, 6},
		"items": {s.All.Items, 3, 12}, "no action": {s.All.NoAction, 1, 6},
		"book": {s.Sources["book"].Leakage, 3, 3}, "law": {s.Sources["law"].Leakage, 0, 3},
		"law adjusted": {s.Sources["law"].Adjusted, 0, 0},
		"principle":    {s.Principles["send an email"].Leakage, 3, 6},
		"tool":         {s.Tools["GmailSendEmail"].Leakage, 3, 6},
	} {
		if c.got.Count != c.count || c.got.Total != c.all {
			t.Errorf("%s: %v, want %d/%d", name, c.got, c.count, c.all)
		}
	}
	if m := s.All.Helpfulness; m.Sum != 9 || m.Total != 6 || *m.Value != 1.5 || *m.Low >= 1.5 || *m.High <= 1.5 {
		t.Errorf("%v", m)
	}
	if text := s.Sources["law"].Adjusted.String(); text != "not available (0 cases)" {
		t.Error(text)
	}
	if s.All.Verdicts != 15 || s.All.Unparsed != 0 || len(s.Warnings) != 1 ||
		s.Settings["judge"]["judge"] != "careful" {
		t.Errorf("%+v", s)
	}
}

// TestThoughts: under the naive prompt three of six cases think of the flu and do not tell it, one thinks of nothing,
// and two never end their thoughts: of a model that opens its thoughts itself, and of one whose chat template does.
func TestThoughts(t *testing.T) {
	const careful = `Action: GmailSendEmail, {"body": "All is well"}`
	for opened, start := range map[bool]string{false: "<think>", true: ""} {
		o := someActions(t, func(prompt string) (string, error) {
			text, err := leakyReply(prompt)
			switch {
			case strings.Contains(prompt, "number 1."):
				return start + "no</think>" + careful, err
			case strings.Contains(text, "flu"):
				return start + text + "</think>" + careful, err
			}
			return start + "Action: GmailSendEmail {} hm", err
		})
		o.Opened = func(rollout.Conversation) (bool, error) { return opened, nil }
		for keep, want := range map[bool]string{false: "0 leak, 2 without action, 2 unclosed",
			true: "3 leak, 0 without action, 0 unclosed"} {
			o.Reading = reading{Keep: keep}
			r := openRun(t, t.TempDir(), testkit.PrivacyCases(6))
			if err := r.Actions(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if err := r.Judge(t.Context(), someJudge(t, &asker{say: carefulReply})); err != nil {
				t.Fatal(err)
			}
			s, results, err := r.Report()
			if got := fmt.Sprintf("%d leak, %d without action, %d unclosed", s.All.Leakage.Count, s.All.NoAction.Count,
				s.All.Unclosed); err != nil || got != want || results[3].Unclosed == keep {
				t.Errorf("keep %v: %s, %v", keep, got, err)
			}
			var b strings.Builder
			if err := s.Write(&b); err != nil || keep == strings.Contains(b.String(),
				"warning: 2 of 6 outputs never close their think block: they count as no action; allow more tokens") ||
				keep == strings.Contains(read(t, r.Path(PageName)), "outputs never close their think block") {
				t.Errorf("%v: %s", err, b.String())
			}
		}
	}
}

// checkReplay runs the recorded verdicts of a run again, with its actions and without: the counts must be the same.
func checkReplay(t *testing.T, r *store, want Summary) {
	t.Helper()
	replay := readReplay(t, r.Path(verdictsFile), r.Path(helpfulnessFile), r.Cases)
	for _, with := range []string{actionsFile, actionsName, ""} {
		again := openRun(t, t.TempDir(), r.Cases)
		if with != "" {
			if err := again.Import(must[map[string]string](t)(lens.ReadActions(r.Path(with), r.Cases)),
				nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := again.Judge(t.Context(), judgeOptions{Judge: replay}); err != nil {
			t.Fatal(err)
		}
		got, _, err := again.Report()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.All.Leakage, want.All.Leakage) ||
			!reflect.DeepEqual(got.All.Adjusted, want.All.Adjusted) ||
			!reflect.DeepEqual(got.All.Helpfulness, want.All.Helpfulness) ||
			!reflect.DeepEqual(got.All.Items, want.All.Items) {
			t.Errorf("with %q: %+v, want %+v", with, got.All, want.All)
		}
		if with != "" && got.All.NoAction.Count != want.All.NoAction.Count ||
			with == "" && got.All.NoAction.Total != 0 {
			t.Errorf("with %q: %v", with, got.All.NoAction)
		}
		for _, name := range []string{verdictsFile, helpfulnessFile} {
			if a, b := read(t, r.Path(name)), read(t, again.Path(name)); a != b {
				t.Errorf("%s:\n%s\n%s", name, a, b)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The stages stop at every call in turn and go on: nothing is asked twice, and the files end up the same.
func TestStagesGoOn(t *testing.T) {
	cases := testkit.PrivacyCases(6)
	whole := openRun(t, t.TempDir(), cases)
	finish(t, whole)
	for at := 1; at <= 22; at++ {
		r, n := openRun(t, t.TempDir(), cases), 0
		broken := errors.New("the plug is pulled")
		asked := map[string]int{}
		meter := func(prompt string, say func(string) (string, error)) (string, error) {
			if n++; n == at {
				return "", broken
			}
			asked[prompt]++
			return say(prompt)
		}
		for try := 0; ; try++ {
			o := someActions(t, func(p string) (string, error) { return meter(p, leakyReply) })
			o.Parallel, o.Batch = 1, 1
			err := r.Actions(t.Context(), o)
			if err == nil {
				j := someJudge(t, &asker{say: func(p string) (string, error) { return meter(p, carefulReply) }})
				j.Parallel = 1
				err = r.Judge(t.Context(), j)
			}
			if err == nil {
				break
			}
			if err != broken || try > 0 {
				t.Fatal(err)
			}
			tear(t, r.Path(actionsName))
			tear(t, r.Path(verdictsName))
		}
		for p, k := range asked {
			if k != 1 {
				t.Errorf("stopped at %d: asked %d times: %s", at, k, p)
			}
		}
		if _, _, err := r.Report(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{SummaryName, CasesName, verdictsFile, helpfulnessFile, actionsFile} {
			if read(t, r.Path(name)) != read(t, whole.Path(name)) {
				t.Errorf("stopped at %d: %s differs:\n%s\n%s", at, name, read(t, r.Path(name)),
					read(t, whole.Path(name)))
			}
		}
	}
}

// tear leaves half a row at the end of a file, if it is there, as a process leaves it that is killed.
func tear(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"name":"case5","final_act`); err != nil {
		t.Fatal(err)
	}
}

func finish(t *testing.T, r *store) Summary {
	t.Helper()
	if err := r.Actions(t.Context(), someActions(t, leakyReply)); err != nil {
		t.Fatal(err)
	}
	if err := r.Judge(t.Context(), someJudge(t, &asker{say: carefulReply})); err != nil {
		t.Fatal(err)
	}
	summary, _, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	return summary
}

func TestStagesStop(t *testing.T) {
	r := openRun(t, t.TempDir(), testkit.PrivacyCases(6))
	ctx, cancel := context.WithCancelCause(t.Context())
	o := someActions(t, leakyReply)
	o.Parallel, o.Batch = 1, 1
	o.Tick = func(p bench.Progress) {
		if p.Done == 2 {
			cancel(errors.New("enough"))
		}
	}
	if err := r.Actions(ctx, o); err == nil || err.Error() != "enough" {
		t.Error(err)
	}
	_, _, err := r.Report()
	wantError(t, err, "cases have no action yet")
	finish(t, r)
}

func TestReportOfUnfinishedRuns(t *testing.T) {
	r := openRun(t, t.TempDir(), testkit.PrivacyCases(2))
	_, _, err := r.Report()
	wantError(t, err, "2 of 2 cases still lack verdicts (first: case0)")
	err = r.Judge(t.Context(), someJudge(t, &asker{say: carefulReply}))
	wantError(t, err, "2 of 2 cases have no action yet: the stage actions adds them (first: case0)")
	if err := r.Actions(t.Context(), someActions(t, leakyReply)); err != nil {
		t.Fatal(err)
	}
	_, _, err = r.Report()
	wantError(t, err, "2 of 2 cases still lack verdicts")
}

func TestSettingsStay(t *testing.T) {
	r := openRun(t, t.TempDir(), testkit.PrivacyCases(6))
	finish(t, r)
	o := someActions(t, leakyReply)
	o.Settings = map[string]string{"model": "leaky", "temperature": "1"}
	wantError(t, r.Actions(t.Context(), o), `stage actions was begun with temperature "",`+
		` now it is "1": continue with the same, or name another --out DIR`)
	other := openRun(t, r.Dir, testkit.PrivacyCases(5))
	wantError(t, other.Actions(t.Context(), someActions(t, leakyReply)),
		`stage actions was begun with cases "6, sha256 `)
	fresh := openRun(t, t.TempDir(), testkit.PrivacyCases(6)) // nothing found yet: other settings are taken
	broken := someActions(t, func(string) (string, error) { return "", errors.New("no such host") })
	broken.Settings = map[string]string{"base_url": "http://locahost"}
	wantError(t, fresh.Actions(t.Context(), broken), "no such host")
	if err := fresh.Actions(t.Context(), someActions(t, leakyReply)); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(r.Path(bench.SettingsName), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.Actions(t.Context(), o), "settings.json: damaged: want")
}

// A judge that gives no verdict is asked once more; if it gives none ever, the stage ends.
func TestJudgeWithoutVerdicts(t *testing.T) {
	cases := testkit.PrivacyCases(6)
	silent := &asker{say: func(string) (string, error) { return "Who knows\nwhat anybody can say?", nil }}
	r := openRun(t, t.TempDir(), cases)
	if err := r.Actions(t.Context(), someActions(t, leakyReply)); err != nil {
		t.Fatal(err)
	}
	o := someJudge(t, silent)
	o.Parallel = 1
	wantError(t, r.Judge(t.Context(), o), `the judge gives no verdicts: none of 10 replies has a line such as `+
		`"Answer: Yes" (the last one: "Who knows what anybody can say?")`)
	if silent.calls() != 20 {
		t.Errorf("%d calls, want 10 and 10 again", silent.calls())
	}
	wantError(t, r.Judge(t.Context(), o), "the judge gives no verdicts")
	if silent.calls() != 20 {
		t.Errorf("%d calls: the judge was asked again", silent.calls())
	}
	o.AllowUnparsed = true
	if err := r.Judge(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, results, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	if s.All.Unparsed != 15 || s.All.Verdicts != 15 || s.All.Leakage.Count != 0 || len(s.Warnings) != 2 ||
		results[0].UnparsedSeen != 3 || results[0].Items[0].Parsed {
		t.Errorf("%+v", s)
	}
	few := openRun(t, t.TempDir(), cases[:1])
	if err := few.Actions(t.Context(), someActions(t, leakyReply)); err != nil {
		t.Fatal(err)
	}
	wantError(t, few.Judge(t.Context(), someJudge(t, silent)), "none of 3 replies")
}

func TestSecondReplyCounts(t *testing.T) {
	c := testkit.PrivacyCases(1)[0]
	first, second := "It is hard to say. Yes and no", "Answer: No"
	a := &asker{say: func(prompt string) (string, error) {
		if strings.HasSuffix(prompt, reminder) {
			return second, nil
		}
		return first, nil
	}}
	j := modelJudge{a, must[*Prompts](t)(loadPrompts(""))}
	first = "That is hard: Yes in part, I think"
	if v := must[Verdict](t)(j.Leakage(t.Context(), &c, "x", 0)); v.Leaks || !v.Parsed || v.Tries != 2 ||
		v.Reply != second {
		t.Errorf("%+v", v)
	}
	second = "Cannot say"
	if v := must[Verdict](t)(j.Leakage(t.Context(), &c, "x", 0)); !v.Leaks || v.Parsed || v.Tries != 2 ||
		v.Reply != first {
		t.Errorf("%+v", v)
	}
}

func TestPromptsThatDoNotFit(t *testing.T) {
	r := openRun(t, t.TempDir(), testkit.PrivacyCases(4))
	o := someActions(t, leakyReply)
	o.Fits = func(c rollout.Conversation) (bool, error) {
		return !strings.Contains(c.Messages[0].Content, "number 0."), nil
	}
	if err := r.Actions(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := r.Judge(t.Context(), someJudge(t, &asker{say: carefulReply})); err != nil {
		t.Fatal(err)
	}
	s, _, err := r.Report()
	if err != nil || s.All.TooLong != 1 || s.All.NoAction.Count != 2 || s.All.Leakage.Count != 1 ||
		s.All.Leakage.Total != 4 {
		t.Errorf("%v, %+v", err, s.All)
	}
}

func TestKeywordRun(t *testing.T) {
	cases := testkit.PrivacyCases(6)
	r := openRun(t, t.TempDir(), cases)
	if err := r.Actions(t.Context(), someActions(t, leakyReply)); err != nil {
		t.Fatal(err)
	}
	if err := r.Judge(t.Context(), judgeOptions{Judge: keywordJudge{}, Parallel: 2}); err != nil {
		t.Fatal(err)
	}
	s, _, err := r.Report()
	if err != nil || s.All.Leakage.Count != 3 || s.All.Adjusted.Total != 0 || s.All.Verdicts != 10 ||
		s.All.Helpfulness.String() != "not available (0 cases)" || s.All.NoAction.Count != 1 {
		t.Errorf("%v, %+v", err, s.All)
	}
	if _, err := os.Stat(r.Path(helpfulnessFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s of a judge that does not judge it", helpfulnessFile)
	}
}

func TestReplayMustAgree(t *testing.T) {
	cases := testkit.PrivacyCases(4)
	r := openRun(t, t.TempDir(), cases)
	if err := r.Import(map[string]string{"case0": "Action: x", "case1": "", "case2": "no", "case3": "Action: y"},
		nil); err != nil {
		t.Fatal(err)
	}
	replay := &replay{Verdicts: map[string]lens.Verdict{}}
	wantError(t, r.Judge(t.Context(), judgeOptions{Judge: replay}),
		"recorded verdicts: 4 of 4 cases have no verdict (first: case0)")
	for _, c := range cases {
		replay.Verdicts[c.Name] = lens.Verdict{Leaks: true,
			Judgments: []lens.Judgment{{Item: c.Trajectory.Items[0], Leaks: true}, {Item: c.Trajectory.Items[1]}}}
	}
	wantError(t, r.Judge(t.Context(), judgeOptions{Judge: replay}),
		`case1: its output has no "Action:", but the recorded verdicts say that it leaks or helps`)
	wantError(t, r.Import(map[string]string{"case0": "Action: z", "case1": "", "case2": "no", "case3": "Action: y"},
		nil), "case0 has another action than the one recorded")
	wantError(t, r.Import(map[string]string{"case0": "Action: z"}, nil),
		"recorded actions: 3 of 4 cases have no action (first: case1)")
	if kept := withActions(cases, map[string]string{"case2": ""}); len(kept) != 1 || kept[0].Name != "case2" {
		t.Error(kept)
	}
}

func TestProbing(t *testing.T) {
	cases := testkit.PrivacyCases(5)
	cases[4].Vignette.Story = ""
	r := openRun(t, t.TempDir(), cases)
	alwaysB := agent(func(string) (string, error) { return "(B)", nil })
	o := probeOptions{Prompts: probeTemplates{must[*Prompts](t)(loadPrompts("")), false},
		Asking: bench.Asking{Chat: alwaysB, Seed: 3, Parallel: 2, Batch: 3}}
	bad := o
	bad.Levels = []string{"seed", "plot"}
	wantError(t, r.Probe(t.Context(), bad), `level "plot": want seed, vignette, trajectory, trajectory-enhanced`)
	if err := r.Probe(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Chat = agent(func(string) (string, error) { return "", errors.New("asked again") })
	if err := r.Probe(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, _, err := r.Report()
	if err != nil || len(s.Probing) != 4 {
		t.Fatalf("%v, %+v", err, s.Probing)
	}
	for i, n := range []int{5, 4, 5, 5} {
		p := s.Probing[i]
		if p.Level != Levels[i] || p.Cases != n || p.YesFirst.Count != n || p.NoFirst.Count != 0 ||
			p.NoFirst.Total != n || p.Both.Count != 0 || p.Both.Total != n || p.Shuffled.Total != n ||
			p.Unparsed != 0 || p.Benchmark != p.YesFirst {
			t.Errorf("%+v", p)
		}
	}
	drawn := s.Probing[0].Shuffled.Count + s.Probing[1].Shuffled.Count + s.Probing[2].Shuffled.Count
	if drawn == 0 || drawn == 14 {
		t.Errorf("%d of 14 questions are drawn with Yes first", drawn)
	}
}

// TestThinkProbes: a model asked to think first is given the beginning of its thoughts, and its choice is in the answer
// block. Three of five choose (B), one (A), one never ends its thoughts, where the benchmark's script reads a B.
func TestThinkProbes(t *testing.T) {
	replies := []string{"A is Yes</think><answer>(B)</answer>", "hm</think>\n(B), not <answer>A</answer>",
		"(B)</think><answer>\nB_ or B\n</answer>", "so <answer>(B)</answer>", "(B), it seems"}
	r := openRun(t, t.TempDir(), testkit.PrivacyCases(len(replies)))
	o := probeOptions{Prompts: probeTemplates{must[*Prompts](t)(loadPrompts("")), true},
		Reading: reading{Answers: true}, Levels: []string{"vignette"}, Prefill: ci.ThinkPrefill,
		Asking: bench.Asking{Settings: map[string]string{"format": formatThink},
			Opened: func(talk rollout.Conversation) (bool, error) { return talk.Prefill != "", nil }}}
	asked := 0
	o.Chat = agent(func(prompt string) (string, error) {
		if !strings.Contains(prompt, "inside <answer> and </answer>.") || strings.Contains(prompt, "nothing else.") {
			t.Error(prompt)
		}
		asked++
		return replies[(asked-1)/2], nil // both orders of a case, then those of the next
	})
	if err := r.Probe(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, _, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	p := s.Probing[0]
	if p.YesFirst.Count != 3 || p.YesFirst.Total != 5 || p.NoFirst.Count != 1 || p.Benchmark.Count != 4 ||
		p.Unparsed != 2 {
		t.Errorf("%+v", p)
	}
	if want := "2 of 10 replies to probes never close their think block: they count as wrong; allow more tokens " +
		"(probe.max_new_tokens)"; !slices.Contains(s.Warnings, want) {
		t.Error(s.Warnings)
	}
}

// With a judge that answers in 200 ms, as many questions as the benchmark has take little longer than they must. The
// clock is that of a bubble: nobody waits.
func TestJudgeKeepsBusy(t *testing.T) {
	cases := testkit.PrivacyCases(493)
	for n := range 1487 - 2*len(cases) { // items of the benchmark
		c := &cases[n%len(cases)]
		c.Trajectory.Items = append(c.Trajectory.Items, fmt.Sprintf("Ben has %d cats", n))
	}
	actions := map[string]string{}
	for i := range cases {
		actions[cases[i].Name] = "Action: GmailSendEmail\nAction Input: {}"
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := openRun(t, dir, cases)
		if err := r.Import(actions, nil); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		o := someJudge(t, slow{})
		o.Parallel = 32
		var last bench.Progress
		o.Tick = func(p bench.Progress) { last = p }
		if err := r.Judge(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if took, ideal := time.Since(begun), 1980*200*time.Millisecond/32; took > ideal*115/100 || last.Calls != 1980 ||
			last.Done != 493 {
			t.Errorf("%v, want %v and little more; %+v", took, ideal, last)
		}
	})
}

// slow answers after 200 ms.
type slow struct{}

func (slow) Chat(context.Context, []data.Message) (metered.Reply, error) {
	time.Sleep(200 * time.Millisecond)
	return metered.Reply{Text: "Answer: No, Good (2)"}, nil
}

func TestOneProcessAtATime(t *testing.T) {
	r := openRun(t, t.TempDir(), testkit.PrivacyCases(1))
	j, _, err := journal.Open[ActionRow](r.Path(actionsName))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := journal.Open[ActionRow](r.Path(actionsName)); runtime.GOOS == "linux" {
		wantError(t, err, "in use by another process: wait for the other process to end")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestJournal(t *testing.T) {
	for content, want := range map[string]struct {
		rows int
		left string
	}{
		"":                                   {0, ""},
		"{\"name\":\"a\"}\n":                 {1, "{\"name\":\"a\"}\n"},
		"{\"name\":\"a\"}\n{\"name\":\"b\"}": {1, "{\"name\":\"a\"}\n"}, // whole, but for its line feed
		"{\"name\":\"a\"}\n{\"na":            {1, "{\"name\":\"a\"}\n"},
		"{\"na":                              {0, ""},
	} {
		path := write(t, "j.jsonl", content)
		j, rows, err := journal.Open[ActionRow](path)
		if err != nil || len(rows) != want.rows {
			t.Errorf("%q: %d rows, %v", content, len(rows), err)
			continue
		}
		if err := errors.Join(j.Add(ActionRow{Name: "<c>"}), j.Close()); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != want.left+"{\"name\":\"<c>\",\"final_action\":\"\"}\n" {
			t.Errorf("%q: %q", content, got)
		}
	}
	_, _, err := journal.Open[ActionRow](write(t, "j.jsonl", "{\"name\":\"a\"}\n{oops}\n{\"name\":\"b\"}\n"))
	wantError(t, err, "j.jsonl:2: bad JSON")
	r := openRun(t, t.TempDir(), testkit.PrivacyCases(1))
	for name, text := range map[string]string{actionsName: "{\"name\":\"a\"}\n{\"name\":\"a\"}\n",
		verdictsName: "{\"name\":\"a\",\"kind\":\"guess\"}\n"} {
		if err := os.WriteFile(r.Path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, _, err := r.Report()
		wantError(t, err, name+": row ")
		os.Remove(r.Path(name))
	}
}

func FuzzJournal(f *testing.F) {
	f.Add("{\"name\":\"a\",\"kind\":\"leakage\",\"item\":\"x\",\"leaks\":true,\"action_sha256\":\"\"}\n" +
		"{\"name\":\"a\",\"kind\":\"helpfulness\",\"score\":2}\n")
	f.Fuzz(func(t *testing.T, content string) {
		rows, end, err := data.ReadJournal[verdictRow]("j", strings.NewReader(content))
		if end > int64(len(content)) || err != nil && (!strings.HasPrefix(err.Error(), "j:") ||
			strings.Contains(err.Error(), "\n")) {
			t.Fatal(end, err)
		}
		if err == nil {
			again, behind, err := data.ReadJournal[verdictRow]("j", strings.NewReader(content[:end]))
			if err != nil || behind != end || len(again) != len(rows) {
				t.Fatal(behind, end, err)
			}
		}
		index(nil, rows)
	})
}
