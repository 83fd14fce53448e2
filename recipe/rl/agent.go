package rl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/gate"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/agent"
	"github.com/posttrain/posttrain/rollout/scene"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Agent says that the model does an item's task with tools, over several messages: an episode. Turns 0 is one answer.
type Agent struct {
	Turns  int    `yaml:"turns" want:">=0" zero:"no tools" paper:"0" flag:"turns" help:"the model is an agent with tools: most messages of an episode; 0: one answer, no tools"`
	Tokens int    `yaml:"tokens" want:">=0" zero:"as many as the model has positions" help:"most tokens of prompt and episode; 0: as many as the model has positions"`
	Policy string `yaml:"policy" want:"|item|drawn|@file" words:"item, drawn or a file" flag:"policy" help:"norms that the prompts state: item (what the item's information types say), drawn (other ones of each embedded scenario; the test has rulings that training never has), or a file of norms as for eval gate"`
}

// Where norms are from.
const (
	OfItem = "item"
	Drawn  = "drawn"
)

// On says that there are episodes.
func (a *Agent) On() bool { return a.Turns > 0 }

func (a *Agent) hasFile() bool { return a.Policy != "" && a.Policy != OfItem && a.Policy != Drawn }

// makes says that the items are made from the policy's norms.
func (a *Agent) makes() bool { return a.Policy == Drawn || a.hasFile() }

// Check refuses what needs episodes.
func (a Agent) Check() []fault.Fault {
	faults := fault.Faults(fault.Check(a))
	if !a.On() {
		const why = "it is about episodes: want turns above 0, or remove it"
		if a.Tokens > 0 {
			faults.Add("tokens", a.Tokens, why)
		}
		if a.Policy != "" {
			faults.Add("policy", a.Policy, why)
		}
	}
	return faults
}

// validateAgent looks across sections.
func (o *CI) validateAgent(g *config.Given) {
	if o.Judge.Model != "" {
		if !o.Agent.On() {
			g.Fault("judge.model", "judge.model %s: it judges episodes: want agent.turns above 0, or remove it", o.Judge.Model)
		}
		if r := o.Judge.Range; len(r) != 2 || !(r[0] < r[1]) {
			g.Fault("judge.range", "judge.range %v: want the number of no leak and that of a leak, such as [0, 1]", r)
		}
	}
	if !o.Agent.On() {
		return
	}
	if p := o.Data.Prompt; p != ci.PromptCompact && p != ci.PromptPlain && !g.Bad("data.prompt") {
		g.Fault("data.prompt", "data.prompt %s: an episode's prompt has no information of the item: want compact or plain", p)
	}
	if o.Data.Prefill {
		g.Fault("data.prefill", "data.prefill true: an episode has several messages: want false")
	}
	if o.Reward.Format == "strict" {
		g.Fault("reward.format", "reward.format strict: it is about an answer's tags: want paper (thoughts before the "+
			"final action) or answer (none needed)")
	}
	if !o.Agent.makes() {
		return
	}
	if !o.Data.TrainFiles.Are(embedded.Name) {
		g.Fault("agent.policy", "agent.policy %s: the items are made from its norms, and data.train is %s: want item, or "+
			"data.train embedded", o.Agent.Policy, o.Data.TrainFiles)
	}
	for _, key := range []string{"data.validation", "data.test"} {
		if g.Has(key) && g.Text(key) != "" {
			g.Fault(key, "%s %s: with agent.policy %s all items are made from its norms: remove it, or want policy item", key,
				g.Show(key), o.Agent.Policy)
		}
	}
}

// episodes is the task of ci-rl for an agent: items whose task the model does with tools.
type episodes struct {
	*items
	form agent.Form // of tool calls
}

// openEpisodes finds out how the model writes tool calls, and how long an episode is.
func openEpisodes(t *items) (_ task, err error) {
	e := &episodes{items: t}
	if e.form, err = agent.FormOf(t.Tokenizer); err != nil {
		return nil, err
	}
	t.o.Sampling.Stop = slices.Concat(t.o.Sampling.Stop, e.form.Stop())
	t.loop.episodes = rollout.Episodes{Turns: t.o.Agent.Turns, Tokens: t.Model.Config.MaxPositions}
	if n := t.o.Agent.Tokens; n > 0 && n < t.loop.episodes.Tokens {
		t.loop.episodes.Tokens = n
	}
	return e, nil
}

// readParts gives the items' questions their worlds.
func (t *episodes) readParts() (parts [3][]ask.Question, err error) {
	parts, err = t.items.readParts()
	for _, part := range parts {
		for i := range part {
			q := part[i]
			part[i].Open = func() rollout.World {
				return &agent.World{Encoder: t.encoder(), Form: t.form, Environment: State(q.Item, t.o.Data.Prompt),
					Messages: q.Prompt.Messages, Name: q.Source}
			}
		}
	}
	return parts, err
}

// episodes are items as the beginnings of episodes.
func (o *CI) episodes(e *batch.Encoder, items []ci.Item, order func(i int) uint64) ([]ask.Question, error) {
	form, err := agent.FormOf(e.Tokenizer)
	if err != nil {
		return nil, err
	}
	return o.Agent.Questions(items, form, o.Data.Prompt, o.Reward.Format != "answer", order)
}

// Questions are items as the beginnings of episodes with prompts of a kind, compact or plain. think asks for a think
// block, order gives the seed of item i's scene. Items whose scene is made here and cannot be done right are left out:
// a keyword is in no document, or in the norm. One that comes with such documents is an error, and so are items that
// are all left out.
func (a *Agent) Questions(items []ci.Item, form agent.Form, kind string, think bool, order func(i int) uint64) (
	[]ask.Question, error) {
	var all []ask.Question
	for i := range items {
		item := &items[i]
		if fault := sceneFault(item); fault != "" {
			return nil, fmt.Errorf("%s: %s: want each keyword in a document, and none in the norm", item.Source, fault)
		}
		item.Stage(order(i), a.Policy != "")
		if len(item.Scene.Documents) == 0 || sceneFault(item) != "" {
			continue
		}
		messages := agent.Prompt(form, item.AgentPrompt(kind, think), State(item, kind))
		all = append(all, ask.Question{Item: item, Source: item.Source, Prompt: data.Text{Messages: messages}})
	}
	if len(items) > 0 && len(all) == 0 {
		return nil, fmt.Errorf("%s: %s: want an item with each keyword in its information, and none in the norm",
			items[0].Source, LeftOut(len(items), 0))
	}
	return all, nil
}

// sceneFault says what documents lack, or give away; "": nothing.
func sceneFault(item *ci.Item) string {
	for _, f := range records.Gates(item) {
		if f.Gate == "document" {
			return f.Place + ": " + f.Reason
		}
	}
	return ""
}

// LeftOut says how many items have no scene that can be done right, "" where all have.
func LeftOut(items, cases int) string {
	if items == cases {
		return ""
	}
	return fmt.Sprintf("%d of %d items are left out: a keyword is in no piece of their information, or in the norm", items-cases,
		items)
}

// State is the world of an item at the beginning of an episode, of a prompt of that kind.
func State(item *ci.Item, kind string) *scene.State {
	return &scene.State{Item: item, Bare: kind == ci.PromptCompact}
}

// stateOf is the scene of an episode.
func stateOf(w rollout.World) *scene.State { return w.(*agent.World).Environment.(*scene.State) }

func (t *episodes) openJudge(replies string) (_ ask.Judge, err error) {
	j := sceneJudge{o: t.o}
	if t.o.Judge.Model != "" {
		j.leaks, err = scorer.OpenLeaks(t.o.Judge, scorer.Caller{Cache: replies, Warn: t.Warn})
	}
	return j, err
}

// seedDraws leaves questions the draws that validations have, too.
func (t *episodes) seedDraws([]ask.Question, uint64) {}

// sceneJudge scores what was sent in episodes.
type sceneJudge struct {
	o     *CI
	leaks ask.Judge // of leaks in other words; nil: keywords alone count
}

// Batch is large: without a judge a score costs nothing.
func (sceneJudge) Batch() int { return 4096 }

func (j sceneJudge) Close() error {
	if j.leaks == nil {
		return nil
	}
	return j.leaks.Close()
}

// Score implements [ask.Judge].
func (j sceneJudge) Score(ctx context.Context, answers []ask.Answer) ([]ask.Score, error) {
	states := make([]*scene.State, len(answers))
	for i, a := range answers {
		states[i] = stateOf(a.World)
		text := a.Text
		if a.To.Opened {
			text = ci.ThinkPrefill + text
		}
		states[i].Scored = states[i].Score(text, j.o.Reward)
	}
	missing, err := j.askLeaks(ctx, states)
	if err != nil {
		return nil, err
	}
	scores := make([]ask.Score, len(answers))
	for i := range states {
		s := &states[i].Scored
		scores[i] = ask.Score{Value: s.Reward, Fault: s.Fault, Parts: s.Parts(), Missing: missing[i]}
	}
	return scores, nil
}

// askLeaks counts restricted information that was sent in other words, where there is a judge. Its replies are kept:
// the same text is paid for once. missing says why there is no verdict on a text of an episode, "" where there are all.
func (j sceneJudge) askLeaks(ctx context.Context, states []*scene.State) (missing []string, err error) {
	missing = make([]string, len(states))
	if j.leaks == nil {
		return missing, nil
	}
	type place struct{ state, keyword int }
	var places []place
	var asked []ask.Answer
	for i, s := range states {
		about := map[string]string{} // information by restricted keyword
		for _, a := range s.Item.Attributes() {
			for _, word := range a.Restricted {
				about[word] = a.Text
			}
		}
		for k, m := range s.Scored.Restricted {
			if m.At < 0 && s.Scored.Answer != "" {
				places = append(places, place{i, k})
				asked = append(asked, ask.Answer{To: &ask.Question{Prompt: data.Text{Plain: about[m.Keyword]},
					Source: s.Item.Source}, Said: data.Text{Plain: s.Scored.Answer}})
			}
		}
	}
	verdicts, err := ask.Judged(ctx, j.leaks, asked)
	middle := (j.o.Judge.Range[0] + j.o.Judge.Range[1]) / 2
	for i, v := range verdicts {
		at := places[i]
		if v.Missing != "" {
			missing[at.state] = "the judge of leaks: " + v.Missing
		} else if s := states[at.state]; v.Value > middle {
			s.Scored = s.Scored.Leak(at.keyword, j.o.Reward)
		}
	}
	return missing, err
}

// row has all that was said in the episode.
func (t *episodes) row(a *ask.Answer) eval.Row {
	whole := *a
	whole.Text = rollout.AnswerText(t.Tokenizer, a.To.Tokens, a.Tokens, true)
	return rowOf(eval.EpisodeOf(0, whole, stateOf(a.World).Scored, t.o.Reward))
}

// compare warns of episodes that the judge of leaks gave no verdict on.
func (t *episodes) compare(before, after []eval.Row) (text string, first, last any) {
	for _, rows := range [][]eval.Row{before, after} {
		unjudged, why := 0, ""
		for _, r := range rows {
			if r.Missing != "" {
				unjudged, why = unjudged+1, r.Missing
			}
		}
		if unjudged > 0 {
			t.Warn("test: %d of %d episodes are judged by their keywords alone: %s", unjudged, len(rows), why)
		}
	}
	return t.items.compare(before, after)
}

// drawnItems are scenarios of norms that the prompts state. The test has norms that training does not.
func (o *CI) drawnItems(say func(string, ...any)) (parts [3][]ci.Item, err error) {
	if o.Agent.Policy == Drawn {
		n := o.Data.Scenarios
		train, validation, test := ci.Split(n, o.Data.ValidationFraction, o.Data.TestFraction, o.Seed)
		seen := ci.SynthesizeNorms(n-len(test), o.Seed^embeddedSeed, false)
		parts = [3][]ci.Item{seen[:len(train)], seen[len(train) : len(train)+len(validation)],
			ci.SynthesizeNorms(len(test), o.Seed^embeddedSeed, true)}
	} else if parts, err = o.policyItems(); err != nil {
		return parts, err
	}
	say("%s: %d scenarios to train on, %d for validation, and %d with unseen norms for the test", o.Agent.Policy,
		len(parts[0]), len(parts[1]), len(parts[2]))
	return parts, nil
}

// policyItems are scenarios of the norms of a file: the test's norms are its alone.
func (o *CI) policyItems() (parts [3][]ci.Item, err error) {
	items, err := OfPolicy(o.Agent.Policy, o.Data.Scenarios, o.Seed)
	if err != nil {
		return parts, err
	}
	part, norms := map[string]int{}, []string{}
	for _, item := range items {
		if n := item.Seed.UserIntention; !slices.Contains(norms, n) {
			norms = append(norms, n)
		}
	}
	train, validation, test := ci.Split(len(norms), o.Data.ValidationFraction, o.Data.TestFraction, o.Seed)
	for k, of := range [][]int{train, validation, test} {
		for _, norm := range of {
			part[norms[norm]] = k
		}
	}
	for _, item := range items {
		k := part[item.Seed.UserIntention]
		parts[k] = append(parts[k], item)
	}
	if len(train) == 0 || len(validation) == 0 || len(test) == 0 && o.Data.HasTest() {
		return parts, fmt.Errorf("%s: %d norms leave %d to train on, %d for validation and %d for the test: want at "+
			"least one of each", o.Agent.Policy, len(norms), len(train), len(validation), len(test))
	}
	return parts, nil
}

// OfPolicy are n scenarios in all of the norms of a policy's file, one of each at least.
func OfPolicy(path string, n int, seed uint64) (items []ci.Item, err error) {
	p, err := gate.ReadPolicy(path)
	for norm := 0; err == nil && norm < len(p.Norms); norm++ {
		var some []ci.Item
		some, err = p.Items(norm, max(1, n/len(p.Norms)), seed)
		items = append(items, some...)
	}
	return items, err
}

// describe says in words what the episodes are.
func (a *Agent) describe() string {
	if !a.On() {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "episodes: the model reads documents and sends with tools, at most %d messages; restricted keywords "+
		"count in all that it sends, required ones in the final action\n", a.Turns)
	switch {
	case a.Policy == Drawn:
		b.WriteString("  each prompt states a norm of its own; those of the test have rulings that training never has\n")
	case a.hasFile():
		fmt.Fprintf(&b, "  each prompt states a norm of %s; those of the test are not trained on\n", a.Policy)
	case a.Policy == OfItem:
		b.WriteString("  each prompt states its item's norm\n")
	}
	return b.String()
}
