package synth

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout/agent"
	"github.com/posttrain/posttrain/tokenizer"
)

// TestEpisodes: demonstrations in each form are read again, with the loss on what the agent says alone; items keep
// their scenes.
func TestEpisodes(t *testing.T) {
	for _, c := range []struct {
		agent, prompt, call string
		messages            int
	}{
		{"compact", "Read ", "Action: read\nAction Input: {\"id\":", 5},
		{"text", "You have these tools:\n- find: ", "Action: find\nAction Input: {}", 7},
		{"tools", "Scenario: ", `"tool_calls":[{"id":"call00001","type":"function","function":{"name":"find",`, 7},
	} {
		o := Spec.Defaults()
		if c.agent == "tools" {
			o.Model = filepath.Join(tokenizers, "llama3-newer")
		}
		o.N, o.Agent, o.Policy, o.Out = 5, c.agent, "drawn", filepath.Join(t.TempDir(), "demos.jsonl")
		if _, err := Run(t.Context(), o, nil); err != nil {
			t.Fatal(err)
		}
		demos, _, err := data.ReadDemonstrations(o.Out)
		if err != nil || len(demos) != 5 {
			t.Fatalf("%d, %v", len(demos), err)
		}
		for _, d := range demos {
			first, said := d.Prompt.Messages[0], d.Completion.Messages
			if !strings.Contains(first.Content, c.prompt) || (first.Tools != "") != (c.agent == "tools") {
				t.Errorf("%s: prompt %+v", c.agent, first)
			}
			if text := said[0].Content + said[0].Whole; !strings.Contains(text, c.call) || len(said) != c.messages ||
				said[0].Untrained || !said[1].Untrained || said[len(said)-1].Untrained {
				t.Errorf("%s: %+v", c.agent, said)
			}
			if found, read := said[1].Content, said[2].Content+said[2].Whole; c.messages == 7 &&
				!strings.Contains(read, strings.Split(strings.TrimPrefix(found, "Observation: "), ", ")[0]) {
				t.Errorf("%s: found %q, and then %q: want the first of them read", c.agent, found, read)
			}
		}
	}
	o := Spec.Defaults()
	o.N, o.Agent, o.Write, o.Out = 5, "text", "items", filepath.Join(t.TempDir(), "items.jsonl")
	if _, err := Run(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	items, _, err := ci.Read(o.Out)
	if err != nil || len(items) != 5 || len(items[4].Scene.Documents) != 2 || items[4].Scene.Policy != "" {
		t.Errorf("%+v, %v", items, err)
	}
	for sets, want := range map[string]string{"policy=item": `policy "item": it is about episodes`,
		"write=items":                            `write "items": it is about episodes`,
		"agent=plain":                            `agent "plain": want compact, text or tools`,
		"agent=tools":                            "agent tools: a model's chat template writes the calls: want model",
		"agent=text model=embedded":              `model "embedded": its chat template writes the calls`,
		"agent=tools write=items model=embedded": `model "embedded": its chat template writes the calls`,
		"agent=compact garble=1":                 "garble 1: it breaks the form of answers, and episodes keep theirs",
		"agent=text write=items leak=0.9":        "leak 0.9: items have no writer who errs"} {
		keys := append(strings.Fields(sets), "out=x.jsonl")
		_, err := Spec.Load(config.Input{Overrides: testkit.Overrides(t, keys...)})
		expect.Error(t, err, want)
	}
}

const tokenizers = "../../tokenizer/testdata"

// TestEpisodesAreLearnt: what sft trains on is an episode that ci-rl rewards, with the thought and every call, in each
// form of calls and in the templates of released models.
func TestEpisodesAreLearnt(t *testing.T) {
	learn := func(name, folder, template string) agent.Form {
		o := Spec.Defaults()
		o.Agent, o.Model = "tools", filepath.Join(tokenizers, folder)
		form, tok, err := o.openTemplate()
		if template != "" && err == nil {
			if err = tok.SetChat(tokenizer.ChatOptions{Template: template}); err == nil {
				form, err = agent.FormOf(tok)
			}
		}
		if err != nil {
			return "unknown"
		}
		e := &batch.Encoder{Tokenizer: tok}
		item := ci.SynthesizeNorms(1, 3, false)[0]
		item.Stage(3, true)
		d, err := o.demonstration(form, tok, &item, item.Episode(ci.Flaws{}, rand.New(rand.NewPCG(1, 1))))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		g, err := e.Demonstration(d, batch.Turns) // marks may have the header of a turn, too
		if err != nil {
			family, _, _ := strings.Cut(name, "_")
			odd := strings.Fields("smolvlm idefics3 llava deepseek deepseekv3")
			if !slices.Contains(odd, strings.TrimSuffix(family, ".jinja")) {
				t.Errorf("%s: %v", name, err) // those take pictures, or begin every message with a thought and drop it
			}
			return "refused"
		}
		var said [][]int32
		for i, id := range g.Answers[0] {
			if g.Trained[0][i] && (i == 0 || !g.Trained[0][i-1]) {
				said = append(said, nil)
			}
			if g.Trained[0][i] {
				said[len(said)-1] = append(said[len(said)-1], id)
			}
		}
		var texts []string
		for _, ids := range said {
			texts = append(texts, tok.Decode(ids, false))
		}
		state := rl.State(&item, ci.PromptPlain)
		_, _, over, err := agent.Conversation{Messages: d.Prompt.Messages, Form: form, Encoder: e,
			Open: func() agent.Environment { return state }}.Follow(texts)
		last := d.Completion.Messages[len(d.Completion.Messages)-1].Content
		s, turns := state.Score(texts[len(texts)-1], reward.DefaultOptions()), 2+len(item.Scene.Documents)
		if err != nil || !over || len(texts) != turns || s.Reward != 1 || strings.Contains(last, "<|") {
			t.Errorf("%s, %s: over %v, %v, reward %+v of %q", name, form, over, err, s, texts)
		}
		return form
	}
	for folder, want := range map[string]agent.Form{"qwen2-older": agent.Hermes, "llama3-newer": agent.Llama3,
		"mistral-newer": agent.Mistral} {
		if form := learn(folder, folder, ""); form != want {
			t.Errorf("%s: form %s, want %s", folder, form, want)
		}
	}
	var released struct{ Sources map[string]string }
	expect.Decode(t, need.Path(t, "templates"), &released)
	forms := map[agent.Form][]string{}
	for name, source := range released.Sources {
		form := learn(name, "llama3-newer", source)
		forms[form] = append(forms[form], strings.TrimSuffix(name, ".jinja"))
	}
	t.Log(forms)
	if len(forms[agent.Hermes]) < 4 || len(forms[agent.Llama3]) < 2 || len(forms[agent.Text]) < 10 {
		t.Errorf("%v: want Qwen's and Llama's templates, and those without tools", forms)
	}
}
