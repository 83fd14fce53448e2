package ci

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/agent"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/scene"
)

// How a model writes tool calls.
const (
	nativeCalls = "native"
	textCalls   = "text"
)

// checkEpisodes refuses what an episode has not, and what needs one.
func (o *Options) checkEpisodes(g *config.Given) {
	if !o.Episodes.On() {
		if o.Calls != "" {
			g.Fault("calls", "calls %s: it is about episodes: want turns above 0, or remove it", o.Calls)
		}
		return
	}
	switch {
	case o.Prompt != ci.PromptCompact && o.Prompt != ci.PromptPlain:
		g.Fault("prompt", "prompt %s: an episode's prompt has no information of the item: want compact or plain", o.Prompt)
	case o.Prefill:
		g.Fault("prefill", "prefill true: an episode has several messages: want false")
	case o.Reward.Format == "strict":
		g.Fault("reward.format", "reward.format strict: it is about an answer's tags: want paper or answer")
	case o.Agent.Answers != "":
		g.Fault("agent.answers", "agent.answers %s: recorded answers are no episodes: want agent.model, or agent.base_url "+
			"and agent.api_model", o.Agent.Answers)
	case o.Data != "" && o.Episodes.Policy != "" && o.Episodes.Policy != rl.OfItem:
		g.Fault("episodes.policy", "episodes.policy %s: the items are made from its norms: want item, or no data",
			o.Episodes.Policy)
	case o.Calls == nativeCalls && o.Agent.Way() == bench.Local:
		g.Fault("calls", "calls native: of a model in this process its chat template decides: want text, or remove it")
	}
}

// openEpisodes puts the scenarios into the prompts of episodes.
func (e *asking) openEpisodes(items []ci.Item, order func(i int) uint64, b *bench.Protocol) (err error) {
	form, encoder := agent.Hermes, (*batch.Encoder)(nil) // servers give calls apart
	if e.Agent.Way() == bench.Local {
		if form, encoder, err = e.readForm(); err != nil {
			return err
		}
	}
	if e.Calls == textCalls {
		form = agent.Text
	}
	e.questions, err = e.Episodes.Questions(items, form, e.Prompt, e.Reward.Format != "answer", order)
	if err != nil {
		return err
	}
	if left := rl.LeftOut(len(items), len(e.questions)); left != "" {
		e.what += "; " + left
	}
	if n := e.Episodes.Tokens; n > 0 {
		b.Settings = map[string]string{"tokens": fmt.Sprint(n)}
	}
	if form != agent.Text && e.Agent.Way() == bench.Local { // the marks of calls may be special tokens
		e.Agent.KeepSpecial = true
	}
	for _, text := range form.Stop() {
		if !slices.Contains(e.Agent.Stop, text) { // the config of a run that continues has it
			e.Agent.Stop = append(e.Agent.Stop[:len(e.Agent.Stop):len(e.Agent.Stop)], text)
		}
	}
	for i := range e.questions {
		q := &e.questions[i]
		talk := agent.Conversation{Messages: q.Prompt.Messages, Form: form, Encoder: encoder, Name: q.Source,
			Open: func() agent.Environment { return rl.State(q.Item, e.Prompt) }}
		e.talks = append(e.talks, talk)
		for k := range e.Samples {
			b.Items = append(b.Items, bench.Item{ID: e.sample(i, k), Messages: q.Prompt.Messages, Most: e.Episodes.Turns,
				Seed: rollout.DrawSeed(e.Seed, i*e.Samples+k),
				Then: func(said []bench.Answer) ([]data.Message, error) {
					if e.cut(said[len(said)-1]) {
						return nil, nil
					}
					messages, _, over, err := talk.Follow(texts(said))
					if over {
						messages = nil
					}
					return messages, err
				}})
		}
	}
	return nil
}

// readForm finds out how the model writes tool calls.
func (e *asking) readForm() (agent.Form, *batch.Encoder, error) {
	_, t, err := local.LoadWeightless(e.Agent.Model)
	if err == nil {
		err = e.Agent.Chat.Apply(t, e.Agent.Adapter)
	}
	if err != nil {
		return "", nil, err
	}
	form, err := agent.FormOf(t)
	return form, &batch.Encoder{Tokenizer: t}, err
}

// cut says that a message has no end within the limits, so that nobody hears it.
func (e *asking) cut(a bench.Answer) bool {
	most := e.Episodes.Tokens
	return a.Reason == rollout.Length || a.Reason == bench.TooLong || most > 0 && a.Asked+a.Tokens > most
}

// texts are whole messages: with the mark of a think block that the prompt has opened.
func texts(said []bench.Answer) []string {
	all := make([]string, len(said))
	for i, a := range said {
		all[i] = a.Whole()
	}
	return all
}

// episode is the sample of an episode.
func (e *asking) episode(i, k int, said []bench.Answer) (eval.Sample, error) {
	q, last := &e.questions[i], said[len(said)-1]
	heard, unheard := said, []string(nil)
	if e.cut(last) {
		heard, unheard = said[:len(said)-1], []string{last.Whole()}
		if last.Reason != bench.TooLong {
			last.Reason = rollout.Length
		}
	}
	messages, env, over, err := e.talks[i].Follow(texts(heard))
	if err != nil {
		return eval.Sample{}, err
	}
	var all []string
	for _, m := range messages[len(q.Prompt.Messages):] {
		all = append(all, strings.TrimSpace(m.Content+"\n"+m.Whole))
	}
	tokens := 0
	for _, a := range said {
		tokens += a.Tokens
		e.uncounted = e.uncounted || a.Asked == 0
	}
	text := strings.Join(append(all, unheard...), "\n")
	score := env.(*scene.State).Score(last.Whole(), e.Reward)
	s := eval.EpisodeOf(i, answerOf(q, text, last.Reason, tokens), score, e.Reward)
	s.Number, s.Cut = k, !over
	return s, nil
}
