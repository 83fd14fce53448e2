package synth

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/rollout/agent"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// Episodes say that the synthetic items are for agents with tools: each has a scene, and a demonstration is an episode.
type Episodes struct {
	Agent  string `yaml:"agent" want:"|compact|text|tools" words:"compact, text or tools" flag:"agent" help:"episodes of an agent with tools: in the embedded model's form (compact), with calls as text (text), or as the chat template of model writes them, and ci-rl reads them (tools)"`
	Model  string `yaml:"model" hub:"tokenizer" words:"a model folder, org/name on the hub, or embedded" flag:"model" help:"of agent tools: the model for sft and ci-rl, a folder in Hugging Face layout, org/name[@revision] on the hub, or embedded; only its tokenizer is read"`
	Policy string `yaml:"policy" want:"|item|drawn" words:"item or drawn" flag:"policy" help:"norms that the prompts of episodes state: item (the usual ones) or drawn (of each scenario other ones; with --held-out those of ci-rl's test)"`
	Write  string `yaml:"write" want:"demonstrations|items" default:"demonstrations" flag:"write" help:"of episodes: demonstrations, or the items with their scenes, which ci-rl takes"`
}

// needsModel says that a chat template writes the calls.
func (o *Options) needsModel() bool { return o.Agent == "tools" && o.Write != "items" && !o.writes() }

// validateEpisodes refuses norms that a model cannot write, and calls that no template writes.
func (o *Options) validateEpisodes(g *config.Given) {
	if o.writes() && o.Policy == rl.Drawn {
		g.Fault("policy", "policy drawn: templates alone draw norms, and a model writes items: want item")
	}
	if o.needsModel() && o.Model == "" {
		g.Fault("model", "agent tools: a model's chat template writes the calls: want model, its folder, org/name on "+
			"the hub, or embedded")
	}
}

// openTemplate finds out how the model writes calls.
func (o *Options) openTemplate() (form agent.Form, t *tokenizer.Tokenizer, err error) {
	if !o.needsModel() {
		return agent.Text, nil, nil
	}
	fsys, name, err := local.FS(o.Model)
	if err == nil {
		t, err = tokenizer.LoadFS(fsys, name)
	}
	if err == nil {
		form, err = agent.FormOf(t)
	}
	return form, t, err
}

// writeEpisodes writes items with their scenes, or demonstrations of them.
func (o *Options) writeEpisodes(items []ci.Item) (*Result, error) {
	form, t, err := o.openTemplate()
	rng := rand.New(rand.NewPCG(o.Seed, 0x65706973))
	demos := make([]data.Demonstration, len(items))
	for i := 0; i < len(items) && err == nil; i++ {
		item := &items[i]
		item.Stage(rng.Uint64(), o.Policy != "")
		demos[i], err = o.demonstration(form, t, item, item.Episode(o.Flaws, rng))
	}
	if err != nil {
		return nil, err
	}
	if o.Write == "items" {
		return &Result{fmt.Sprintf("%s: %d items with scenes\n", o.Out, o.N)}, data.WriteAll(o.Out, items)
	}
	return &Result{fmt.Sprintf("%s: %d demonstrations of episodes, calls in the form %s\n", o.Out, o.N, form)},
		data.WriteAll(o.Out, demos)
}

// demonstration writes an episode as the conversation that it is in training: the loss is on what the agent says. Where
// the prompt does not name the documents, the agent finds them first. The last message, which thinks, has its call in
// the content: some templates leave out a thought beside tool_calls.
func (o *Options) demonstration(form agent.Form, t *tokenizer.Tokenizer, item *ci.Item, turns []ci.Turn) (
	d data.Demonstration, err error) {
	kind := ci.PromptPlain
	if o.Agent == "compact" {
		kind = ci.PromptCompact
	} else {
		turns = slices.Insert(turns, 0, ci.Turn{Tool: "find", Arguments: data.Object{}})
	}
	state, said := rl.State(item, kind), make([]string, len(turns))
	for i, turn := range turns {
		var arguments json.RawMessage
		if arguments, err = data.Marshal(turn.Arguments); err == nil {
			said[i], err = form.Write(t, turn.Think, turn.Tool, arguments, i+1)
		}
		if err != nil {
			return d, err
		}
	}
	first := agent.Prompt(form, item.AgentPrompt(kind, true), state)
	all, _, _, err := agent.Conversation{Messages: first, Form: form, Name: item.Source,
		Open: func() agent.Environment { return state }}.Follow(said)
	if err != nil {
		return d, err
	}
	d.Source, d.Prompt.Messages = item.Source, first
	for _, m := range all[len(first) : len(all)-2] {
		m.Untrained = m.Role != "assistant"
		d.Completion.Messages = append(d.Completion.Messages, m)
	}
	last := data.Message{Role: "assistant", Content: said[len(said)-1]}
	d.Completion.Messages = append(d.Completion.Messages, last)
	return d, nil
}
