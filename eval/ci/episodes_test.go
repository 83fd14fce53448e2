package ci

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/rollout"
)

// courier is a server's agent: it finds the documents, reads the first and sends what that says. native: it calls tools
// as servers do, otherwise as text.
func courier(t *testing.T, native bool) func(request []byte) string {
	action := regexp.MustCompile(`call (send_\w+) with to "([^"]+)"`)
	return func(request []byte) string {
		var r struct {
			Messages []struct{ Role, Content string }
			Tools    json.RawMessage
		}
		if err := json.Unmarshal(request, &r); err != nil {
			t.Error(err)
		}
		if (r.Tools != nil) != native {
			t.Errorf("tools %s, want native %v", r.Tools, native)
		}
		to := action.FindStringSubmatch(r.Messages[0].Content)
		last := strings.TrimPrefix(r.Messages[len(r.Messages)-1].Content, "Observation: ")
		name, arguments := "find", map[string]string{}
		switch len(r.Messages) {
		case 3:
			id, _, _ := strings.Cut(last, ", ")
			name, arguments = "read", map[string]string{"id": id}
		case 5:
			name, arguments = to[1], map[string]string{"to": to[2], "body": last}
		}
		text, _ := json.Marshal(arguments)
		if native {
			return fmt.Sprintf(`{"content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": %q, `+
				`"arguments": %q}}]}`, name, text)
		}
		reply, _ := json.Marshal(map[string]string{"content": fmt.Sprintf("Action: %s\nAction Input: %s", name, text)})
		return string(reply)
	}
}

// TestEpisodesOnAServer: by tool_calls and by text the same is sent, which leaks; a run goes on where it was stopped, and
// the limit of turns cuts episodes.
func TestEpisodesOnAServer(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	for _, c := range []struct {
		calls string
		turns int
	}{{"", 5}, {"text", 5}, {"", 2}} {
		asked := 0
		act := courier(t, c.calls == "")
		server := testkit.StartJudge(t, testkit.JudgeOptions{Act: func(request []byte) string {
			asked++
			return act(request)
		}})
		set := []string{"n=3", "seed=5", fmt.Sprint("episodes.turns=", c.turns), "episodes.policy=drawn", "agent.model=",
			"agent.base_url=" + server.URL, "agent.api_model=m", "reward.format=answer", "agent.parallel=1"}
		if c.calls != "" {
			set = append(set, "calls="+c.calls)
		}
		o, err := Benchmark.Spec.Load(config.Input{Overrides: testkit.Overrides(t, set...)})
		if err != nil {
			t.Fatal(err)
		}
		o.Dir = filepath.Join(t.TempDir(), "run")
		for again := range 2 { // the second run, of the folder's config, asks nothing
			if again > 0 {
				dir := o.Dir
				if o, err = Benchmark.Spec.Load(config.Input{Path: filepath.Join(dir, "config.yaml")}); err != nil {
					t.Fatal(err)
				}
				o.Dir = dir
			}
			got, _, err := Benchmark.Run(t.Context(), *o, nil)
			if err != nil {
				t.Fatal(err)
			}
			all, whole := got.Report.All, c.turns == 5
			if sent := all.Integrity.Share().Count == 0 && all.Format.Share().Count == 3; sent != whole ||
				(all.Cut.Share().Count == 3) == whole {
				t.Errorf("%+v: %v", c, got)
			}
		}
		if want := 3 * min(c.turns, 3); asked != want {
			t.Errorf("%+v: asked %d times, want %d", c, asked, want)
		}
	}
}

// TestEpisodesHere: a model in this process; the embedded one has not learnt episodes.
func TestEpisodesHere(t *testing.T) {
	o, err := Benchmark.Spec.Load(config.Input{Overrides: testkit.Overrides(t, "n=2", "episodes.turns=2", "agent.backend=go",
		"agent.max_new_tokens=8", "episodes.policy=../../configs/gate-norms.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	o.Dir = filepath.Join(t.TempDir(), "run")
	got, _, err := Benchmark.Run(t.Context(), *o, nil)
	if err != nil || got.Report.All.Items != 8 || got.Report.All.Format.Share().Count != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for set, want := range map[string]string{
		"calls=text":                                         "calls text: it is about episodes: want turns above 0",
		"episodes.turns=2 prompt=cot":                        "prompt cot: an episode's prompt has no information",
		"episodes.turns=2 reward.format=strict":              "reward.format strict",
		"episodes.turns=2 prefill=true":                      "prefill true: an episode has several messages: want false",
		"episodes.turns=2 calls=native":                      "calls native: of a model in this process",
		"episodes.turns=2 data=x.json episodes.policy=drawn": "episodes.policy drawn: the items are made from its norms",
		"episodes.policy=item":                               "it is about episodes: want turns above 0",
	} {
		_, err := Benchmark.Spec.Load(config.Input{Overrides: testkit.Overrides(t, strings.Fields(set)...)})
		expect.Error(t, err, want)
	}
}

// TestEpisodesOfARun: a ci-rl run's episodes are measured with its limits. Its judge is not asked, and a warning says so;
// another says that a server which counts no tokens cannot keep to a limit of them.
func TestEpisodesOfARun(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := `command: ci-rl
model: embedded
data: {train: embedded, scenarios: 40, prompt: plain}
agent: {turns: 5, tokens: 900, policy: drawn}
reward: {format: answer}
judge: {model: careful, base_url: "http://localhost:9/v1"}
`
	expect.Write(t, path, text)
	server := testkit.StartJudge(t, testkit.JudgeOptions{Act: courier(t, true)})
	o, err := Benchmark.Spec.Load(config.Input{Overrides: testkit.Overrides(t, "run="+path, "agent.model=",
		"agent.base_url="+server.URL, "agent.api_model=m", "agent.parallel=1")})
	if err != nil {
		t.Fatal(err)
	}
	o.Dir = filepath.Join(t.TempDir(), "run")
	got, _, err := Benchmark.Run(t.Context(), *o, nil)
	if err != nil || o.Episodes.Tokens != 900 || got.Report.All.Format.Share().Count != 4 {
		t.Fatalf("%v, %+v, %v", err, o.Episodes, got)
	}
	for _, want := range []string{"the run counts what its judge (judge.model careful) calls a leak, too",
		"the server does not count the tokens of prompts"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is not in %v", want, got)
		}
	}
}

// TestEpisode: thoughts count that the prompt has opened; a message beyond the limit of tokens is not heard.
func TestEpisode(t *testing.T) {
	for _, c := range []struct {
		output string
		opened bool
		tokens int // the limit, of 40
		fault  string
		cut    bool
	}{
		{"<think>I think.</think>", false, 0, "", false},
		{"I think.</think>", true, 0, "", false},
		{"", false, 0, "no <think>", false},
		{"I think.</think>", true, 40, "", false},
		{"I think.</think>", true, 39, "no send_", true},
	} {
		o := Benchmark.Defaults()
		o.Agent.BaseURL, o.Agent.APIModel, o.Episodes = "http://localhost:9/v1", "m", rl.Agent{Turns: 3, Tokens: c.tokens}
		item := ci.SynthesizeHeldOut(1, 1)[0]
		item.Stage(0, false)
		tool, to := item.Sends()
		said := []bench.Answer{{Output: c.output + fmt.Sprintf("\n<tool_call>\n{\"name\": %q, \"arguments\": {\"to\": %q, "+
			"\"body\": \"x\"}}\n</tool_call>", tool, to), Opened: c.opened, Asked: 30, Tokens: 10, Reason: rollout.EOS}}
		e, b := &asking{Options: &o}, &bench.Protocol{}
		if err := e.openEpisodes([]ci.Item{item}, func(int) uint64 { return 0 }, b); err != nil {
			t.Fatal(err)
		}
		got, err := e.episode(0, 0, said)
		if err != nil || !strings.HasPrefix(got.Score.Fault, c.fault) || (got.Score.Fault == "") != (c.fault == "") ||
			got.Cut != c.cut || (got.Answer.Reason == rollout.Length) != c.cut || got.Thinks != (c.output != "") {
			t.Errorf("%+v: %v, %+v", c, err, got)
		}
		if next, err := b.Items[0].Then(said); err != nil || next != nil || (b.Settings["tokens"] == "") != (c.tokens == 0) {
			t.Errorf("%+v: %v, %v, %v", c, next, err, b.Settings)
		}
	}
}
