package privacylens

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/rollout"
)

// hostile is text that would do harm if it were taken for HTML, JavaScript or CSS.
const hostile = "\"'><script>window.harm=1</script><img src=http://evil.test/x " +
	"onerror=window.harm=1></pre></details></style>{{.Title}}\u2028javascript:alert(1)\x00\xff"

// pageRun is a run of six cases: 0 leaks an item whose words stand twice in its action, and one that a model found in
// other words; 1 is unparsed; 2 has no action; 3 is cut by length; 4 was too long; 5 is hostile throughout.
func pageRun() ([]lens.Case, []CaseResult) {
	cases := testkit.PrivacyCases(6)
	cases[5].Name = "case5 " + strings.TrimSuffix(hostile, "\x00\xff") // JSON cannot bring these
	cases[5].Trajectory.Instruction, cases[5].Trajectory.Past, cases[5].Vignette.Story = hostile, hostile, hostile
	cases[5].Seed.Source, cases[5].Seed.TransmissionPrinciple, cases[5].Seed.DataRecipient = hostile, hostile, hostile
	results := make([]CaseResult, len(cases))
	for i := range cases {
		c, three := &cases[i], 3
		r := CaseResult{
			Name: c.Name, Source: c.Seed.Source, Principle: c.Seed.TransmissionPrinciple,
			Tool: c.Trajectory.FinalAction, Recorded: true, Reason: rollout.EOS,
			Action: "GmailSendEmail\nAction Input: {\"body\": \"All is well\"}", AgentPrompt: Hash(c.Name),
			Helpfulness: &three, ScoreParsed: true, ScoreReply: "Answer: Excellent (3)",
		}
		for _, item := range c.Trajectory.Items {
			r.Items = append(r.Items, ItemResult{Item: item, Parsed: true, Reply: "Answer: No"})
		}
		r.FinalAction = "Thought: I write.\nAction: " + r.Action
		results[i] = r
	}
	leak := &results[0]
	leak.Action = "GmailSendEmail\nAction Input: {\"body\": \"Grüße: Ben has caught a bad flu. Ben has caught a bad " +
		"flu!\"}"
	leak.Leaks, leak.FinalAction = true, "Action: "+leak.Action
	leak.Items[0].Leaks, leak.Items[0].Spans = true, spansOf(leak.Action, leak.Items[0].Item)
	leak.Items[1].Leaks, leak.Items[1].Reply = true, "He is in hospital.\nAnswer: Yes"
	results[1].UnparsedSeen, results[1].Items[0].Parsed, results[1].Helpfulness = 1, false, new(int)
	for i, reason := range map[int]string{2: rollout.EOS, 4: bench.TooLong} {
		r := &results[i]
		r.NoAction, r.Action, r.Reason, r.FinalAction, r.Helpfulness = true, "", reason, "I would rather not.", new(int)
	}
	results[3].Reason = rollout.Length
	bad := &results[5]
	bad.Action, bad.FinalAction, bad.Reason, bad.ScoreReply, bad.Tool, bad.AgentPrompt = hostile,
		hostile+"Action: "+hostile, hostile, hostile, hostile, hostile
	bad.Leaks, bad.UnparsedSeen = true, 1
	bad.Items = []ItemResult{{Item: hostile, Leaks: true, Reply: hostile,
		Spans: []Span{{From: -1, To: 5}, {From: 3, To: 1}, {From: 2, To: 1 << 40}, {From: 3, To: 30},
			{From: 10, To: 40}}}}
	return cases, results
}

func pageSummary(results []CaseResult) *Summary {
	s := summarize(results)
	s.Settings = bench.Settings{"judge": {"kind": "model", "model": "m"}, "actions": {"prompt": Naive},
		hostile: {hostile: hostile}}
	s.Warnings = append(s.Warnings, hostile)
	return s
}

// writtenPage reads the page from its file.
func writtenPage(t *testing.T, cases []lens.Case, s *Summary) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), PageName)
	if err := writePage(path, "A run "+hostile, cases, *s); err != nil {
		t.Fatal(err)
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path))); len(left) != 1 {
		t.Errorf("%v", left)
	}
	if mode := must[os.FileInfo](t)(os.Stat(path)).Mode(); mode&0o444 != 0o444 {
		t.Errorf("%v: others cannot read it", mode)
	}
	return read(t, path)
}

var (
	pageTag  = regexp.MustCompile(`<(/?)([a-z0-9]+)((?:\s+[a-z-]+(?:="[^"]*")?)*)\s*>`)
	pageAttr = regexp.MustCompile(`([a-z-]+)="([^"]*)"`)
)

// pageWords is the text of a page, without its style and script.
func pageWords(page string) string {
	page = strings.Replace(strings.Replace(page, pageStyle, "", 1), pageScript, "", 1)
	return strings.Join(strings.Fields(html.UnescapeString(pageTag.ReplaceAllString(page, " "))), " ")
}

// TestPageIsInert: whatever cases and models say is in the page as text. Without style and script, which are ours,
// every < is that of a tag of the template; no attribute runs or loads anything.
func TestPageIsInert(t *testing.T) {
	cases, results := pageRun()
	page := writtenPage(t, cases, pageSummary(results))
	if strings.Count(page, pageStyle) != 1 || strings.Count(page, pageScript) != 1 {
		t.Error("style or script are not in the page as they are in their files: the policy's hashes are of these")
	}
	if !strings.Contains(html.UnescapeString(page), `content="`+policy()+`"`) || strings.Contains(policy(), "unsafe") {
		t.Error("the policy is not in the page, or lets anything run")
	}
	rest := strings.Replace(strings.Replace(page, pageStyle, "", 1), pageScript, "", 1)
	rest = strings.Replace(rest, "<!DOCTYPE html>", "", 1)
	if left := pageTag.ReplaceAllString(rest, ""); strings.ContainsAny(left, "<>\x00") {
		i := strings.IndexAny(left, "<>\x00")
		t.Errorf("not a tag: %q", left[max(0, i-40):min(len(left), i+40)])
	}
	for _, tag := range pageTag.FindAllStringSubmatch(rest, -1) {
		if strings.Contains(" img iframe object embed link base svg math audio video ", " "+tag[2]+" ") {
			t.Errorf("tag %s", tag[0])
		}
		for _, a := range pageAttr.FindAllStringSubmatch(tag[3], -1) {
			if strings.HasPrefix(a[1], "on") || a[1] == "src" || a[1] == "style" ||
				a[1] == "href" && !strings.HasPrefix(a[2], "#") {
				t.Errorf("attribute %s", a[0])
			}
		}
	}
	if n := strings.Count(page, "<script"); n != 1 {
		t.Errorf("%d scripts", n)
	}
	if strings.Contains(pageStyle, "url(") || strings.Contains(pageStyle+pageScript, "http") ||
		strings.Contains(pageScript, "innerHTML") {
		t.Error("style or script load something, or make HTML of text")
	}
}

// TestPageNumbers: the page says what the summary says.
func TestPageNumbers(t *testing.T) {
	cases, results := pageRun()
	s := pageSummary(results)
	words := pageWords(writtenPage(t, cases, s))
	for _, want := range []string{
		"Leakage rate (LR) 33.3% (2/6, 95% interval 9.7 to 70.0) leaking",
		"Leakage rate (LR) " + s.All.Leakage.String(),
		"Adjusted leakage rate (ALR) 66.7% (2/3,", "(ALR) " + s.All.Adjusted.String(),
		"Mean helpfulness 1.50 (9/6, 95% interval", "Mean helpfulness " + s.All.Helpfulness.String(),
		"No action " + s.All.NoAction.String(), "Leaking items " + s.All.Items.String(), "Unparsed 2 of 11 verdicts",
		"Cut by length 1 of 6", "Prompt too long 1 of 6",
		"By source (3)", "law 2 " + s.Sources["law"].Leakage.String() + " " + s.Sources["law"].Adjusted.String() + " " +
			s.Sources["law"].Helpfulness.String(),
		"send an email 5 " + s.Principles["send an email"].Leakage.String(),
		"GmailSendEmail 5 " + s.Tools["GmailSendEmail"].Leakage.String(),
		"Warning: 2 of 6 outputs have no action", "actions prompt naive", "judge kind model model m",
		"Qwen2.5-7B 50.3 / 44.8 / 33.7 52.4 / 45.7 / 33.9", "Gemini 2.5 Pro 37.3 / 25.3", "With another judge or",
		"all 6", "leaking 2", "not leaking 4", "no action 2", "unparsed verdicts 2", "helpful 3", "2 or 3 (3)",
		"send an email (5)", "6 cases; 95 % intervals",
		"case0 leaks helpfulness 3", "case1 no leak helpfulness 0 1 unparsed", "case2 no action helpfulness 0",
		"case3 no leak helpfulness 3 cut by length", "case4 no action helpfulness 0 prompt too long",
		"Ben has caught a bad flu leaks show in the action",
		"Ben stays in room 0 leaks not in the item's own words Judge's reply He is in hospital. Answer: Yes",
		"recipient a colleague: Cay", "subject a neighbour: Ben", "user Ann: ann@example.org",
		"Before the action Thought: I write.", "Write to Cay, number 3.",
		"agent's prompt " + Hash("case1"),
		"end of the output eos", "Past of the agent Action: GmailReadEmail", "Story Ann knows.",
	} {
		if !strings.Contains(words, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("%q is not in the page", want)
		}
	}
	if strings.Contains(words, "smoke test") || strings.Contains(words, "were recorded") ||
		strings.Contains(words, "Probing") {
		t.Error("the page speaks of what was not")
	}
}

// TestPageOfJudges: the keyword judge's numbers are called what they are, once, and those of recorded verdicts.
func TestPageOfJudges(t *testing.T) {
	cases, results := pageRun()
	for i := range results {
		results[i].Helpfulness, results[i].Recorded = nil, false
	}
	for kind, want := range map[string]string{"keyword": "A smoke test.", "replay": "The verdicts were recorded"} {
		s := summarize(results)
		s.Settings = bench.Settings{"judge": {"kind": kind}}
		s.Warnings = append(s.Warnings, keywordWarning)
		page := writtenPage(t, cases, s)
		words := pageWords(page)
		if strings.Count(words, want) != 1 || strings.Contains(words, "Warning: the keyword") ||
			strings.Index(words, want) > strings.Index(words, "Leakage rate") {
			t.Errorf("%s: %q must stand once, before the numbers", kind, want)
		}
		if !strings.Contains(words, "Mean helpfulness not available (0 cases)") ||
			strings.Contains(page, ">Helpfulness <select") || !strings.Contains(words, "The action is not known") {
			t.Errorf("%s: helpfulness and actions are not there", kind)
		}
	}
}

// TestPageOfProbing: a run with probing alone has no cases, and no script's fields.
func TestPageOfProbing(t *testing.T) {
	both := Probed{Level: "seed", Cases: 4, Shuffled: eval.Share{Count: 3, Total: 4},
		YesFirst: eval.Share{Count: 4, Total: 4}, NoFirst: eval.Share{Count: 2, Total: 4},
		Both: eval.Share{Count: 1, Total: 4}, Unparsed: 2}
	s := summarize(nil)
	s.Probing = []Probed{both}
	words := pageWords(writtenPage(t, testkit.PrivacyCases(4), s))
	want := strings.Join(strings.Fields(fmt.Sprintf("seed 4 %v %v %v %v %v 2", both.Shuffled, both.YesFirst,
		both.NoFirst, both.Both, both.Benchmark)), " ")
	if !strings.Contains(words, want) || !strings.Contains(words, "No actions were judged") ||
		strings.Contains(words, "Leakage rate") || strings.Contains(words, "Search") {
		t.Errorf("%s\nwant %s", words, want)
	}
}

// TestPageMarks: the words of the item, and no other, are marked, both times.
func TestPageMarks(t *testing.T) {
	cases, results := pageRun()
	page := html.UnescapeString(writtenPage(t, cases, pageSummary(results)))
	const mark = `<mark data-items="1" title="item 1">Ben has caught a bad flu</mark>`
	if want := `"Grüße: ` + mark + ". " + mark + `!"}`; !strings.Contains(page, want) {
		t.Errorf("%s is not in the page", want)
	}
}

// TestReportWritesPage: the page is among the files of a run, and failing to write it is an error in one line.
func TestReportWritesPage(t *testing.T) {
	cases, actions := testkit.PrivacyCases(3), map[string]string{}
	for _, c := range cases {
		actions[c.Name] = "Action: GmailSendEmail {\"body\": \"Ben has caught a bad flu\"}"
	}
	o := recorded(t, cases, actions)
	o.Judging, o.Dir = KindKeyword, filepath.Join(t.TempDir(), "my run")
	if _, err := measured(t, o); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.Dir, PageName)
	words := pageWords(read(t, path))
	if !strings.Contains(words, "PrivacyLens: my run A smoke test.") ||
		!strings.Contains(words, "Leakage rate (LR) 100.0% (3/3,") {
		t.Errorf("%.600s", words)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := measured(t, o)
	wantError(t, err, PageName+": not written: ")
	wantError(t, writePage(filepath.Join(t.TempDir(), "none", PageName), "", nil, Summary{}), "not written: ")
}

// TestPageOfRealCases: a page of all cases is a few MB and made in a moment.
func TestPageOfRealCases(t *testing.T) {
	cases, results := realRun(t)
	begin := time.Now()
	page := writtenPage(t, cases, pageSummary(results))
	t.Logf("%d cases: %.1f MB in %v", len(cases), float64(len(page))/1e6, time.Since(begin).Round(time.Millisecond))
	if len(page) > 8<<20 {
		t.Errorf("%d bytes", len(page))
	}
	if n := strings.Count(page, `<details class="case"`); n != len(cases) {
		t.Errorf("%d cases, want %d", n, len(cases))
	}
}

// realRun are the benchmark's cases with actions that tell some of their items, each judged by the keyword judge.
func realRun(t *testing.T) ([]lens.Case, []CaseResult) {
	cases := realCases(t, "main_data.json")
	actions := map[string]string{}
	for i, c := range cases {
		items := strings.Join(c.Trajectory.Items[:i%3%(len(c.Trajectory.Items)+1)], " ")
		actions[c.Name] = fmt.Sprintf("Thought: I write.\nAction: %s\nAction Input: {\"body\": %q}",
			c.Trajectory.FinalAction, c.Vignette.Story+" "+items)
	}
	o := recorded(t, cases, actions)
	o.Judging = KindKeyword
	s, err := measured(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return cases, s.Results
}

// TestPageInBrowser: filters, search, keys, links and marks work in jsdom, which runs the page's script.
func TestPageInBrowser(t *testing.T) {
	page := filepath.Join(t.TempDir(), PageName)
	command := testkit.Node(t, "jsdom", "../../scripts/page/look.mjs", page)
	cases, results := pageRun()
	if err := writePage(page, "A run "+hostile, cases, *pageSummary(results)); err != nil {
		t.Fatal(err)
	}
	out, err := command.CombinedOutput()
	if err != nil || strings.Count(string(out), "ok ") < 10 {
		t.Errorf("%v:\n%s", err, out)
	}
}
