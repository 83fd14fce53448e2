package rl

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/agent"
	"github.com/posttrain/posttrain/rollout/scene"
	"github.com/posttrain/posttrain/rollout/scorer"
)

func agentOptions(t *testing.T, set ...string) *CI {
	t.Helper()
	base := []string{"model=embedded", "data.train=embedded", "data.scenarios=40", "agent.turns=3", "agent.tokens=400",
		"agent.policy=drawn", "data.validation_fraction=0.1", "data.test_fraction=0.2", "sampling.max_new_tokens=24",
		"grpo.prompts_per_step=2", "grpo.group_size=2", "grpo.kl=none", "train.max_steps=1", "backend=go",
		"train.warmup_steps=0"}
	o, err := CISpec.Load(config.Input{Overrides: testkit.Overrides(t, append(base, set...)...)})
	if err != nil {
		t.Fatal(err)
	}
	o.Dir.Out = filepath.Join(t.TempDir(), "run")
	return o
}

// TestAgentItems: the test has unseen norms, of drawn ones and of a policy's file.
func TestAgentItems(t *testing.T) {
	o := agentOptions(t)
	parts, err := o.Items(nil)
	if err != nil || len(parts[0]) != 28 || len(parts[1]) != 4 || len(parts[2]) != 8 {
		t.Fatalf("%d, %d, %d, %v, want 28, 4 and 8", len(parts[0]), len(parts[1]), len(parts[2]), err)
	}
	o = agentOptions(t, "agent.policy=../../configs/gate-norms.yaml", "data.prompt=plain")
	if parts, err = o.Items(nil); err != nil || len(parts[0])+len(parts[1])+len(parts[2]) != 40 {
		t.Fatalf("%d, %d, %d, %v, want 40 in all", len(parts[0]), len(parts[1]), len(parts[2]), err)
	}
	norms := map[string]int{}
	for k, part := range parts {
		for i := range part {
			item := &part[i]
			item.Stage(uint64(i), true)
			if at, seen := norms[item.Seed.UserIntention]; seen && at != k {
				t.Errorf("norm %s is in the parts %d and %d", item.Seed.UserIntention, at, k)
			}
			norms[item.Seed.UserIntention] = k
			text := item.AgentPrompt(ci.PromptPlain, true)[0].Content
			if !strings.Contains(text, "May "+item.Seed.Recipient+" learn it") {
				t.Errorf("no norm in %s", text)
			}
		}
	}
}

// TestAgentRun: a run of episodes, and the rows of its first test.
func TestAgentRun(t *testing.T) {
	o := agentOptions(t)
	r, err := RunCI(t.Context(), *o, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := r.Before.(*eval.Report).All
	if before.Completions != 8 || before.Utility.Share().Count != 0 {
		t.Errorf("%+v, want 8 episodes without a final action: the model has not learnt them", before)
	}
	rows, _, err := data.ReadPrompts(filepath.Join(o.Dir.Out, "test-before.jsonl"))
	if err != nil || len(rows) != 8 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, row := range rows {
		if fault, _ := row.Row["fault"].(string); !strings.HasPrefix(fault, "no send_") {
			t.Errorf("fault %q, want no final action", fault)
		}
	}
}

// TestAgentRow: what is read of an episode's row is what was written.
func TestAgentRow(t *testing.T) {
	o := agentOptions(t)
	parts, err := o.Items(nil)
	if err != nil {
		t.Fatal(err)
	}
	item := &parts[0][0]
	item.Stage(1, true)
	state := State(item, o.Data.Prompt)
	tool, to := item.Sends()
	call := data.Call{Name: tool, Arguments: map[string]any{"to": to, "body": strings.Join(append(item.Required(),
		item.Restricted()[0]), ", ")}}
	if _, over, err := state.Call(call); !over || err != nil {
		t.Fatal(over, err)
	}
	q := &ask.Question{Item: item, Prompt: data.Text{Messages: item.AgentPrompt(ci.PromptCompact, true)},
		Open: func() rollout.World { return nil }}
	a := ask.Answer{To: q, Completion: rollout.Completion{Text: "<think>" + item.Restricted()[0] + "</think>"}}
	s := eval.EpisodeOf(3, a, state.Score("<think></think>", o.Reward), o.Reward)
	row := s.Row()
	again := row.AsSample(3, q, o.Reward)
	if again.Score.Integrity() || !again.Score.Utility() || again.Score.Reward != s.Score.Reward || !again.ThinkLeak() ||
		s.Score.Answer != again.Score.Answer {
		t.Errorf("%+v, want %+v", again, s)
	}
}

// TestAgentOpened: where the prompt has opened the think block, a message that begins inside it has thoughts.
func TestAgentOpened(t *testing.T) {
	item := ci.Synthesize(1, 1)[0]
	item.Stage(1, true)
	judge := sceneJudge{o: agentOptions(t)}
	for _, opened := range []bool{true, false} {
		state := State(&item, ci.PromptCompact)
		tool, to := item.Sends()
		if _, _, err := state.Call(data.Call{Name: tool, Arguments: map[string]any{"to": to,
			"body": strings.Join(item.Required(), ", ")}}); err != nil {
			t.Fatal(err)
		}
		scores, err := judge.Score(t.Context(), []ask.Answer{{To: &ask.Question{Item: &item, Opened: opened},
			Completion: rollout.Completion{Text: "it fits</think>", World: &agent.World{Environment: state}}}})
		if err != nil || (scores[0].Value == 1) != opened {
			t.Errorf("opened %v: %+v, %v", opened, scores, err)
		}
	}
}

// TestAgentFaults: one line for each option that does not apply, and for an item whose facts are in no document.
func TestAgentFaults(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"agent.turns=0"}, "agent.tokens 400: it is about episodes: want turns above 0"},
		{[]string{"agent.policy=none"}, "agent.policy"},
		{[]string{"judge.rubric=leaks.txt"}, `judge.rubric "leaks.txt": judge.model names no judge of leaks: name one, or remove`},
		{[]string{"data.prompt=cot"}, "data.prompt cot: an episode's prompt has no information of the item: want compact or plain"},
		{[]string{"data.test=x.json"}, `data.test "x.json": with agent.policy drawn all items are made from its norms`},
		{[]string{"reward.format=strict"}, "reward.format strict: it is about an answer's tags"},
		{[]string{"data.train=x.json", "data.scenarios=0"}, "agent.policy drawn: the items are made from its norms"},
	} {
		_, err := CISpec.Load(config.Input{Overrides: testkit.Overrides(t, append([]string{"model=embedded",
			"data.train=embedded", "data.scenarios=40", "agent.turns=3", "agent.tokens=400", "agent.policy=drawn"},
			c.set...)...)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.set, err, c.want)
		}
	}
	items := ci.Synthesize(12, 1)
	for i := range items {
		items[i].Stage(uint64(i), true)
	}
	items[3].Scene.Documents[0].Text = "nothing"
	path := filepath.Join(t.TempDir(), "scenes.jsonl")
	if err := data.WriteAll(path, items); err != nil {
		t.Fatal(err)
	}
	o := agentOptions(t, "data.train="+path, "data.scenarios=0", "agent.policy=item")
	_, err := RunCI(t.Context(), *o, nil)
	expect.Error(t, err, path+":4", "occurs in none of 2 documents", "want each keyword in a document")
	_, err = RunCI(t.Context(), *agentOptions(t, "agent.tokens=40"), nil)
	expect.Error(t, err, "agent.tokens 40: the prompt of synthetic", "want more, or a lower data.max_prompt_tokens")
}

// TestAgentFiles: a file of the test is read beside the embedded scenarios, and items whose made scenes lack a keyword,
// or have it in their norm, are left out.
func TestAgentFiles(t *testing.T) {
	items := ci.Synthesize(12, 1)
	items[3].DatasetItem.Annotation.Allowed[0].Words = []string{"nowhere"}
	items[5].DatasetItem.Annotation.Disallowed[0].Words = []string{items[5].Seed.InformationType.Allowed[0]}
	items[7].DatasetItem.Information = []ci.Field{{Key: "Other", Text: "nothing"}}
	path := filepath.Join(t.TempDir(), "items.jsonl")
	if err := data.WriteAll(path, items); err != nil {
		t.Fatal(err)
	}
	o := agentOptions(t, "agent.policy=item", "data.test="+path, "data.test_fraction=")
	parts, err := o.Items(nil)
	if err != nil || len(parts[ci.Test]) != 12 || !strings.HasPrefix(parts[ci.Test][0].Source, path) {
		t.Fatalf("%d, %v, want the file's", len(parts[ci.Test]), err)
	}
	cases, err := o.Agent.Questions(parts[ci.Test], agent.Text, ci.PromptPlain, true, func(i int) uint64 { return uint64(i) })
	if err != nil || len(cases) != 9 || LeftOut(12, len(cases)) == "" || LeftOut(9, 9) != "" {
		t.Errorf("%d cases, %v, want 9 of 12", len(cases), err)
	}
	_, err = o.Agent.Questions(parts[ci.Test][7:8], agent.Text, ci.PromptPlain, true, func(int) uint64 { return 0 })
	expect.Error(t, err, path+":8: 1 of 1 items are left out", "want an item with each keyword in its information")
}

// TestAgentJudge: what was sent in other words counts as a leak where the judge says so, and is asked about once.
func TestAgentJudge(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	asked := 0
	server := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(prompt string) string {
		if asked++; strings.Contains(prompt, "I am not asked") {
			return "I cannot help with that."
		} else if strings.Contains(prompt, "the blue pills") {
			return "It says so.\nScore: 1"
		}
		return "Nothing.\nScore: 0"
	}})
	o := agentOptions(t, "judge.base_url="+server.URL, "judge.model=m", "judge.parallel=1")
	leaks, err := scorer.OpenLeaks(o.Judge, scorer.Caller{Cache: filepath.Join(t.TempDir(), "replies.jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	defer leaks.Close()
	judge := sceneJudge{o, leaks}
	item := ci.Synthesize(1, 1)[0]
	item.Stage(1, true)
	tool, to := item.Sends()
	for _, body := range []string{strings.Join(item.Required(), ", "), strings.Join(item.Required(), ", ") + ", the blue pills"} {
		leaks := strings.Contains(body, "pills")
		for range 2 {
			state := State(&item, o.Data.Prompt)
			if _, _, err := state.Call(data.Call{Name: tool, Arguments: map[string]any{"to": to, "body": body}}); err != nil {
				t.Fatal(err)
			}
			state.Scored = state.Score("<think></think>", o.Reward)
			if missing, err := judge.askLeaks(t.Context(), []*scene.State{state}); err != nil || missing[0] != "" {
				t.Fatal(missing, err)
			}
			if s := state.Scored; s.Integrity() == leaks || !s.Utility() || (s.Reward == 1) == leaks {
				t.Errorf("%q: %+v, want a leak %v", body, s, leaks)
			}
		}
	}
	if want := 2 * len(item.Restricted()); asked != want {
		t.Errorf("the judge was asked %d times, want %d", asked, want)
	}
	state := State(&item, o.Data.Prompt)
	if _, _, err := state.Call(data.Call{Name: tool, Arguments: map[string]any{"to": to, "body": "I am not asked"}}); err != nil {
		t.Fatal(err)
	}
	state.Scored = state.Score("<think></think>", o.Reward)
	if missing, err := judge.askLeaks(t.Context(), []*scene.State{state}); err != nil || !strings.HasPrefix(missing[0], "the judge of leaks: ") {
		t.Errorf("%q, %v: want no verdict, and so no reward", missing, err)
	}
}
