package ci

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
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
		for range 2 { // the second run asks nothing
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
		"episodes.turns=2 episodes.tokens=9":                 "episodes.tokens 9",
		"episodes.turns=2 calls=native":                      "calls native: of a model in this process",
		"episodes.turns=2 data=x.json episodes.policy=drawn": "episodes.policy drawn: the items are made from its norms",
		"episodes.policy=item":                               "it is about episodes: want turns above 0",
	} {
		_, err := Benchmark.Spec.Load(config.Input{Overrides: testkit.Overrides(t, strings.Fields(set)...)})
		expect.Error(t, err, want)
	}
}
