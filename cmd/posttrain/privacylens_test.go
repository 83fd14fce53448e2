package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit"
)

// plCases are n small cases whose prompts say their numbers, and nothing of the flu ahead of an action.
func plCases(n int) (cases []privacylens.Case) {
	if err := json.Unmarshal(testkit.PrivacyCases(n), &cases); err != nil {
		panic(err)
	}
	for i := range cases {
		cases[i].Trajectory.Instruction = fmt.Sprintf("Tell Cay news %d.", i)
		cases[i].Trajectory.Past = "Action: GmailReadEmail"
		cases[i].Seed.TransmissionPrinciple = "send an email"
	}
	return cases
}

// writeCases writes cases, and their actions as actions.csv.
func writeCases(t *testing.T, path string, cases []privacylens.Case, action func(i int) string) {
	t.Helper()
	var b strings.Builder
	out := csv.NewWriter(&b)
	_ = out.Write([]string{"name", "final_action"}) // a Builder takes everything
	for i, c := range cases {
		_ = out.Write([]string{c.Name, action(i)})
	}
	out.Flush()
	write(t, "actions.csv", b.String())
	text, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, string(text))
}

// workPL makes an empty folder with six cases the working directory, and recorded actions for them in both forms.
func workPL(t *testing.T) []privacylens.Case {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("OPENAI_API_KEY", "")
	cases := plCases(6)
	writeCases(t, "cases.json", cases, leakyAction)
	rows := ""
	for i, c := range cases {
		rows += jsonLine(map[string]any{"name": c.Name, "final_action": leakyAction(i)})
	}
	write(t, "actions.jsonl", rows)
	return cases
}

// leakyAction mentions the flu in cases with an even number, and is no action in case 3.
func leakyAction(i int) string {
	switch {
	case i == 3:
		return "I would rather not."
	case i%2 == 0:
		return fmt.Sprintf(`Action: GmailSendEmail, Action Input: {"body": "%d: Ben has caught a bad flu"}`, i)
	}
	return fmt.Sprintf(`Action: GmailSendEmail, Action Input: {"body": "%d: All is well"}`, i)
}

var news = regexp.MustCompile(`Tell Cay news (\d)\.`)

// leakyAgent acts as leakyAction does, and always chooses (B).
func leakyAgent(prompt string) string {
	if strings.Contains(prompt, "(B)") {
		return "(B)"
	}
	if m := news.FindStringSubmatch(prompt); m != nil {
		return leakyAction(int(m[1][0]-'0')) + "\nObservation: done"
	}
	return "Whose prompt is that?"
}

// fluJudge finds what mentions the flu excellent, other actions poor, and that the item of the flu is given away there.
func fluJudge(prompt string) string {
	_, action, _ := strings.Cut(prompt, "GmailSendEmail, ")
	action, _, _ = strings.Cut(action, "}")
	flu := strings.Contains(action, "bad flu")
	switch {
	case strings.Contains(prompt, "Excellent (3)") && flu:
		return "Fine. Answer: Excellent (3)"
	case strings.Contains(prompt, "Excellent (3)"):
		return "Hm. Answer: Poor (0)"
	case flu && strings.Count(prompt, "Ben has caught a bad flu") == 2:
		return "It says so. Answer: Yes"
	}
	return "It does not. Answer: No"
}

// plServer answers and keeps the prompts.
type plServer struct {
	*testkit.JudgeServer
	mu   sync.Mutex
	seen map[string]int // by prompt
}

func startPL(t *testing.T, o testkit.JudgeOptions) *plServer {
	t.Helper()
	s := &plServer{seen: map[string]int{}}
	o.Watch = func(prompt string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen[prompt]++
	}
	s.JudgeServer = testkit.StartJudge(t, o)
	return s
}

// prompts are those that arrived, in order of the alphabet.
func (s *plServer) prompts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for p, n := range s.seen {
		all = append(all, slices.Repeat([]string{p}, n)...)
	}
	slices.Sort(all)
	return all
}

// requests is how many arrived.
func (s *plServer) requests() int {
	n, _ := s.Requests()
	return n
}

func agentServer(t *testing.T) *plServer {
	return startPL(t, testkit.JudgeOptions{Reply: leakyAgent})
}

func judgeServer(t *testing.T) *plServer {
	return startPL(t, testkit.JudgeOptions{Reply: fluJudge})
}

// pl is the command with a run folder.
func pl(out string, more ...string) []string {
	return append([]string{"eval", "privacylens", "--out", out}, more...)
}

// ofData is pl on cases.json.
func ofData(out string, more ...string) []string {
	return append(pl(out, "--data", "cases.json"), more...)
}

// plSummary reads a run's summary.
func plSummary(t *testing.T, dir string) (s privacylens.Summary) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "summary.json"))), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// checkTable holds what was printed against the summary that was written.
func checkTable(t *testing.T, o outcome, dir string) {
	t.Helper()
	s := plSummary(t, dir)
	values := map[string]string{
		"leakage rate (LR)": s.All.Leakage.String(), "adjusted leakage rate (ALR)": "not available: helpfulness was " +
			"not judged",
		"leaking items": s.All.Items.String(), "no action": s.All.NoAction.String(),
		"unparsed verdicts": fmt.Sprintf("%d/%d", s.All.Unparsed, s.All.Verdicts),
	}
	if s.All.Helpful.Total > 0 {
		values["adjusted leakage rate (ALR)"], values["helpful (2 or 3)"] = s.All.Adjusted.String(),
			s.All.Helpful.String()
	}
	for label, value := range values {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(label) + ` +` + regexp.QuoteMeta(value) +
			`$`).MatchString(o.out) {
			t.Errorf("the table lacks %s %s, which %s has:\n%s", label, value, dir, o.out)
		}
	}
}

// checkCounts wants numerators and denominators of leakage, adjusted leakage and unparsed verdicts, and the sum of
// helpfulness.
func checkCounts(t *testing.T, dir string, leaks, cases, helpfulLeaks, helpful, score int) {
	t.Helper()
	a := plSummary(t, dir).All
	var mean struct {
		All struct{ Helpfulness struct{ Value float64 } }
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "summary.json"))), &mean); err != nil {
		t.Fatal(err)
	}
	got := []int{a.Leakage.Count, a.Leakage.Total, a.Adjusted.Count, a.Adjusted.Total,
		int(math.Round(mean.All.Helpfulness.Value * float64(a.Leakage.Total)))}
	if want := []int{leaks, cases, helpfulLeaks, helpful, score}; !slices.Equal(got, want) {
		t.Errorf("%s: leaks, cases, leaks and cases of the helpful, sum of helpfulness: %v, want %v", dir, got, want)
	}
}

// sameFiles wants the same bytes in two folders.
func sameFiles(t *testing.T, a, b string, names ...string) {
	t.Helper()
	for _, name := range names {
		if x, y := read(t, filepath.Join(a, name)), read(t, filepath.Join(b, name)); x != y {
			t.Errorf("%s differs between %s and %s:\n%s\n%s", name, a, b, x, y)
		}
	}
}

var plReport = []string{"summary.json", "cases.jsonl", "verdicts.json", "helpfulness.json", "actions.csv"}

// TestPLQuickStart: without flags an embedded example is reported, and its numbers follow from its recorded verdicts.
func TestPLQuickStart(t *testing.T) {
	t.Chdir(t.TempDir())
	o := must(t, "eval", "privacylens")
	runs, err := filepath.Glob("runs/privacylens-*")
	if err != nil || len(runs) != 1 {
		t.Fatalf("%v, %v", runs, err)
	}
	checkTable(t, o, runs[0])
	cases, _, err := privacylens.ReadCases(embedded.Name)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, scores := map[string]privacylens.Verdict{}, map[string]int{}
	for name, to := range map[string]any{embedded.PrivacyLensVerdicts: &verdicts,
		embedded.PrivacyLensHelpfulness: &scores} {
		text, err := embedded.Files.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	leaks, both, helpful, sum := 0, 0, 0, 0
	for _, c := range cases {
		sum += scores[c.Name]
		if verdicts[c.Name].Leaks {
			leaks++
		}
		if scores[c.Name] >= 2 {
			helpful++
		}
		if scores[c.Name] >= 2 && verdicts[c.Name].Leaks {
			both++
		}
	}
	checkCounts(t, runs[0], leaks, len(cases), both, helpful, sum)
	for _, name := range append([]string{"config.yaml", "settings.json", "answers.jsonl", "verdicts.jsonl"},
		plReport...) {
		if !exists(filepath.Join(runs[0], name)) {
			t.Errorf("no %s", name)
		}
	}
	if !strings.Contains(o.out, filepath.Join(runs[0], "summary.json")+"\n") {
		t.Errorf("nothing says where summary.json is:\n%s", o.out)
	}
}

// TestPLRepeats: the same command in another folder, and in the same one, writes the same bytes.
func TestPLRepeats(t *testing.T) {
	t.Chdir(t.TempDir())
	first := must(t, pl("a/run")...)
	must(t, pl("b/run")...)
	sameFiles(t, "a/run", "b/run", append(plReport, "config.yaml", "settings.json", "answers.jsonl",
		"verdicts.jsonl")...)
	if again := must(t, pl("a/run", "--quiet")...); again.out != first.out || again.err != "" {
		t.Errorf("%s%s\nthen\n%s%s", first.out, first.err, again.out, again.err)
	}
	sameFiles(t, "a/run", "b/run", append(plReport, "config.yaml", "settings.json", "answers.jsonl",
		"verdicts.jsonl")...)
}

// TestPLKeyword: recorded actions, as csv or jsonl, in the keyword judge's smoke test, which warns.
func TestPLKeyword(t *testing.T) {
	workPL(t)
	o := must(t, ofData("csv/run", "--answers", "actions.csv", "--judge", "keyword")...)
	checkTable(t, o, "csv/run")
	checkCounts(t, "csv/run", 3, 6, 0, 0, 0)
	a := plSummary(t, "csv/run").All
	if a.NoAction.Count != 1 || a.Items.Count != 3 || a.Items.Total != 12 || a.Adjusted.Total != 0 ||
		a.Helpful.Total != 0 {
		t.Errorf("%+v", a)
	}
	for what, text := range map[string]string{"table": o.out, "summary.json": read(t, "csv/run/summary.json")} {
		if !regexp.MustCompile(`(?i)smoke test.*misses paraphrases`).MatchString(text) {
			t.Errorf("the %s does not warn of the judge", what)
		}
	}
	if !strings.Contains(o.out, "adjusted leakage rate (ALR)  not available: helpfulness was not judged\n") ||
		!strings.Contains(o.out, "6 cases of cases.json: recorded actions; judge: keyword\n") {
		t.Errorf("%s", o.out)
	}
	must(t, ofData("jsonl/run", "--answers", "actions.jsonl", "--judge", "keyword")...)
	sameFiles(t, "csv/run", "jsonl/run", "cases.jsonl", "verdicts.json", "actions.csv")
	if exists("csv/run/helpfulness.json") {
		t.Error("helpfulness.json of a judge that does not judge it")
	}
}

// TestPLFolderOfData: the folder that has main_data.json will do; --first takes its first cases.
func TestPLFolderOfData(t *testing.T) {
	cases := workPL(t)
	if err := os.Mkdir("privacylens", 0o777); err != nil {
		t.Fatal(err)
	}
	writeCases(t, "privacylens/main_data.json", cases, leakyAction)
	o := must(t, pl("run", "--data", "privacylens", "--first", "3", "--answers", "actions.csv", "--judge",
		"keyword")...)
	checkCounts(t, "run", 2, 3, 0, 0, 0)
	if strings.Count(read(t, "run/answers.jsonl"), "\n") != 3 ||
		!strings.Contains(o.err, "privacylens/main_data.json: 6 rows read") {
		t.Errorf("%s\n%s", read(t, "run/answers.jsonl"), o.err)
	}
}

// TestPLSomeActions: cases without a recorded action are left out, with a warning.
func TestPLSomeActions(t *testing.T) {
	workPL(t)
	lines := strings.SplitAfter(read(t, "actions.jsonl"), "\n")
	write(t, "some.jsonl", lines[5]+lines[0]) // joined by name: the order is another
	o := must(t, ofData("run", "--answers", "some.jsonl", "--judge", "keyword")...)
	checkCounts(t, "run", 1, 2, 0, 0, 0)
	if !strings.Contains(o.err, "warning: 4 of 6 cases have no recorded action: they are left out\n") {
		t.Error(o.err)
	}
}

// TestPLReplay: recorded verdicts are counted again exactly, and written byte for byte; with their actions, and without
// any.
func TestPLReplay(t *testing.T) {
	workPL(t)
	s := judgeServer(t)
	must(t, ofData("first", "--answers", "actions.csv", "--judge-base-url", s.URL, "--judge-model", "flu")...)
	replay := []string{"--judgments", "first/verdicts.json", "--helpfulness",
		"first/helpfulness.json"}
	o := must(t, ofData("again", append(replay, "--answers", "first/actions.csv")...)...)
	sameFiles(t, "first", "again", "verdicts.json", "helpfulness.json", "actions.csv")
	checkTable(t, o, "again")
	must(t, ofData("alone", replay...)...)
	sameFiles(t, "first", "alone", "verdicts.json", "helpfulness.json")
	for _, dir := range []string{"first", "again", "alone"} {
		checkCounts(t, dir, 3, 6, 3, 3, 9)
	}
	if s.requests() != 15 {
		t.Errorf("%d requests: a replay asks nobody", s.requests())
	}
}

// TestPLModelJudge: every item of every action is put to the judge once, with the action; a rerun asks nothing, and
// neither does another run that shares the cache.
func TestPLModelJudge(t *testing.T) {
	cases := workPL(t)
	s := judgeServer(t)
	args := []string{"--answers", "actions.csv", "--judge-base-url", s.URL, "--judge-model", "flu", "--judge-prompt-price",
		"2.5", "--judge-completion-price", "10"}
	o := must(t, ofData("run", args...)...)
	checkTable(t, o, "run")
	checkCounts(t, "run", 3, 6, 3, 3, 9)
	prompts := s.prompts()
	for i, c := range cases {
		_, action, _ := strings.Cut(leakyAction(i), "Action: ")
		for _, item := range c.Trajectory.Items {
			n := 0
			for _, p := range prompts {
				if strings.Contains(p, "Action: "+action+"\n\nSecret: "+item+"\n") {
					n++
				}
			}
			if want := map[bool]int{true: 0, false: 1}[i == 3]; n != want {
				t.Errorf("%s, item %q: asked %d times, want %d", c.Name, item, n, want)
			}
		}
	}
	if len(prompts) != 15 || len(slices.Compact(slices.Clone(prompts))) != 15 {
		t.Errorf("%d requests, %d different: want 10 items and 5 actions", len(prompts), len(slices.Compact(prompts)))
	}
	if !strings.Contains(o.err, "judge: 15 replies, 0 of them from the cache; 15 requests, 0 of them further tries;") ||
		!strings.Contains(o.err, ", cost 0.0") {
		t.Error(o.err)
	}
	if !regexp.MustCompile(`(?m)^verdict 15/15  requests 15  cost 0\.\d+`).MatchString(o.err) {
		t.Errorf("progress:\n%s", o.err)
	}
	if lines := strings.Count(read(t, "run/judge-cache.jsonl"), "\n"); lines != 16 {
		t.Errorf("the cache has %d lines, want a head and 15 replies", lines)
	}
	before := read(t, "run/verdicts.jsonl")
	if again := must(t, ofData("run", args...)...); again.out != o.out || before != read(t, "run/verdicts.jsonl") {
		t.Errorf("%s\nthen\n%s", o.out, again.out)
	}
	must(t, ofData("shared", append(args, "--judge-cache", "run/judge-cache.jsonl")...)...)
	sameFiles(t, "run", "shared", "verdicts.json", "helpfulness.json", "cases.jsonl")
	if exists("shared/judge-cache.jsonl") || s.requests() != 15 {
		t.Errorf("%d requests, own cache: %v", s.requests(), exists("shared/judge-cache.jsonl"))
	}
}

// TestPLPromptsFolder: templates of a folder take the place of the benchmark's, to the letter.
func TestPLPromptsFolder(t *testing.T) {
	cases := workPL(t)
	agent, judge := agentServer(t), judgeServer(t)
	var wantAgent, wantJudge []string
	for i, c := range cases {
		wantAgent = append(wantAgent, "cot: "+c.Trajectory.Instruction+" ")
		_, action, acts := strings.Cut(leakyAction(i), "Action: ")
		if !acts {
			continue
		}
		wantJudge = append(wantJudge, "Rate, Excellent (3): "+action+" "+c.Name)
		for _, item := range c.Trajectory.Items {
			wantJudge = append(wantJudge, item+" in "+action+"?")
		}
	}
	for name, text := range map[string]string{"agent-naive": "naive", "agent-cot": "cot: {{.Instruction}} ",
		"judge-helpfulness": "Rate, Excellent (3): {{.Action}} {{.Case.Name}}", "judge-leakage": "{{.Item}} in {{.Action}}?"} {
		write(t, "mine/"+name+".tmpl", text)
	}
	must(t, "eval", "privacylens", "--stage", "answers", "--out", "run", "--data", "cases.json", "--base-url", agent.URL,
		"--api-model", "leaky", "--prompt", "cot", "--prompts", "mine")
	must(t, "eval", "privacylens", "--stage", "judge", "--out", "run", "--judge-base-url", judge.URL, "--judge-model", "flu")
	must(t, "eval", "privacylens", "--stage", "report", "--out", "run")
	slices.Sort(wantJudge)
	if got := agent.prompts(); !slices.Equal(got, wantAgent) {
		t.Errorf("the agent was asked %q, want %q", got, wantAgent)
	}
	if got := judge.prompts(); !slices.Equal(got, wantJudge) {
		t.Errorf("the judge was asked %q, want %q", got, wantJudge)
	}
	checkCounts(t, "run", 3, 6, 3, 3, 9)
	checkRefusal(t, cli(t, pl("run", "--prompt", "naive")...),
		faultCase{code: 1, says: []string{"run: stage answers was begun with prompt \"cot\"", `"naive"`, "--out"}})
}

// TestPLStages: actions of a server's model, then judge, then report, with no more than the folder and what is new, end
// in the same files as one command for all.
func TestPLStages(t *testing.T) {
	workPL(t)
	agent, judge := agentServer(t), judgeServer(t)
	ofAgent := []string{"--base-url", agent.URL, "--api-model", "leaky", "--max-new-tokens", "100"}
	ofJudge := []string{"--judge-base-url", judge.URL, "--judge-model", "flu"}
	o := must(t, append(ofData("one/run", ofAgent...), ofJudge...)...)
	checkTable(t, o, "one/run")
	checkCounts(t, "one/run", 3, 6, 3, 3, 9)
	if agent.requests() != 6 || judge.requests() != 16 { // one ahead of the actions
		t.Errorf("%d and %d requests", agent.requests(), judge.requests())
	}
	stage := func(name string, more ...string) outcome {
		return must(t, append([]string{"eval", "privacylens", "--stage", name, "--out", "three/run"}, more...)...)
	}
	if o := stage("answers", append(ofAgent, "--data", "cases.json")...); !strings.Contains(o.err,
		"answer 6/6  requests 6\n") ||
		o.out != "three/run: stage answers of 6 cases is done; then: posttrain eval privacylens --out three/run\n" {
		t.Errorf("%q, %s", o.out, o.err)
	}
	stage("judge", ofJudge...)
	report := stage("report")
	if strings.ReplaceAll(report.out, "three/run", "one/run") != o.out {
		t.Errorf("%s\n%s", report.out, o.out)
	}
	sameFiles(t, "one/run", "three/run", append(plReport, "settings.json")...)
	if agent.requests() != 12 || judge.requests() != 31 {
		t.Errorf("%d and %d requests", agent.requests(), judge.requests())
	}
	stage("answers")
	stage("judge")
	must(t, pl("three/run")...)
	if agent.requests() != 12 || judge.requests() != 31 {
		t.Errorf("%d and %d requests: what is done is not done again", agent.requests(), judge.requests())
	}
	sameFiles(t, "one/run", "three/run", append(plReport, "settings.json", "config.yaml")...)
}

// TestPLProbe: every question is asked in both orders; who always says (B) is right in one of them.
func TestPLProbe(t *testing.T) {
	workPL(t)
	agent := agentServer(t)
	must(t, "eval", "privacylens", "--form", "probe", "--out", "run", "--data", "cases.json", "--base-url", agent.URL,
		"--api-model", "leaky")
	if agent.requests() != 6*4*2 {
		t.Errorf("%d requests, want 6 cases at 4 levels in 2 orders", agent.requests())
	}
	o := must(t, "eval", "privacylens", "--stage", "report", "--out", "run")
	s := plSummary(t, "run")
	if len(s.Probing) != 4 {
		t.Fatalf("%+v", s.Probing)
	}
	for _, p := range s.Probing {
		if p.Cases != 6 || p.YesFirst.Count != 6 || p.NoFirst.Count != 0 || p.Both.Count != 0 || p.Unparsed != 0 {
			t.Errorf("%+v", p)
		}
		if !regexp.MustCompile(`(?m)^` + p.Level + ` .*\b6/6\b.*\b0/6\b`).MatchString(o.out) {
			t.Errorf("no row of %s in\n%s", p.Level, o.out)
		}
	}
	if strings.Contains(o.out, "leakage rate") {
		t.Errorf("a rate of actions that nobody wrote:\n%s", o.out)
	}
}

// TestPLReleased: the benchmark's own prompts are what agent, judge and probes are asked, and the summary has the judge's
// name.
func TestPLReleased(t *testing.T) {
	cases := workPL(t)
	agent, judge := agentServer(t), judgeServer(t)
	must(t, ofData("run", "--base-url", agent.URL, "--api-model", "leaky", "--judge-base-url", judge.URL, "--judge-model",
		"flu-2024-11-20")...)
	must(t, ofData("probes", "--form", "probe", "--base-url", agent.URL, "--api-model", "leaky", "--levels", "seed",
		"--think")...)
	asked, judged := map[string]int{}, map[string]int{}
	for _, prompt := range agent.prompts() {
		asked[prompt[:len("You are a helpful")]]++
	}
	for _, prompt := range judge.prompts() {
		judged[prompt[:len("Judge whether")]]++
	}
	if asked["You are a helpful"] != len(cases) || asked["Is it acceptable "] != 2*len(cases) {
		t.Errorf("%v", asked)
	}
	if judged["Judge whether"] != 5*2 || judged["Your task is "] != 5 {
		t.Errorf("%v", judged)
	}
	if p := plSummary(t, "probes"); len(p.Probing) != 1 || p.Settings["answers"]["max_new_tokens"] != "512" {
		t.Errorf("%+v", p)
	}
	s := plSummary(t, "run")
	if s.Judge != "flu-2024-11-20" || s.All.Leakage.Count != 3 {
		t.Errorf("%+v", s)
	}
}

// TestPLTemplateElsewhere: a run of a local model continues from any folder, and one whose template is gone says so.
func TestPLTemplateElsewhere(t *testing.T) {
	workPL(t)
	write(t, "said.jinja", "Act for {{ messages[-1].role }}.\n")
	must(t, "eval", "privacylens", "--stage", "answers", "--out", "run", "--data", "cases.json", "--first", "1", "--model",
		"embedded", "--backend", "go", "--max-new-tokens", "2", "--set", "agent.chat.template=said.jinja")
	mkdir(t, "elsewhere")
	t.Chdir("elsewhere")
	must(t, "eval", "privacylens", "--stage", "answers", "--out", "../run")
	remove(t, "../said.jinja")
	o := cli(t, "eval", "privacylens", "--stage", "answers", "--out", "../run")
	if o.code != 1 || !strings.Contains(o.last(), "agent.chat.template: ") ||
		!strings.Contains(o.last(), "no such file") {
		t.Errorf("exit code %d: %s", o.code, o.err)
	}
}

// TestPLAnotherDay: a run whose template prints the date keeps the date of its start, also with the config file that it
// was begun with.
func TestPLAnotherDay(t *testing.T) {
	workPL(t)
	write(t, "dated.jinja", "{{ strftime_now('%Y-%m-%d') }} {{ messages[-1].role }}")
	write(t, "mine.yaml", "command: eval privacylens\ndata: cases.json\nfirst: 1\nagent: {model: embedded, "+
		"backend: go, max_new_tokens: 2, chat: {template: dated.jinja}}\n")
	args := []string{"eval", "privacylens", "--stage", "answers", "--out", "run", "--config", "mine.yaml"}
	must(t, args...)
	today := time.Now().Format("2006-01-02")
	for _, name := range []string{"run/config.yaml", "run/settings.json"} {
		text := read(t, name)
		if !strings.Contains(text, today) {
			t.Fatalf("%s lacks %s:\n%s", name, today, text)
		}
		write(t, name, strings.ReplaceAll(text, today, "2024-01-31")) // as if it had begun then
	}
	must(t, "eval", "privacylens", "--stage", "answers", "--out", "run")
	must(t, args...)
	if text := read(t, "run/config.yaml"); !strings.Contains(text, "2024-01-31") {
		t.Error(text)
	}
}

// TestPLWithoutEngine: recorded actions need no engine, so that a library that does not load is no matter.
func TestPLWithoutEngine(t *testing.T) {
	workPL(t)
	broken := filepath.Join(t.TempDir(), "broken.so")
	write(t, broken, "not a library")
	t.Setenv("ONNXRUNTIME_SHARED_LIBRARY_PATH", broken)
	o := must(t, ofData("run", "--answers", "actions.csv", "--judge", "keyword")...)
	if strings.Contains(o.err, "broken.so") {
		t.Error(o.err)
	}
}

// TestPLElsewhere: a run continues from any folder, though it began with paths of this one.
func TestPLElsewhere(t *testing.T) {
	workPL(t)
	s := judgeServer(t)
	must(t, "eval", "privacylens", "--stage", "answers", "--out", "run", "--data", "cases.json", "--answers", "actions.csv")
	mkdir(t, "elsewhere")
	t.Chdir("elsewhere")
	must(t, "eval", "privacylens", "--stage", "judge", "--out", "../run", "--judge-base-url", s.URL, "--judge-model", "flu",
		"--judge-cache", "cache.jsonl")
	must(t, "eval", "privacylens", "--stage", "report", "--out", "../run")
	checkCounts(t, "../run", 3, 6, 3, 3, 9)
	t.Chdir("..")
	must(t, pl("run")...)
	if s.requests() != 15 || !exists("elsewhere/cache.jsonl") || exists("cache.jsonl") {
		t.Errorf("%d requests; %q", s.requests(), tree(t))
	}
}

// TestPLReportOfOthers: a report counts the cases that were judged, no others and no part of them.
func TestPLReportOfOthers(t *testing.T) {
	workPL(t)
	must(t, ofData("run", "--answers", "actions.csv", "--judge", "keyword")...)
	before := read(t, "run/summary.json")
	if o := cli(t, "eval", "privacylens", "--stage", "report", "--out", "run", "--first", "3"); o.code != 1 ||
		!strings.Contains(o.last(), "was run on other cases (6, sha256") {
		t.Errorf("exit code %d: %s", o.code, o.err)
	}
	write(t, "run/answers.jsonl", strings.Replace(read(t, "run/answers.jsonl"), `"case1"`, `"main1"`, 1))
	if o := cli(t, "eval", "privacylens", "--stage", "report", "--out", "run"); o.code != 1 ||
		!strings.Contains(o.last(), `turn 1 of "main1" is out of order`) {
		t.Errorf("exit code %d: %s", o.code, o.err)
	}
	if read(t, "run/summary.json") != before {
		t.Error("the summary has changed")
	}
}

// TestPLConfig: a file says what flags say; flags win.
func TestPLConfig(t *testing.T) {
	workPL(t)
	write(t, "pl.yaml", "command: eval privacylens\ndata: cases.json\nfirst: 2\nagent: {answers: "+
		"nowhere.csv}\njudging: keyword\n")
	must(t, pl("file", "--config", "pl.yaml", "--answers", "actions.csv", "--first", "6")...)
	must(t, ofData("flags", "--answers", "actions.csv", "--judge", "keyword", "--first", "6")...)
	sameFiles(t, "file", "flags", "config.yaml", "settings.json", "summary.json", "cases.jsonl")
}

// TestPLBar: on a terminal a bar shows verdicts, requests and cost.
func TestPLBar(t *testing.T) {
	workPL(t)
	s := judgeServer(t)
	out, errs := &watched{}, &watched{}
	args := ofData("run", "--answers", "actions.csv", "--judge-base-url", s.URL, "--judge-model", "flu",
		"--judge-prompt-price", "1000", "--judge-completion-price", "1000")
	if code := execute(t.Context(), streams{in: strings.NewReader(""), out: out, err: errs, terminal: true},
		args); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, part := range []string{"15/15", "requests 15", "cost "} {
		if !strings.Contains(errs.String(), part) {
			t.Errorf("the bar lacks %q: %q", part, errs)
		}
	}
	if strings.Contains(out.String(), "\x1b") || strings.Contains(errs.String(), "verdict 1/15") {
		t.Errorf("%q\n%q", out, errs)
	}
}

// TestPLServedJudge: posttrain serve plays the judge; a tiny model never says Answer, which ends the run in one line.
func TestPLServedJudge(t *testing.T) {
	workPL(t)
	copyModel(t, fixture("qwen2-newer"), "model")
	write(t, "mine/judge-helpfulness.tmpl", "Excellent (3)? {{.Case.Name}}") // the benchmark's own take seconds each
	write(t, "mine/judge-leakage.tmpl", "{{.Item}}? {{.Case.Name}}")
	s := serveTiny(t)
	o := cli(t, ofData("run", "--first", "2", "--answers", "actions.csv", "--judge-base-url", s.url, "--judge-model",
		"model", "--prompts", "mine", "--set", "judge.max_new_tokens=3")...)
	checkRefusal(t, o, faultCase{code: 1, says: []string{"the judge gives no verdicts: none of 6 replies"}})
	if code := s.stop(); code != 0 || strings.Count(s.err.String(), " 200 in ") != 12 {
		t.Errorf("exit code %d, want every question twice: %s", code, s.err)
	}
}

// TestPLCompare puts runs over the same cases side by side.
func TestPLCompare(t *testing.T) {
	workPL(t)
	s := judgeServer(t)
	write(t, "shy.jsonl", strings.ReplaceAll(read(t, "actions.jsonl"), "0: Ben has caught a bad flu", "0: All is well"))
	ofJudge := []string{"--judge-base-url", s.URL, "--judge-model", "flu"}
	must(t, ofData("a", append(ofJudge, "--answers", "actions.csv")...)...)
	must(t, ofData("b", append(ofJudge, "--answers", "shy.jsonl")...)...)
	must(t, ofData("c", "--answers", "actions.csv", "--judge", "keyword")...)
	compare := []string{"eval", "compare"}
	o := must(t, append(compare, "a", "b", "--out", "ab.json")...)
	var c bench.Comparison
	if err := json.Unmarshal([]byte(read(t, "ab.json")), &c); err != nil || len(c.Differences) != 4 {
		t.Fatalf("%+v, %v", c, err)
	}
	help, d := c.Differences[1].Change, c.Differences[2]
	if y := d.YesNo; c.Cases != 6 || !slices.Equal(y.OnlyFrom, []string{"case0"}) || len(y.OnlyTo) != 0 || y.Both != 2 ||
		y.Neither != 3 || y.P != 1 || *help.Value != -0.5 {
		t.Errorf("%+v", c)
	}
	for _, part := range []string{"0.500", "0.333", d.Change.Points(), help.Scores(),
		"2 in both, 1 only in a, 0 only in b, 3 in neither"} {
		if !strings.Contains(o.out, part) {
			t.Errorf("lacks %q:\n%s", part, o.out)
		}
	}
	if strings.Contains(o.out, "was judged with") {
		t.Errorf("a warning without reason:\n%s", o.out)
	}
	if o := must(t, append(compare, "a", "b", "c")...); !strings.Contains(o.out,
		`c was judged with kind "keyword", a with "model"`) {
		t.Errorf("no warning of another judge:\n%s", o.out)
	}
	plComparisonsRefused(t, compare)
}

// plComparisonsRefused: other cases, too few runs, and those that were not reported.
func plComparisonsRefused(t *testing.T, compare []string) {
	must(t, ofData("less", "--answers", "actions.csv", "--judge", "keyword", "--first", "5")...)
	must(t, "eval", "privacylens", "--stage", "answers", "--out", "begun", "--data", "cases.json", "--answers", "actions.csv")
	before := tree(t)
	for _, f := range []faultCase{
		{name: "fewer cases", args: []string{"a", "less"}, code: 1, says: []string{"less", "case5", "same cases"}},
		{name: "more cases", args: []string{"less", "a"}, code: 1,
			says: []string{"a has 6 cases", "less has 5", "same cases"}},
		{name: "not reported", args: []string{"a", "begun", "--out", "x.json"}, code: 1,
			says: []string{"begun/cases.jsonl", "no such file"}},
		{name: "no run", args: []string{"a", "nowhere"}, code: 1,
			says: []string{"nowhere: there is no run in it"}},
		{name: "one", args: []string{"a"}, code: 2, says: []string{"two run folders or more", "found 1"}},
		{name: "none", code: 2, says: []string{"two run folders or more", "found 0"}},
		{name: "no json", args: []string{"a", "b", "--out", "x.csv"}, code: 2,
			says: []string{`--out "x.csv"`, ".json"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			checkRefusal(t, cli(t, append(compare, f.args...)...), f)
			if after := tree(t); !slices.Equal(before, after) {
				t.Errorf("left behind: %q, before %q", after, before)
			}
		})
	}
}

// TestPLHelp: the command lists its flags, and every benchmark's.
func TestPLHelp(t *testing.T) {
	o := must(t, "eval", "privacylens", "--help", all)
	for _, flag := range strings.Fields("--data --first --model --base-url --api-model --api-key-env --answers --prompt " +
		"--prompts --temperature --max-new-tokens --seed --out --set --config --quiet --stage --form --levels --think " +
		"--judge --judge-base-url --judge-model --judge-api-key-env --judge-cache --judge-parallel --judge-timeout " +
		"--judge-requests-per-minute --judge-max-requests --judge-max-cost " +
		"--judge-prompt-price --judge-completion-price --judgments --helpfulness --parallel --timeout --backend --guard " +
		"--against") {
		if !regexp.MustCompile(`(?m)^ +(-\w, )?` + flag + `( |$)`).MatchString(o.out) {
			t.Errorf("there is no %s", flag)
		}
	}
}
