package synth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
)

// speaker answers as a model would that follows the built-in prompts. Its tasks are named after the order: "task 3-2".
func speaker(prompt string) string {
	if m := orderLine.FindStringSubmatch(prompt); m != nil {
		var all []string
		for i := range atoi(m[1]) {
			all = append(all, fmt.Sprintf(`{"user_intention":"task %s-%d","sender":"user","recipient":"desk",`+
				`"data_subject":"user","required":["name","date %[2]d"],"restricted":["a chat","salary %[2]d"]}`,
				m[2], i+1))
		}
		return `{"vignettes":[` + strings.Join(all, ",") + `]}`
	}
	if strings.Contains(prompt, "Write these files.") {
		return documentsOf(prompt)
	}
	task := taskLine.FindStringSubmatch(prompt)[1]
	var all []string
	for i, label := range []string{"required", "restricted", "required", "restricted"} {
		word := wordsOf(fmt.Sprint(task, i), 1)
		all = append(all, fmt.Sprintf(`{"key":"Note%d","value":"%s %s %s","keyword":%[3]q,"label":%[5]q}`, i,
			wordsOf(fmt.Sprint(task, "before", i), 4), word, wordsOf(fmt.Sprint(task, "after", i), 4), label))
	}
	return fmt.Sprintf("<think>hm {</think>```json\n{\"user_task\":\"Write to the desk about %s.\","+
		"\"information\":[%s]}\n```", task, strings.Join(all, ","))
}

// documentsOf are two documents with all information of a prompt. Of the task 1-2 they lack the last piece.
func documentsOf(prompt string) string {
	pieces := piece.FindAllStringSubmatch(prompt, -1)
	var texts [2][]string
	for i, m := range pieces {
		if i < len(pieces)-1 || !strings.Contains(prompt, "about task 1-2.") {
			texts[i%2] = append(texts[i%2], m[1])
		}
	}
	return fmt.Sprintf(`{"documents":[{"place":"mail","text":%q},{"place":"event","text":%q}]}`,
		strings.Join(texts[0], "; "), strings.Join(texts[1], "; "))
}

var piece = regexp.MustCompile(`(?m)^  - (.*) \(keyword: `)

// TestDocuments: a model writes the files of an agent's user; an item whose files lack a keyword, or are in a place
// that there is not, is rejected. Questions that were asked twice are counted, about items and about files.
func TestDocuments(t *testing.T) {
	s := testkit.StartJudge(t, testkit.JudgeOptions{Converse: func(messages []string, _ bool) string {
		reply := speaker(messages[0])
		switch m := taskLine.FindStringSubmatch(messages[0]); {
		case strings.Contains(messages[0], "about task 3-1."):
			return strings.ReplaceAll(reply, `"place":"mail"`, `"place":"letter"`)
		case m != nil && m[1] == "task 3-2" && len(messages) == 1:
			return "I would rather not."
		}
		return reply
	}})
	o := options(t, s.URL, 3)
	o.Agent, o.Policy = "tools", "item"
	if _, err := Run(context.Background(), o, nil); err != nil {
		t.Fatal(err)
	}
	items, _, err := ci.Read(filepath.Join(o.Out, ItemsName))
	if err != nil || len(items) != 4 {
		t.Fatalf("%d items, %v, want 4", len(items), err)
	}
	var sum Summary
	expect.Decode(t, filepath.Join(o.Out, "summary.json"), &sum)
	if sum.Repaired != 3 || sum.Gates["document"] != 2 {
		t.Errorf("%+v: want 3 repaired replies, 2 items without their documents", sum)
	}
	for _, item := range items {
		if s := item.Scene; len(s.Documents) != 2 || s.Documents[1].ID != "event 2" ||
			!strings.HasPrefix(s.Policy, "May desk learn it: ") {
			t.Errorf("%+v, want two documents and a norm", s)
		}
	}
	text, err := os.ReadFile(filepath.Join(o.Out, RejectedName))
	if err != nil || !strings.Contains(string(text), "0001-2") || !strings.Contains(string(text), "0003-1") ||
		strings.Count(string(text), `"kind":"document"`) != 2 {
		t.Errorf("%s, %v, want 0001-2 and 0003-1 rejected for their documents", text, err)
	}
}

// speak is a server's speaker.
func speak(messages []string, _ bool) string { return speaker(messages[0]) }

var (
	orderLine = regexp.MustCompile(`(?s)Invent (\d+) cases.*order number (\d+) of`)
	taskLine  = regexp.MustCompile(`the user wants: (.*)`)
)

func atoi(s string) (n int) {
	fmt.Sscan(s, &n)
	return n
}

// wordsOf are n invented words.
func wordsOf(of string, n int) string {
	h := fnv.New64a()
	var words []string
	for i := range n {
		fmt.Fprint(h, of, i)
		words = append(words, fmt.Sprintf("q%x", h.Sum64()))
	}
	return strings.Join(words, " ")
}

// options ask a server for n seeds of two vignettes each.
func options(t *testing.T, url string, n int) Options {
	t.Helper()
	t.Setenv("OPENAI_API_KEY", "")
	o := Spec.Defaults()
	o.N, o.PerSeed, o.Out = n, []int{2, 2}, filepath.Join(t.TempDir(), "run")
	o.Writer.BaseURL, o.Writer.Model, o.Writer.Timeout = url, "m", 3*time.Second
	return o
}

// rowsOf reads a file of JSON lines.
func rowsOf[T any](t *testing.T, o Options, name string) []T {
	t.Helper()
	rows, err := run.ReadJournal[T](filepath.Join(o.Out, name))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestModelWrites: with a schema or without, a server in trouble or not, the same items come out, each question is
// answered once, and the command said again asks nothing.
func TestModelWrites(t *testing.T) {
	var want []byte
	for name, server := range map[string]testkit.JudgeOptions{
		"structured": {}, "no schema": {NoSchema: true}, "in trouble": {Faults: 0.2, Stall: time.Minute, Seed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var structured atomic.Int32
			var mu sync.Mutex
			seen := map[string]int{}
			server.Converse = func(messages []string, schema bool) string {
				if schema {
					structured.Add(1)
				}
				mu.Lock()
				defer mu.Unlock()
				seen[strings.Join(messages, "\n")]++
				return speaker(messages[0])
			}
			s := testkit.StartJudge(t, server)
			o := options(t, s.URL, 9)
			o.Writer.Timeout = 300 * time.Millisecond
			result, err := Run(t.Context(), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(result.Summary, o.Out+"/items.jsonl: 18 of 18 items pass the gates\n") {
				t.Error(result.Summary)
			}
			items, _, err := ci.Read(filepath.Join(o.Out, ItemsName))
			if err != nil || len(items) != 18 {
				t.Fatal(len(items), err)
			}
			text, _ := os.ReadFile(filepath.Join(o.Out, ItemsName))
			if want == nil {
				want = text
			} else if string(want) != string(text) {
				t.Error("other items")
			}
			if got := structured.Load() == 0; got != server.NoSchema {
				t.Errorf("%d structured replies", structured.Load())
			}
			if len(seen) != 27 {
				t.Errorf("%d questions, want 9 for vignettes and 18 for items", len(seen))
			}
			all, _ := s.Requests()
			if _, err := Run(t.Context(), o, nil); err != nil {
				t.Error(err)
			}
			if again, _ := s.Requests(); again != all {
				t.Errorf("%d requests more", again-all)
			}
		})
	}
}

// TestRepair: each kind of bad reply is sent back once with what is wrong, and the second reply counts; an item that
// stays bad is rejected with its reasons.
func TestRepair(t *testing.T) {
	faults := []struct{ task, from, to, says string }{
		{"task 1-1", `{`, `[`, "there is no JSON object in it"},
		{"task 1-2", "\n```", "", ""}, // a fence left open does no harm
		{"task 2-1", `"keyword":"q`, `"keyword":"z`, "verbatim: required keyword.Note0: "},
		{"task 2-2", `"label":"restricted"`, `"label":"secret"`, "label \"secret\": want required or restricted"},
		{"task 3-1", `"key":"Note1"`, `"key":"PrivateNote"`, `the word "private" gives the label away`},
		{"task 3-2", `"user_task"`, `"task"`, "user_task or information is missing"},
		{"task 4-1", `},{`, `}{`, "it is not valid JSON"},
		{"task 4-2", `"Note3"`, `"Note0"`, "the key is there twice"},
		{"order 5", `"a chat"`, `"Name "`, `"Name " is required and restricted`},
		{"order 6", `"sender":"user"`, `"sender":""`, "vignette 1: sender is missing or empty"},
		{"order 7", `{"user_intention":"task 7-2"`, `{"user_intention":""`, "vignette 2: user_intention is missing"},
	}
	hopeless := map[string]bool{"task 3-1": true, "order 7": true}
	var mu sync.Mutex
	complaints := map[string]string{}
	s := testkit.StartJudge(t, testkit.JudgeOptions{Converse: func(messages []string, _ bool) string {
		name := ""
		if m := orderLine.FindStringSubmatch(messages[0]); m != nil {
			name = "order " + m[2]
		} else {
			name = taskLine.FindStringSubmatch(messages[0])[1]
		}
		reply := speaker(messages[0])
		for _, f := range faults {
			if f.task != name {
				continue
			}
			if len(messages) == 3 {
				mu.Lock()
				complaints[name] = messages[2]
				mu.Unlock()
			}
			if len(messages) == 1 || hopeless[name] {
				reply = strings.ReplaceAll(reply, f.from, f.to)
			}
		}
		return reply
	}})
	o := options(t, s.URL, 8)
	result, err := Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		if got := complaints[f.task]; (got == "") != (f.says == "") || !strings.Contains(got, f.says) {
			t.Errorf("%s: complaint %q, want %q in it", f.task, got, f.says)
		}
	}
	if !strings.Contains(result.Summary, "items.jsonl: 14 of 15 items pass the gates; 1 do not: neutral key 1 (") {
		t.Error(result.Summary)
	}
	rejected := rowsOf[Rejected](t, o, RejectedName)
	if len(rejected) != 1 || rejected[0].ID != "0003-1" || rejected[0].Item.Seed.UserIntention != "task 3-1" ||
		!slices.Equal(rejected[0].Findings, []records.Finding{{Gate: "neutral key",
			Place: "dataset_item.information.PrivateNote", Reason: `the word "private" gives the label away`}}) {
		t.Errorf("%+v", rejected)
	}
	var sum Summary
	expect.Decode(t, filepath.Join(o.Out, "summary.json"), &sum)
	if sum.Accepted != 14 || sum.Rejected != 1 || sum.Repaired != 10 || sum.Seeds != 8 ||
		sum.Gates["neutral key"] != 1 || sum.Model != "m" || sum.Fruitless != 0 {
		t.Errorf("%+v", sum)
	}
}

// TestRejects: replies that stay unusable are counted and kept, with the reply; copies are rejected.
func TestRejects(t *testing.T) {
	s := testkit.StartJudge(t, testkit.JudgeOptions{Converse: func(messages []string, _ bool) string {
		switch p := messages[0]; {
		case strings.Contains(p, "order number 2 of"), strings.Contains(p, "task 3-1\n"):
			return "I would rather not."
		default:
			return speaker(strings.ReplaceAll(p, "task 4-2", "task 4-1"))
		}
	}})
	o := options(t, s.URL, 5)
	result, err := Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"6 of 8 items pass the gates; 2 do not: schema 1, duplicate 1 (",
		"1 of 5 seeds have no vignettes"} {
		if !strings.Contains(result.Summary, part) {
			t.Error(result.Summary)
		}
	}
	rejected := rowsOf[Rejected](t, o, RejectedName)
	if len(rejected) != 2 || rejected[0].Reply != "I would rather not." || rejected[0].Item != nil ||
		rejected[0].Findings[0].Reason != "there is no JSON object in it" ||
		rejected[1].Findings[0].Reason != "100 % of its triples of words are those of 0004-1" {
		t.Errorf("%+v", rejected)
	}
}

// TestProse: a model that writes no JSON is stopped in one line, after few questions, and another one takes its place.
func TestProse(t *testing.T) {
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "Well, privacy\nmatters." }})
	for _, n := range []int{3, 60} {
		o := options(t, s.URL, n)
		o.Writer.Parallel = 1
		before, _ := s.Requests()
		_, err := Run(t.Context(), o, nil)
		expect.Error(t, err,
			fmt.Sprintf("the model writes no vignettes: no reply to %d questions can be used", min(n, 10)),
			"there is no JSON object in it", `"Well, privacy matters."`, "want another model")
		if all, _ := s.Requests(); all-before > 22 {
			t.Errorf("%d requests", all-before)
		}
		good := testkit.StartJudge(t, testkit.JudgeOptions{Converse: speak})
		o.Writer.BaseURL, o.Writer.Model = good.URL, "k"
		if _, err := Run(t.Context(), o, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestInterrupted: a stop in either stage costs the questions under way, which are asked again, and no others.
func TestInterrupted(t *testing.T) {
	for _, at := range []int32{4, 15} { // of 9 and 18
		var asked atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		s := testkit.StartJudge(t, testkit.JudgeOptions{Watch: func(string) {
			if asked.Add(1) == at {
				cancel()
			}
		}, Converse: speak})
		o := options(t, s.URL, 9)
		o.Writer.Parallel = 1
		_, err := Run(ctx, o, nil)
		if !errors.Is(err, recipe.ErrInterrupted) || !strings.HasSuffix(err.Error(), "; the same command continues") {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), o, nil); err != nil {
			t.Fatal(err)
		}
		if asked.Load() != 27 {
			t.Errorf("%d questions, want each of 27 once", asked.Load())
		}
	}
}

// TestBudget: a spent budget stops in one line, and the next call continues.
func TestBudget(t *testing.T) {
	s := testkit.StartJudge(t, testkit.JudgeOptions{Converse: speak})
	o := options(t, s.URL, 5)
	o.Writer.MaxRequests = 9
	_, err := Run(t.Context(), o, nil)
	expect.Error(t, err, "writer: the budget is spent: 9 requests", "run the same again to continue")
	if _, err := Run(t.Context(), o, nil); err != nil {
		t.Error(err)
	}
	if all, _ := s.Requests(); all != 15 {
		t.Errorf("%d requests", all)
	}
}

// TestAnotherRun: a folder with something else in it is left alone.
func TestAnotherRun(t *testing.T) {
	s := testkit.StartJudge(t, testkit.JudgeOptions{Converse: speak})
	o := options(t, s.URL, 2)
	if _, err := Run(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	seeds, _ := os.ReadFile(filepath.Join(o.Out, SeedsName))
	for says, change := range map[string]func(*Options){
		`n "2", now it is "3"`:                   func(o *Options) { o.N = 3 },
		`model "m", now it is "k"`:               func(o *Options) { o.Writer.Model = "k" },
		`domains "Hospitality,Healthcare,`:       func(o *Options) { o.Domains = []string{"Work"} },
		`seed "1", now it is "2": continue with`: func(o *Options) { o.Seed = 2 },
	} {
		other := o
		change(&other)
		_, err := Run(t.Context(), other, nil)
		expect.Error(t, err, o.Out+": it was begun with "+says, "name another --out DIR")
		if again, _ := os.ReadFile(filepath.Join(o.Out, SeedsName)); !bytes.Equal(again, seeds) || len(seeds) == 0 {
			t.Errorf("a refused run changes the seeds of the one that is there: %s", again)
		}
	}
	o.Out = t.TempDir()
	expect.Write(t, filepath.Join(o.Out, "config.yaml"), "command: mappo\n")
	_, err := Run(t.Context(), o, nil)
	expect.Error(t, err, "out "+o.Out+": it has a run of posttrain mappo: name another folder")
	os.Rename(filepath.Join(o.Out, "config.yaml"), filepath.Join(o.Out, "notes.txt"))
	_, err = Run(t.Context(), o, nil)
	expect.Error(t, err, o.Out+" is not empty (it holds notes.txt)")
}

// TestNoCache: where replies cannot be kept, one line says so.
func TestNoCache(t *testing.T) {
	o := options(t, "http://localhost:1/v1", 1)
	o.Writer.Cache = filepath.Join(t.TempDir(), "no", "such", "replies.jsonl")
	if _, err := Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), o.Writer.Cache) {
		t.Errorf("found %v, want an error that names the file", err)
	}
}
