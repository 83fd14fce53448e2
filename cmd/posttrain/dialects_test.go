package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval/bench"
)

// dialectServer answers like Azure OpenAI, by deployment, and like vLLM, which continues the beginning of an answer.
type dialectServer struct {
	*httptest.Server
	mu        sync.Mutex
	paths     map[string]int
	beginning map[string]int // by the last message of a request that is to be continued
}

func startDialects(t *testing.T, reply func(prompt string) string) *dialectServer {
	t.Helper()
	s := &dialectServer{paths: map[string]int{}, beginning: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Messages []data.Message
			Continue bool `json:"continue_final_message"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		tokens := 20
		s.mu.Lock()
		s.paths[r.URL.String()+" "+r.Header.Get("Api-Key")]++
		if q.Continue {
			s.beginning[q.Messages[len(q.Messages)-1].Content]++
			tokens = 10
		}
		s.mu.Unlock()
		b, _ := json.Marshal(reply(q.Messages[0].Content))
		fmt.Fprintf(w, `{"choices": [{"finish_reason": "stop", "message": {"content": %s}}],
			"usage": {"prompt_tokens": %d, "completion_tokens": 5}}`, b, tokens)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestPLOfAzure: agent and judge are deployments of Azure resources.
func TestPLOfAzure(t *testing.T) {
	workPL(t)
	agent, judge := startDialects(t, leakyAgent), startDialects(t, fluJudge)
	t.Setenv("AGENT_KEY", "agent-key")
	t.Setenv("JUDGE_KEY", "judge-key")
	o := must(t, ofData("run", "--base-url", agent.URL, "--api-model", "my-gpt", "--api-version", "2024-10-21",
		"--api-key-env", "AGENT_KEY", "--judge-base-url", judge.URL, "--judge-model", "gpt-4o-2024-11-20",
		"--judge-api-version", "2024-12-01-preview", "--judge-api-key-env", "JUDGE_KEY")...)
	if !strings.Contains(o.out, "judge: gpt-4o-2024-11-20") {
		t.Error(o.out)
	}
	if name := plSummary(t, "run").Settings[bench.StageJudge]["model"]; name != "gpt-4o-2024-11-20" {
		t.Errorf("the summary names the judge %q", name)
	}
	const path = "/openai/deployments/%s/chat/completions?api-version=%s %s"
	if n := agent.paths[fmt.Sprintf(path, "my-gpt", "2024-10-21", "agent-key")]; n != 6 || len(agent.paths) != 1 {
		t.Errorf("the agent got %v", agent.paths)
	}
	if want := fmt.Sprintf(path, "gpt-4o-2024-11-20", "2024-12-01-preview", "judge-key"); judge.paths[want] == 0 ||
		len(judge.paths) != 1 {
		t.Errorf("the judge got %v, want %s", judge.paths, want)
	}
	checkCounts(t, "run", 3, 6, 3, 3, 9)
	t.Setenv("OPENAI_API_KEY", "")
	checkRefusal(t, cli(t, ofData("other", "--base-url", agent.URL, "--api-model", "m", "--api-version", "v",
		"--judge", "keyword")...), faultCase{code: 1, says: []string{"OPENAI_API_KEY is not set"}})
}

// TestPLContinues: answers of a server begin with <think> where it continues them, by default with CI-CoT.
func TestPLContinues(t *testing.T) {
	workPL(t)
	s := startDialects(t, func(prompt string) string { return "hm</think><answer>" + leakyAgent(prompt) + "</answer>" })
	must(t, ofData("run", "--base-url", s.URL, "--api-model", "m", "--prompt", "cot", "--continue", "vllm",
		"--judge", "keyword")...)
	if s.beginning[ci.ThinkPrefill] != 7 || !strings.Contains(read(t, "run/config.yaml"), "prefill: true") {
		t.Errorf("%v, want 6 answers and a look before them; %s", s.beginning, read(t, "run/config.yaml"))
	}
	checkCounts(t, "run", 3, 6, 0, 0, 0)
	checkRefusal(t, cli(t, ofData("other", "--base-url", s.URL, "--api-model", "m", "--set", "agent.prefill=true",
		"--judge", "keyword")...), faultCase{code: 2, says: []string{"agent.prefill true", "agent.continue vllm"}})
}

// TestEvalCIContinues: a served model is measured as ci-rl trains it.
func TestEvalCIContinues(t *testing.T) {
	t.Chdir(t.TempDir())
	writeItems(t, "items.json", 4)
	s := startDialects(t, func(string) string { return "hm</think><answer>a</answer>" })
	args := []string{"eval", "ci", "--base-url", s.URL, "--api-model", "m", "--data", "items.json", "--split", "all"}
	must(t, append(args, "--continue", "vllm", "--cot", "--out", "out")...)
	rows := rowsOf(t, "out/cases.jsonl")
	if s.beginning[ci.ThinkPrefill] != 5 || len(rows) != 4 || rows[0].Prefill != ci.ThinkPrefill || rows[0].Fault != "" ||
		!strings.Contains(read(t, "out/summary.json"), `"prefill": true`) {
		t.Errorf("%v, %+v", s.beginning, rows)
	}
	clear(s.beginning)
	if must(t, append(args, "--cot")...); len(s.beginning) > 0 {
		t.Errorf("without continue: %v", s.beginning)
	}
}
