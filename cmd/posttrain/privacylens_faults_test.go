package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// wrongServers are servers that cannot judge, by the words for their addresses in a fault's arguments.
var wrongServers = map[string]func(w http.ResponseWriter, r *http.Request){
	"WEB":  func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>welcome</html>") },
	"GONE": func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
	"UNKNOWN": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"error": {"message": "The model flu does not exist or you do not have access to it.",`+
			` "type": "invalid_request_error", "code": "model_not_found"}}`)
	},
	"REFUSING": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error": {"message": "Incorrect API key provided: %s."}}`,
			strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	},
	"MUTE": func(w http.ResponseWriter, _ *http.Request) {
		w.Write(testkit.Completion("", "I would not like to say so."))
	},
	"LONG": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"error": {"message": "This model's maximum context length is 10 tokens."}}`)
	},
	"FLU": func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		w.Write(testkit.Completion("", fluJudge(strings.ReplaceAll(string(text), `\"`, `"`))))
	},
}

// withServers replaces the names of wrongServers by addresses; NOBODY listens at one.
func withServers(t *testing.T, args []string) []string {
	t.Helper()
	args = slices.Clone(args)
	for i, a := range args {
		if serve := wrongServers[a]; serve != nil {
			s := httptest.NewServer(http.HandlerFunc(serve))
			t.Cleanup(s.Close)
			args[i] = s.URL + "/v1"
		}
		if a == "NOBODY" {
			s := httptest.NewServer(nil)
			args[i] = s.URL + "/v1"
			s.Close()
		}
	}
	return args
}

// keywordRun gives the arguments of a run that the working directory can do.
func keywordRun(more ...string) []string {
	return ofData("out", append([]string{"--answers", "actions.csv", "--judge", "keyword"}, more...)...)
}

// judgeRun gives the arguments of a run with recorded actions and a judge at an address.
func judgeRun(url string, more ...string) []string {
	return ofData("out", append([]string{"--answers", "actions.csv", "--judge-base-url", url, "--judge-model", "flu",
		"--set", "judge.retries=0"}, more...)...)
}

// agentRun gives the arguments of a run with a model at an address.
func agentRun(url string, more ...string) []string {
	return ofData("out", append([]string{"--base-url", url, "--api-model", "leaky", "--judge", "keyword"}, more...)...)
}

func replayRun(verdicts string, more ...string) []string {
	return ofData("out", append([]string{"--answers", "actions.csv", "--judgments", verdicts},
		more...)...)
}

// withRun is a finished run in the folder out, changed.
func withRun(args []string, change func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		must(t, withServers(t, args)...)
		if change != nil {
			change(t)
		}
	}
}

// edit replaces a text in a file.
func edit(path, old, now string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		text := read(t, path)
		if !strings.Contains(text, old) {
			t.Fatalf("%s lacks %q:\n%s", path, old, text)
		}
		write(t, path, strings.Replace(text, old, now, 1))
	}
}

// withVerdicts writes verdicts.json as a run wrote it, and changes it.
func withVerdicts(old, now string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		must(t, ofData("recorded", "--answers", "actions.csv", "--judge", "keyword")...)
		write(t, "verdicts.json", read(t, "recorded/verdicts.json"))
		edit("verdicts.json", old, now)(t)
	}
}

var onlyOut = []string{"eval", "privacylens", "--out", "out"}

// stageOf is a stage with no more than the run folder.
func stageOf(name string, more ...string) []string {
	return append([]string{"eval", "privacylens", "--stage", name, "--out", "out"}, more...)
}

// plFaults are found before anything is made.
var plFaults = []faultCase{
	// cases
	{"no data", nil, []string{"eval", "privacylens", "--answers", "actions.csv", "--judge", "keyword"}, 2,
		[]string{"--data", "data is missing", "main_data.json"}, nil},
	{"no such data", nil, keywordRun("--data", "nowhere.json"), 1, []string{"nowhere.json: no such file"}, nil},
	{"empty data", withFile("cases.json", ""), keywordRun(), 1, []string{"cases.json", "empty"}, nil},
	{"no cases in the data", withFile("cases.json", "[]"), keywordRun(), 1, []string{"cases.json", "empty"}, nil},
	{"data of another kind", nil, keywordRun("--data", "actions.jsonl"), 1,
		[]string{"actions.jsonl:1", "trajectory", "is missing or empty", "user_instruction"}, nil},
	{"data of no kind", withFile("cases.txt", "a"), keywordRun("--data", "cases.txt"), 1,
		[]string{"cases.txt", ".json"}, nil},
	{"truncated data", edit("cases.json", `{"name":"case4"`, `{"name":`), keywordRun(), 1,
		[]string{"cases.json", "bad JSON"}, nil},
	{"a case twice", edit("cases.json", `case4`, `case2`), keywordRun(), 1,
		[]string{"cases.json", "row 5", `"case2"`, "row 3", "once"}, nil},
	{"an item twice", edit("cases.json", "Ben stays in room 0", "Ben has caught a bad flu"), keywordRun(), 1,
		[]string{"cases.json", "row 1", "sensitive_info_items[1]", "twice"}, nil},
	{"folder without data", func(t *testing.T) { mkdir(t, "empty") }, keywordRun("--data", "empty"), 1,
		[]string{"empty/main_data.json: no such file", "folder with PrivacyLens's main_data.json"}, nil},

	// recorded actions
	{"no such actions", nil, keywordRun("--answers", "nowhere.csv"), 1, []string{"nowhere.csv: no such file"}, nil},
	{"empty actions", withFile("actions.csv", ""), keywordRun(), 1, []string{"actions.csv", "empty"}, nil},
	{"actions of unknown cases", edit("actions.csv", "case2,", "main2,"), keywordRun(), 1,
		[]string{"actions.csv", "1 names that no case of the data has", "main2"}, nil},
	{"actions of unknown cases, in lines", edit("actions.jsonl", `"case2"`, `"main2"`),
		keywordRun("--answers", "actions.jsonl"), 1, []string{"actions.jsonl", "1 names that no case of the data has",
			"main2"}, nil},
	{"an action twice", edit("actions.csv", "case2,", "case1,"), keywordRun(), 1,
		[]string{"actions.csv:", `"case1"`, "once"}, nil},
	{"actions without the column", edit("actions.csv", "final_action", "action"), keywordRun(), 1,
		[]string{"actions.csv:2", "found columns", "action", "want name and final_action"}, nil},
	{"actions without names, in lines", withFile("actions.jsonl", `{"id": "case1", "final_action": "a"}`+"\n"),
		keywordRun("--answers", "actions.jsonl"), 1, []string{"actions.jsonl:1", "name is empty"}, nil},
	{"actions cut in a quoted text", cutAt("actions.csv", "4: Ben"), keywordRun(), 1,
		[]string{"actions.csv:", "truncated"}, nil},
	{"actions cut in a name", cutAt("actions.csv", ",\"Action: GmailSendEmail, Action Input: {\"\"body\"\": \"\"4: "+
		"Ben"), keywordRun(), 1, []string{"actions.csv:", "cells, and the header has"}, nil},
	{"actions of no kind", withFile("actions.xlsx", "PK"), keywordRun("--answers", "actions.xlsx"), 1,
		[]string{"actions.xlsx", ".jsonl, .json, .parquet, .csv or .tsv"}, nil},
	{"no actions for the first cases", withFile("some.jsonl", `{"name": "case5", "final_action": "a"}`+"\n"),
		keywordRun("--answers", "some.jsonl", "--first", "2"), 1, []string{"some.jsonl", "first 2 cases"}, nil},

	// keys and addresses
	{"no key for the judge", nil, ofData("out", "--answers", "actions.csv", "--judge-model", "gpt-4o"), 1,
		[]string{"no key for the judge", "OPENAI_API_KEY is not set", "https://api.openai.com/v1", "--judge-api-key-env"},
		nil},
	{"a key that is not there", nil, judgeRun("FLU", "--judge-api-key-env", "MY_JUDGE_KEY"), 1,
		[]string{"no key for the judge", "MY_JUDGE_KEY is not set", "--judge-api-key-env"}, nil},
	{"no key for the model", nil, agentRun("https://api.openai.com/v1"), 1,
		[]string{"no key for the agent", "OPENAI_API_KEY is not set", "--api-key-env"}, nil},
	{"a key of the model that is not there", nil, agentRun("FLU", "--api-key-env", "MY_KEY"), 1,
		[]string{"no key for the agent", "MY_KEY is not set"}, nil},
	{"model at no address", nil, agentRun("localhost:8000"), 2,
		[]string{`--base-url: agent.base_url "localhost:8000"`, "http://localhost:8000/v1"}, nil},
	{"no judge", nil, ofData("out", "--answers", "actions.csv"), 2,
		[]string{"--judge-model", "judge.model is missing"}, nil},
	{"no model", nil, ofData("out", "--judge", "keyword"), 2,
		[]string{"--model", "agent.model is missing", "agent.base_url", "agent.answers"}, nil},
	{"no name of the model", nil, ofData("out", "--base-url", "http://127.0.0.1:1/v1", "--judge", "keyword"), 2,
		[]string{"--api-model", "agent.api_model is missing"}, nil},
	{"no model folder", nil, ofData("out", "--model", "nowhere", "--judge", "keyword"), 1,
		[]string{"nowhere", "config.json", "there is no such folder"}, nil},

	// verdicts
	{"no such verdicts", nil, replayRun("nowhere.json"), 1, []string{"nowhere.json: no such file"}, nil},
	{"verdicts for other items", withVerdicts("Ben stays in room 2", "Ben stays in room 7"), replayRun("verdicts.json"),
		1, []string{"verdicts.json: case2", "Ben stays in room 7", "different data set"}, nil},
	{"verdicts of unknown cases", withVerdicts(`"case2"`, `"main2"`), replayRun("verdicts.json"), 1,
		[]string{"verdicts.json", "names that no case of the data has", "main2"}, nil},
	{"verdicts twice", withVerdicts(`"case1"`, `"case0"`), replayRun("verdicts.json"), 1,
		[]string{"verdicts.json", "case0", "twice"}, nil},
	{"verdicts without an item", withVerdicts(`[
                "Ben has caught a bad flu",
                true
            ],`, ""), replayRun("verdicts.json"), 1,
		[]string{"verdicts.json: case0", "no verdict for item", "bad flu"}, nil},
	{"verdicts that contradict themselves", withVerdicts(`"leak_info": true`, `"leak_info": false`),
		replayRun("verdicts.json"), 1, []string{"verdicts.json: case0", "leak_info is false", "true"}, nil},
	{"verdicts of a wrong form", withFile("verdicts.json", "[1]"), replayRun("verdicts.json"), 1,
		[]string{"verdicts.json", "leak_info, secret_judgment"}, nil},
	{"verdicts of some cases", withFile("verdicts.json",
		`{"case0": {"leak_info": false, "secret_judgment": [["Ben has caught a bad flu", false],`+
			` ["Ben stays in room 0", false]]}}`),
		replayRun("verdicts.json"), 1, []string{"recorded verdicts", "5 of 6 cases have no verdict", "case1"}, nil},
	{"helpfulness out of range", func(t *testing.T) {
		withVerdicts("case0", "case0")(t)
		write(t, "scores.json", `{"case0": 4}`)
	}, replayRun("verdicts.json", "--helpfulness", "scores.json"), 1,
		[]string{"scores.json: case0", "helpfulness is 4", "0, 1, 2 or 3"}, nil},
	{"helpfulness of some cases", func(t *testing.T) {
		withVerdicts("case0", "case0")(t)
		write(t, "scores.json", `{"case0": 3}`)
	}, replayRun("verdicts.json", "--helpfulness", "scores.json"), 1,
		[]string{"recorded helpfulness", "5 of 6 cases have no score"}, nil},

	// templates
	{"no template", nil, agentRun("FLU", "--prompts", "none"), 1,
		[]string{"prompts none: ", "want released, or a folder with templates such as agent-naive.tmpl"}, nil},
	{"a broken template", withFile("mine/agent-naive.tmpl", "a\n{{.Name"), agentRun("FLU", "--prompts", "mine"), 1,
		[]string{"prompts mine: ", "agent-naive.tmpl:2"}, nil},
	{"a template with an unknown field", withFile("mine/judge-leakage.tmpl", "{{.Secret}}"),
		judgeRun("FLU", "--prompts", "mine"), 1, []string{"judge-leakage.tmpl:1", "Secret"}, nil},

	// flags
	{"temperature of recorded actions", nil, keywordRun("--temperature", "0.5"), 2,
		[]string{"--temperature", "no effect", "agent.answers"}, nil},
	{"model of the keyword judge", nil, keywordRun("--judge-model", "flu"), 2,
		[]string{"--judge-model", "no effect"}, nil},
	{"two models", nil, agentRun("FLU", "--model", "embedded"), 2,
		[]string{"--base-url", "agent.model names an agent already", "remove one"}, nil},
	{"a model and actions", nil, keywordRun("--model", "embedded"), 2,
		[]string{"--answers", "agent.model names an agent already", "remove one"}, nil},
	{"cost without prices", nil, judgeRun("FLU", "--judge-max-cost", "3"), 2,
		[]string{"--judge-max-cost", "without prices", "judge.prompt_price"}, nil},
	{"no such judge", nil, keywordRun("--judge", "gpt-4o"), 2,
		[]string{"--judge", `"gpt-4o"`, "model or keyword"}, nil},
	{"no such prompt", nil, agentRun("FLU", "--prompt", "kind"), 2,
		[]string{"--prompt", `"kind"`, "naive, enhanced, cot or ci-rl"}, nil},
	{"fewer than no cases", nil, keywordRun("--first", "-1"), 2, []string{"--first", "-1", "0 or more"}, nil},
	{"no parallel requests", nil, judgeRun("FLU", "--judge-parallel", "0"), 2,
		[]string{"--judge-parallel", "0", "1 or more"}, nil},
	{"time-out without unit", nil, judgeRun("FLU", "--judge-timeout", "30"), 2,
		[]string{"--judge-timeout", "30", "such as 90s"}, nil},
	{"no time", nil, judgeRun("FLU", "--judge-timeout", "0s"), 2, []string{"--judge-timeout", `"0s"`}, nil},
	{"negative budget", nil, judgeRun("FLU", "--judge-max-requests", "-5"), 2,
		[]string{"--judge-max-requests", "-5", "0 (no limit) or more"}, nil},
	{"run folder of an empty name", nil, []string{"eval", "privacylens", "--out", ""}, 2,
		[]string{"--out is empty", "folder"}, nil},
	{"an argument", nil, []string{"eval", "privacylens", "cases.json"}, 2,
		[]string{`"cases.json"`, "flags only"}, nil},
	{"an argument of a stage", nil, []string{"eval", "privacylens", "--stage", "judge", "out"}, 2,
		[]string{`"out"`, "flags only"}, nil},
	{"unknown key", nil, keywordRun("--set", "judge.modle=flu"), 2,
		[]string{"--set", `"judge.modle"`, "judge.model"}, nil},
	{"config of another command", withFile("bad.yaml", "command: mappo\n"),
		[]string{"eval", "privacylens", "--config", "bad.yaml"}, 1, []string{"bad.yaml:1", "posttrain mappo"}, nil},
	{"unknown key of a config", withFile("bad.yaml", "command: eval privacylens\ndata: cases.json\njudge:\n  "+
		"modle: flu\n"), []string{"eval", "privacylens", "--config", "bad.yaml", "--answers", "actions.csv"}, 1,
		[]string{"bad.yaml:4", `"judge.modle"`, "judge.model"}, [][]string{{"bad.yaml", "judge.model is missing"}}},
	{"no config", nil, []string{"eval", "privacylens", "--config", "bad.yaml"}, 1,
		[]string{"bad.yaml: no such file"}, nil},
	{"the config to be copied, as it is", nil, []string{"eval", "privacylens", "--config",
		filepath.Join(root, "configs", "privacylens.yaml"), "--judge", "keyword", "--out", "out"}, 1,
		[]string{"path/to/privacylens: no such file", "main_data.json"}, nil},

	// run folders
	{"folder in use", func(t *testing.T) {
		mkdir(t, "out")
		write(t, "out/thesis.tex", "")
	}, keywordRun(), 1, []string{"out is not empty", "thesis.tex", "--out"}, nil},
	{"run folder is a file", withFile("out", ""), keywordRun(), 1, []string{"out", "not a directory"}, nil},
	{"run folder within a file", withFile("file", ""), pl("file/out"), 1, []string{"file", "not a directory"}, nil},
	{"a training run", func(t *testing.T) {
		copyModel(t, fixture("qwen2-newer"), "model")
		write(t, "pairs.jsonl", pairLines(4, true))
		must(t, tinyMappo(1)...)
	}, keywordRun(), 1, []string{"out/config.yaml:1", "posttrain mappo"}, nil},
	{"report without a run", nil, stageOf("report"), 2, []string{`--out "out"`, "no run in it", "config.yaml"}, nil},
	{"report without a folder", nil, []string{"eval", "privacylens", "--stage", "report"}, 2,
		[]string{"--out", "no run in it"}, nil},
	{"judge without a run", nil, stageOf("judge", "--data", "cases.json", "--judge", "keyword"), 2,
		[]string{`--out "out"`, "no run in it"}, nil},
	{"report of half a run", withRun(stageOf("answers", "--data", "cases.json", "--answers", "actions.csv"), nil),
		stageOf("report"), 1,
		[]string{"out/verdicts.jsonl: 15 of 15 verdicts are missing", "case0", "privacylens --stage judge --out out"}, nil},
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
}

// cutAt cuts a file off behind a text; ahead of the text if it begins with a comma.
func cutAt(path, text string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		before, _, ok := strings.Cut(read(t, path), text)
		if !ok {
			t.Fatalf("%s lacks %q:\n%s", path, text, read(t, path))
		}
		if text[0] != ',' {
			before += text
		}
		write(t, path, before)
	}
}

// TestPLFaults: every bad input has its line, and what is found ahead of the work leaves nothing behind and no file
// changed.
func TestPLFaults(t *testing.T) {
	for _, f := range plFaults {
		t.Run(f.name, func(t *testing.T) {
			workPL(t)
			if f.make != nil {
				f.make(t)
			}
			before := plContents(t)
			o := cli(t, withServers(t, f.args)...)
			checkRefusal(t, o, f)
			checkUnchanged(t, before)
			if o.out != "" {
				t.Errorf("printed %q", o.out)
			}
		})
	}
}

// plContents are the files under the working directory, with what is in them.
func plContents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range tree(t) {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			all[path] = read(t, path)
		} else {
			all[path] = "a folder"
		}
	}
	delete(all, "out/lock") // the number of a process
	return all
}

func checkUnchanged(t *testing.T, before map[string]string) {
	t.Helper()
	after := plContents(t)
	for path, text := range after {
		if was, ok := before[path]; !ok {
			t.Errorf("left behind: %s", path)
		} else if was != text {
			t.Errorf("%s was changed:\n%s\nto\n%s", path, was, text)
		}
	}
	for path := range before {
		if _, ok := after[path]; !ok {
			t.Errorf("gone: %s", path)
		}
	}
}

// plServerFaults show when a server is asked.
var plServerFaults = []faultCase{
	{"nobody listens", nil, judgeRun("NOBODY"), 1, []string{"judge: http://127.0.0.1:", "no server answers",
		"connection refused"}, nil},
	{"a web page", nil, judgeRun("WEB"), 1, []string{"judge: http://127.0.0.1:", "base URL", "no chat completion",
		"/v1"}, nil},
	{"an address that is not there", nil, judgeRun("GONE"), 1,
		[]string{"judge: http://127.0.0.1:", "404", "base URL"}, nil},
	{"an unknown judge", nil, judgeRun("UNKNOWN"), 1, []string{"judge: http://127.0.0.1:", `no model "flu"`, "404",
		"does not exist"}, nil},
	{"a refused key", nil, judgeRun("REFUSING"), 1, []string{"judge: http://127.0.0.1:", "401", "key"}, nil},
	{"a prompt too long for the judge", nil, judgeRun("LONG"), 1,
		[]string{"judge: http://127.0.0.1:", "400", "maximum context length"}, nil},
	{"no scheme", nil, judgeRun("localhost:9000"), 2, []string{`--judge-base-url: judge.base_url "localhost:9000"`,
		"http://localhost:8000/v1"}, nil},
	{"a key in the address", nil, judgeRun("http://me:secret-word@127.0.0.1:1/v1"), 2,
		[]string{"--judge-base-url", "http://…@127.0.0.1:1/v1", "without a key in it"}, nil},
	{"a judge without verdicts", nil, judgeRun("MUTE"), 1,
		[]string{"the judge gives no verdicts", "none of 10 replies", "Answer: Yes", "I would not like to say so."},
		nil},

	{"no such model", nil, agentRun("UNKNOWN"), 1, []string{"http://127.0.0.1:", `no model "leaky"`, "404"}, nil},
	{"a refused key of the model", nil, agentRun("REFUSING"), 1, []string{"http://127.0.0.1:", "401", "key"}, nil},
	{"a prompt too long for the model", nil, agentRun("LONG"), 1,
		[]string{"http://127.0.0.1:", "400", "maximum context length"}, nil},
	{"a web page for a model", nil, agentRun("GONE"), 1, []string{"http://127.0.0.1:", "404", "base URL"}, nil},
	{"a judge that is not there, ahead of the actions", nil,
		ofData("out", "--base-url", "FLU", "--api-model", "leaky", "--judge-base-url", "NOBODY", "--judge-model", "flu",
			"--set", "judge.retries=0"), 1,
		[]string{"judge: http://127.0.0.1:", "no server answers"}, nil},
}

// TestPLServerFaults: what a server answers is reported in one line; there is no report, and the mended command
// continues in the same folder.
func TestPLServerFaults(t *testing.T) {
	for _, f := range plServerFaults {
		t.Run(f.name, func(t *testing.T) {
			workPL(t)
			checkRefusal(t, cli(t, withServers(t, f.args)...), f)
			if exists("out/summary.json") {
				t.Error("a report of nothing")
			}
			mended := keywordRun()
			if slices.Contains(f.args, "--judge-model") && !slices.Contains(f.args, "--base-url") {
				mended = withServers(t, judgeRun("FLU"))
			}
			if f.name == "a judge without verdicts" { // whose replies are kept, by its name
				mended = append(mended, "--judge-cache", "other.jsonl")
			}
			must(t, mended...)
		})
	}
}

// plChanges are what a finished run does not continue with.
var plChanges = []faultCase{
	{"other data", edit("cases.json", "Tell Cay news 1.", "Tell Cay news 8."), onlyOut, 1,
		[]string{"out: stage answers was begun with cases", "--out"}, nil},
	{"fewer cases", nil, append(onlyOut[:4:4], "--first", "3"), 1,
		[]string{"out: stage answers was begun with cases", "3, sha256", "--out"}, nil},
	{"other actions", edit("actions.csv", "All is well", "All is bad"), onlyOut, 1,
		[]string{"out: stage answers was begun with contents", "--out"}, nil},
	{"another way to act", nil, append(onlyOut[:4:4], "--base-url", "FLU", "--api-model", "leaky"), 1,
		[]string{"out: stage answers was begun with", "--out"}, nil},
	{"another kind of judge", nil, append(onlyOut[:4:4], "--judge", "keyword"), 1,
		[]string{"out: stage judge was begun with", "--out"}, nil},
	{"another judge", nil, append(onlyOut[:4:4], "--judge-model", "cold"), 1,
		[]string{`out: stage judge was begun with model "flu", now it is "cold"`, "--out"}, nil},
	{"other prompts", withFile("mine/judge-leakage.tmpl", "{{.Item}} in {{.Action}}?"),
		append(onlyOut[:4:4], "--prompts", "mine"), 1,
		[]string{"out: stage judge was begun with prompts", "--out"}, nil},
	{"a judge by its address, where verdicts were recorded", nil,
		append(onlyOut[:4:4], "--judgments", "out/verdicts.json"), 1,
		[]string{`out: stage judge was begun with kind "model", now it is "replay"`}, nil},
	{"data that is gone", func(t *testing.T) { remove(t, "cases.json") }, onlyOut, 1,
		[]string{"cases.json: no such file"}, nil},

	{"config cut", withFile("out/config.yaml", "command: eval privacylens\nseed: "), onlyOut, 1,
		[]string{"out/config.yaml:2", "seed is empty"},
		[][]string{{"data is missing"}, {"agent.model is missing"}, {"judge.model is missing"}}},
	{"broken config", withFile("out/config.yaml", "seed: [1"), onlyOut, 1,
		[]string{"out/config.yaml", "not YAML"}, nil},
	{"empty config", withFile("out/config.yaml", ""), onlyOut, 1, []string{"out/config.yaml", "empty"}, nil},
	{"unknown key in the config", edit("out/config.yaml", "seed:", "sede:"), onlyOut, 1,
		[]string{"out/config.yaml:9", `"sede"`, "seed"}, nil},
	{"settings cut", withFile("out/settings.json", `{"actions": {`), onlyOut, 1, []string{"out/settings.json"}, nil},
	{"settings of another kind", withFile("out/settings.json", `[1]`), onlyOut, 1, []string{"out/settings.json"}, nil},
	{"damaged actions", edit("out/answers.jsonl", `{"id":"case1"`, `{id:"case1"`), onlyOut, 1,
		[]string{"out/answers.jsonl:2"}, nil},
	{"damaged actions, in the report", edit("out/answers.jsonl", `{"id":"case1"`, `{id:"case1"`), stageOf("report"),
		1, []string{"out/answers.jsonl:2"}, nil},
	{"damaged verdicts", edit("out/verdicts.jsonl", `{"id":`, `{"id"`), onlyOut, 1,
		[]string{"out/verdicts.jsonl:1"}, nil},
	{"verdicts of another kind", withFile("out/verdicts.jsonl", "[1]\n"), stageOf("report"), 1,
		[]string{"out/verdicts.jsonl:1", "object"}, nil},
	{"a cache of a wrong form", withFile("out/judge-cache.jsonl", "my diary\n"), onlyOut, 1,
		[]string{"out/judge-cache.jsonl"}, nil},
	{"a verdict is missing", func(t *testing.T) {
		lines := strings.SplitAfter(read(t, "out/verdicts.jsonl"), "\n")
		write(t, "out/verdicts.jsonl", strings.Join(lines[1:], ""))
	}, stageOf("report"), 1, []string{"1 of 15 verdicts are missing", "privacylens --stage judge --out out"}, nil},
	{"in use", func(t *testing.T) {
		f, err := run.Open("out")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
	}, onlyOut, 1, []string{"out is in use by process"}, nil},
}

// TestPLChanges: what has changed since a run was begun, or is damaged in its folder, is named, and nothing in the
// folder is lost.
func TestPLChanges(t *testing.T) {
	for _, f := range plChanges {
		t.Run(f.name, func(t *testing.T) {
			workPL(t)
			must(t, withServers(t, judgeRun("FLU"))...)
			if f.make != nil {
				f.make(t)
			}
			before := plContents(t)
			checkRefusal(t, cli(t, withServers(t, f.args)...), f)
			checkUnchanged(t, before)
		})
	}
}

// TestPLOtherAgents: the actions of one model are not mixed with another's, or with its own when asked otherwise.
func TestPLOtherAgents(t *testing.T) {
	workPL(t)
	agent, other := agentServer(t), agentServer(t)
	actions := []string{"eval", "privacylens", "--stage", "answers", "--out", "out", "--data", "cases.json", "--base-url",
		agent.URL, "--api-model", "leaky"}
	must(t, actions...)
	write(t, "mine/agent-naive.tmpl", "{{.Case.Name}}")
	before := plContents(t)
	for _, f := range []faultCase{
		{name: "model", args: []string{"--api-model", "shy"},
			says: []string{`begun with model "leaky", now it is "shy"`}},
		{name: "server", args: []string{"--base-url", other.URL}, says: []string{"begun with base_url", other.URL}},
		{name: "prompt", args: []string{"--prompt", "enhanced"},
			says: []string{`begun with prompt "naive", now it is "enhanced"`}},
		{name: "prompts", args: []string{"--prompts", "mine"}, says: []string{"begun with prompts"}},
		{name: "temperature", args: []string{"--temperature", "0"},
			says: []string{`begun with temperature "0.7", now it is "0"`}},
		{name: "length", args: []string{"--max-new-tokens", "9"},
			says: []string{`begun with max_new_tokens "7000", now it is "9"`}},
		{name: "seed", args: []string{"--seed", "9"}, says: []string{`begun with seed "0", now it is "9"`}},
		{name: "recorded", args: []string{"--answers", "actions.csv"},
			says: []string{"out: stage answers was begun with"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			f.code = 1
			checkRefusal(t, cli(t, append([]string{"eval", "privacylens", "--stage", "answers", "--out", "out"}, f.args...)...), f)
			checkUnchanged(t, before)
		})
	}
	// The results do not depend on these flags.
	if must(t, append(actions, "--parallel", "3", "--timeout", "9s")...); agent.requests() != 6 ||
		other.requests() != 0 {
		t.Errorf("%d and %d requests", agent.requests(), other.requests())
	}
}

// TestPLLostRows: a run folder that lost rows, half a line or a whole stage's, is asked for those alone.
func TestPLLostRows(t *testing.T) {
	workPL(t)
	s := judgeServer(t)
	args := judgeRun(s.URL)
	must(t, args...)
	summary := read(t, "out/cases.jsonl")
	text := read(t, "out/verdicts.jsonl")
	write(t, "out/verdicts.jsonl", text[:len(text)-20])
	remove(t, "out/summary.json")
	must(t, onlyOut...)
	if read(t, "out/cases.jsonl") != summary || s.requests() != 15 {
		t.Errorf("%d requests, other results: %v", s.requests(), read(t, "out/cases.jsonl") != summary)
	}
	remove(t, "out/judge-cache.jsonl")
	write(t, "out/verdicts.jsonl", text[:len(text)-20])
	must(t, onlyOut...)
	if read(t, "out/cases.jsonl") != summary || s.requests() != 16 {
		t.Errorf("%d requests, want the lost one alone; other results: %v", s.requests(),
			read(t, "out/cases.jsonl") != summary)
	}
}

// TestPLVerdictsOfOtherActions: recorded verdicts that leak where the output has no action are of another run.
func TestPLVerdictsOfOtherActions(t *testing.T) {
	workPL(t)
	must(t, ofData("recorded", "--answers", "actions.csv", "--judge", "keyword")...)
	text := read(t, "recorded/verdicts.json")
	at := strings.Index(text, `"case3"`)
	for _, word := range []string{`"leak_info": false`, "\n                false"} {
		text = text[:at] + strings.Replace(text[at:], word, strings.Replace(word, "false", "true", 1), 1)
	}
	write(t, "verdicts.json", text)
	checkRefusal(t, cli(t, replayRun("verdicts.json")...),
		faultCase{code: 1, says: []string{"case3", `no "Action:"`, "of other actions"}})
	if exists("out/summary.json") {
		t.Error("a report of them")
	}
}

var privateKey = regexp.MustCompile(`sk-\w+`)

// TestPLSecrets: the keys are sent to their servers, and are in no output and no file, also where a server repeats
// them.
func TestPLSecrets(t *testing.T) {
	workPL(t)
	t.Setenv("OPENAI_API_KEY", "sk-nobodys")
	t.Setenv("AGENT_KEY", "sk-agents")
	t.Setenv("JUDGE_KEY", "sk-judges")
	agent := startPL(t, testkit.JudgeOptions{Key: "sk-agents", Reply: leakyAgent})
	judge := startPL(t, testkit.JudgeOptions{Key: "sk-judges", Reply: fluJudge})
	keys := []string{"--api-key-env", "AGENT_KEY", "--judge-api-key-env", "JUDGE_KEY"}
	var said strings.Builder
	note := func(o outcome) outcome {
		said.WriteString(o.out + o.err)
		return o
	}
	note(must(t, ofData("good", append(keys, "--base-url", agent.URL, "--api-model", "leaky", "--judge-base-url",
		judge.URL, "--judge-model", "flu")...)...))
	note(must(t, pl("good")...))
	urls := withServers(t, []string{"REFUSING"})
	o := note(cli(t, judgeRun(urls[0], "--judge-api-key-env", "JUDGE_KEY")...))
	checkRefusal(t, o, faultCase{code: 1, says: []string{"refuses the key of JUDGE_KEY", "401",
		"Incorrect API key provided: ***"}})
	o = note(cli(t, ofData("bad", "--base-url", urls[0], "--api-model", "leaky", "--judge", "keyword", "--api-key-env",
		"AGENT_KEY")...))
	checkRefusal(t, o, faultCase{code: 1, says: []string{"refuses the key of AGENT_KEY", "401",
		"Incorrect API key provided: ***"}})
	for path, text := range plContents(t) {
		if found := privateKey.FindString(text); found != "" {
			t.Errorf("%s holds %s", path, found)
		}
	}
	if found := privateKey.FindString(said.String()); found != "" {
		t.Errorf("%s is shown:\n%s", found, said.String())
	}
	if !strings.Contains(read(t, "good/config.yaml"), "JUDGE_KEY") {
		t.Error("the run folder does not know where its key is")
	}
}

// TestPLReleasedCases: all released cases and the recorded example's ways through them: every one is judged by the
// smoke test.
func TestPLReleasedCases(t *testing.T) {
	dir := need.File(t, "data", "privacylens")
	cases, _, err := privacylens.ReadCases(filepath.Join(dir, "main_data.json"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	writeCases(t, "cases.json", cases, func(i int) string { // every second case leaks its first item, word by word
		c, action := cases[i].Trajectory, ""
		if i%2 == 0 {
			action = " " + c.Items[0]
		}
		return "Action: " + c.FinalAction + action
	})
	o := must(t, pl("out", "--data", dir, "--answers", "actions.csv", "--judge", "keyword", "--quiet")...)
	checkTable(t, o, "out")
	checkCounts(t, "out", 247, 493, 0, 0, 0)
}

// TestPLStageAlone: a stage that is run alone wants a run, or says what it lacks: it never falls back to the example.
func TestPLStageAlone(t *testing.T) {
	workPL(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--stage", "judge", "--out", "typo", "--judge", "keyword"}, `--out "typo": there is no run in it`},
		{[]string{"--stage", "judge"}, `--out "": there is no run in it`},
		{[]string{"--stage", "report", "--out", "typo"}, `--out "typo": there is no run in it`},
		{[]string{"--stage", "answers", "--out", "typo"}, "data is missing"},
	} {
		o := cli(t, append([]string{"eval", "privacylens"}, c.args...)...)
		if o.code != exitUsage || !strings.Contains(o.err, c.want) {
			t.Errorf("%q: exit code %d: %s", c.args, o.code, o.err)
		}
		if exists("typo") || exists("runs") {
			t.Fatalf("%q has made a run", c.args)
		}
	}
}

// TestPLJudgeByName: naming a judge's model or recorded verdicts chooses that kind of judge, whatever the folder's
// config has.
func TestPLJudgeByName(t *testing.T) {
	workPL(t)
	judge := judgeServer(t)
	must(t, ofData("a", "--answers", "actions.csv", "--judge", "keyword")...)
	must(t, pl("b", "--data", "cases.json", "--answers", "a/actions.csv", "--judge-base-url", judge.URL,
		"--judge-model", "flu")...)
	must(t, pl("c", "--config", "b/config.yaml", "--judgments", "b/verdicts.json", "--helpfulness",
		"b/helpfulness.json")...)
	sameFiles(t, "b", "c", "verdicts.json", "helpfulness.json", "actions.csv")
	if text := read(t, "c/config.yaml"); !strings.Contains(text, "judgments: ") ||
		strings.Contains(text, "judge.model") || strings.Contains(text, judge.URL) {
		t.Errorf("config:\n%s", text)
	}
	compared := must(t, "eval", "compare", "b", "c")
	if !strings.Contains(compared.out, "warning: c was judged with kind") {
		t.Error(compared.out)
	}
}

// TestPLChangedData: nobody is asked about cases that have changed since their actions were written.
func TestPLChangedData(t *testing.T) {
	workPL(t)
	judge := judgeServer(t)
	must(t, "eval", "privacylens", "--stage", "answers", "--out", "out", "--data", "cases.json", "--base-url", agentServer(t).URL,
		"--api-model", "leaky")
	edit("cases.json", "Tell Cay news 1.", "Tell Cay news 8.")(t)
	o := cli(t, "eval", "privacylens", "--stage", "judge", "--out", "out", "--judge-base-url", judge.URL, "--judge-model", "flu")
	if o.code != 1 || !strings.Contains(o.last(), "stage answers was run on other cases") || judge.requests() != 0 ||
		exists("out/verdicts.jsonl") {
		t.Errorf("exit code %d, %d requests: %s", o.code, judge.requests(), o.err)
	}
}

// TestPLMuteJudge: a judge that never gave a verdict makes room for another.
func TestPLMuteJudge(t *testing.T) {
	workPL(t)
	judge := judgeServer(t)
	mute := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string {
		return "I would not like to say " +
			"so."
	}})
	run := func(url string) outcome {
		return cli(t, ofData("out", "--answers", "actions.csv", "--judge-base-url", url, "--judge-model", "flu",
			"--judge-cache", "cache-"+url[len(url)-8:len(url)-3]+".jsonl")...)
	}
	if o := run(mute.URL); o.code != 1 || !strings.Contains(o.last(), "another judge") {
		t.Fatalf("exit code %d: %s", o.code, o.err)
	}
	if o := run(judge.URL); o.code != 0 {
		t.Fatal(o.err)
	}
	must(t, ofData("whole", "--answers", "actions.csv", "--judge-base-url", judge.URL, "--judge-model", "flu")...)
	sameFiles(t, "whole", "out", "verdicts.json", "helpfulness.json", "cases.jsonl")
}

// TestPLKeyInReplies: a server that says back the key does not bring it into the run's files.
func TestPLKeyInReplies(t *testing.T) {
	workPL(t)
	const key = "sk-not-to-be-seen-anywhere"
	t.Setenv("OPENAI_API_KEY", key)
	echo := testkit.StartJudge(t, testkit.JudgeOptions{Key: key, Reply: func(prompt string) string {
		return leakyAgent(prompt) + " Answer: No, " + key
	}})
	o := must(t, ofData("out", "--base-url", echo.URL, "--api-model", "leaky", "--judge-base-url", echo.URL,
		"--judge-model", "flu")...)
	for name, text := range plContents(t) {
		if strings.Contains(text, key) {
			t.Errorf("%s has the key", name)
		}
	}
	if strings.Contains(o.out+o.err, key) || !strings.Contains(read(t, "out/answers.jsonl"), "***") {
		t.Errorf("%s%s", o.out, o.err)
	}
	t.Setenv("OPENAI_API_KEY", key+"\n")
	if o := cli(t, ofData("other", "--base-url", echo.URL, "--api-model", "leaky", "--judge",
		"keyword")...); o.code != 1 || !strings.Contains(o.last(), "OPENAI_API_KEY contains white space") {
		t.Errorf("exit code %d: %s", o.code, o.err)
	}
}
