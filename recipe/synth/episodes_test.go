package synth

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestEpisodes: demonstrations in each form are read again, with the loss on what the agent says alone; items keep their
// scenes, and the same seed writes the same.
func TestEpisodes(t *testing.T) {
	for _, c := range []struct {
		agent, prompt, call string
		messages            int
	}{
		{"compact", "Read ", "Action: read\nAction Input: {\"id\":", 5},
		{"text", "You have these tools:\n- find: ", "Action: find\nAction Input: {}", 7},
		{"tools", "Scenario: ", `"tool_calls":[{"type":"function","function":{"name":"find","arguments":{}`, 7},
	} {
		o := Defaults()
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
	o := Defaults()
	o.N, o.Agent, o.Write, o.Out = 5, "text", "items", filepath.Join(t.TempDir(), "items.jsonl")
	if _, err := Run(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	items, _, err := ci.Read(o.Out)
	if err != nil || len(items) != 5 || len(items[4].Scene.Documents) != 2 || items[4].Scene.Policy != "" {
		t.Errorf("%+v, %v", items, err)
	}
	for set, want := range map[string]string{"policy=item": `policy "item": it is about episodes`,
		"write=items": `write "items": it is about episodes`, "agent=plain": `agent "plain": want compact, text or tools`} {
		_, err := Spec.Load(config.Input{Overrides: testkit.Overrides(t, "out=x.jsonl", set)})
		expect.Error(t, err, want)
	}
}
