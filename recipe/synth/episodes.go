package synth

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/rollout/agent"
	"github.com/posttrain/posttrain/rollout/scene"
)

// Episodes say that the synthetic items are for agents with tools: each has a scene, and a demonstration is an episode.
type Episodes struct {
	Agent  string `yaml:"agent" want:"|compact|text|tools" words:"compact, text or tools" flag:"agent" help:"episodes of an agent with tools: in the embedded model's form (compact), with calls as text (text), or as chat templates with tools write them (tools)"`
	Policy string `yaml:"policy" want:"|item|drawn" words:"item or drawn" flag:"policy" help:"norms that the prompts of episodes state: item (the usual ones) or drawn (of each scenario other ones; with --held-out those of ci-rl's test)"`
	Write  string `yaml:"write" want:"demonstrations|items" default:"demonstrations" flag:"write" help:"of episodes: demonstrations, or the items with their scenes, which ci-rl takes"`
}

const drawn = "drawn"

// validate refuses keys that need episodes, and norms that a model cannot write.
func (o *Options) validateEpisodes(g *config.Given) {
	if o.writes() && o.Policy == drawn {
		g.Fault("policy", "policy drawn: templates alone draw norms, and a model writes items: want item")
	}
	if o.Agent != "" {
		return
	}
	for _, key := range []string{"policy", "write"} {
		if g.Has(key) && g.Text(key) != "" {
			g.Fault(key, "%s %s: it is about episodes: want agent compact, text or tools, or remove it", key, g.Show(key))
		}
	}
}

// writeEpisodes writes items with their scenes, or demonstrations of them.
func (o *Options) writeEpisodes(items []ci.Item) (*Result, error) {
	rng := rand.New(rand.NewPCG(o.Seed, 0x65706973))
	demos := make([]data.Demonstration, len(items))
	for i := range items {
		item := &items[i]
		item.Stage(rng.Uint64(), o.Policy != "")
		demos[i] = o.demonstration(item, item.Episode(o.Flaws, rng))
	}
	if o.Write == "items" {
		return &Result{fmt.Sprintf("%s: %d items with scenes\n", o.Out, o.N)}, data.WriteAll(o.Out, items)
	}
	return &Result{fmt.Sprintf("%s: %d demonstrations of episodes\n", o.Out, o.N)}, data.WriteAll(o.Out, demos)
}

// demonstration writes an episode as a conversation: the loss is on what the agent says. Where the prompt does not name the
// documents, the agent finds them first.
func (o *Options) demonstration(item *ci.Item, turns []ci.Turn) data.Demonstration {
	d := data.Demonstration{Source: item.Source}
	kind, form := ci.PromptPlain, agent.Text
	switch o.Agent {
	case "compact":
		kind = ci.PromptCompact
	case "tools":
		form = agent.Hermes // the model's own template writes them
	}
	state := &scene.State{Item: item, Bare: kind == ci.PromptCompact}
	d.Prompt.Messages = agent.Prompt(form, item.AgentPrompt(kind, true), state)
	if !state.Bare {
		turns = slices.Insert(turns, 0, ci.Turn{Tool: "find", Arguments: data.Object{}, Result: state.Find("")})
	}
	for i, t := range turns {
		call, result := o.turn(t)
		d.Completion.Messages = append(d.Completion.Messages, call)
		if i < len(turns)-1 {
			d.Completion.Messages = append(d.Completion.Messages, result)
		}
	}
	return d
}

// turn is a call and its result as messages.
func (o *Options) turn(t ci.Turn) (call, result data.Message) {
	if o.Agent != "tools" {
		text := fmt.Sprintf("Action: %s\nAction Input: %s", t.Tool, marshal(t.Arguments))
		if t.Think != "" {
			text = t.Think + "\n" + text
		}
		return data.Message{Role: "assistant", Content: text},
			data.Message{Role: "user", Content: "Observation: " + t.Result, Untrained: true}
	}
	call, result = data.Message{Role: "assistant", Content: t.Think},
		data.Message{Role: "tool", Content: t.Result, Untrained: true}
	call.Whole = marshal(data.Object{{Key: "role", Value: call.Role}, {Key: "content", Value: call.Content},
		{Key: "tool_calls", Value: []any{data.Object{{Key: "type", Value: "function"},
			{Key: "function", Value: data.Object{{Key: "name", Value: t.Tool}, {Key: "arguments", Value: t.Arguments}}}}}}})
	result.Whole = marshal(data.Object{{Key: "role", Value: result.Role}, {Key: "name", Value: t.Tool},
		{Key: "content", Value: t.Result}})
	return call, result
}

// marshal writes texts and objects of them.
func marshal(o data.Object) string {
	text, err := data.Marshal(o)
	if err != nil {
		panic(err) // of texts alone
	}
	return string(text)
}
