package main

import (
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/rollout/local"

	"context"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/posttrain/posttrain/data/ci"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/rollout"
)

// agent is the model under test. One of this process is loaded when it is first needed: a run whose actions are all there
// does without.
type agent struct {
	config  privacylens.AgentConfig
	server  *rollout.Remote // nil: a model of this process
	sampler func() (*local.Model, error)
	loaded  *local.Model
}

// agentGrace is how long answers of a server are waited for that are under way at a stop.
const agentGrace = time.Minute

func newAgent(c privacylens.AgentConfig) (a *agent, err error) {
	a = &agent{config: c}
	a.sampler = sync.OnceValues(func() (s *local.Model, err error) {
		s, err = openSampler(samplingFlags{model: c.Model, backend: c.Backend, answers: 1, Sampling: c.Sampling})
		a.loaded = s
		return s, err
	})
	if c.Way() == privacylens.AgentServer {
		a.server, err = rollout.NewRemote(rollout.RemoteOptions{
			BaseURL: c.BaseURL, Model: c.APIModel, Key: os.Getenv(c.KeyEnv), KeyName: c.KeyEnv, Parallel: c.Parallel, Timeout: c.Timeout, Grace: agentGrace,
		})
	}
	return a, err
}

// name is the model's.
func (a *agent) name() string {
	if a.server != nil {
		return a.config.APIModel
	}
	return a.config.Model
}

// Answer implements [rollout.Chat].
func (a *agent) Answer(ctx context.Context, talks []rollout.Conversation) ([][]rollout.Answer, error) {
	if a.server != nil {
		return a.server.Answer(ctx, talks)
	}
	s, err := a.sampler()
	if err != nil {
		return nil, err
	}
	return s.Chat(nil).Answer(ctx, talks)
}

// fits says whether a model of this process has room for a prompt and an answer's first token.
func (a *agent) fits(talk rollout.Conversation) (bool, error) {
	n, positions, err := a.measure(talk)
	return n < positions, err
}

// measure is a prompt's length in tokens, and how many positions the model has.
func (a *agent) measure(talk rollout.Conversation) (n, positions int, err error) {
	s, err := a.sampler()
	if err != nil {
		return 0, 0, err
	}
	ids, err := s.Chat(nil).Prompt(talk)
	return len(ids), s.Model.Config.MaxPositions, err
}

// together is how many calls of Answer are made at a time, and with how many conversations each.
func (a *agent) together() (parallel, batch int) {
	if a.server != nil {
		return a.config.Parallel, 1
	}
	return 1, a.config.Batch
}

// told are the requests answered so far, of a server's model.
func (a *agent) told(p privacylens.Progress) map[string]float64 {
	values := map[string]float64{}
	if a.server != nil {
		values["requests"] = float64(a.server.Usage().Requests)
	}
	if p.Unparsed > 0 {
		values["unparsed"] = float64(p.Unparsed)
	}
	return values
}

func (a *agent) close() {
	if a.loaded != nil {
		a.loaded.Close()
	}
}

// identifyAgent notes in a stage's settings which model it is.
func identifyAgent(c privacylens.AgentConfig, settings map[string]string) {
	if c.Way() == privacylens.AgentServer {
		settings["model"], settings["base_url"] = c.APIModel, strings.TrimRight(c.BaseURL, "/")
		return
	}
	settings["model"], settings["backend"], settings["prefill"] = wholePath(c.Model), c.Backend, fmt.Sprint(c.Prefill)
}

// prepareAgent prepares the stage actions.
func (p *plRun) prepareAgent() (err error) {
	a := p.config.Agent
	if a.Way() == privacylens.AgentRecorded || a.Way() == "" { // a replay needs none
		return nil
	}
	if err := p.openAgent(); err != nil {
		return err
	}
	if a.Recorded != "" {
		p.agentPrompts, err = privacylens.ReadAgentPrompts(a.Recorded, a.Prompt, p.cases)
	} else {
		p.agentPrompts, err = p.prompts.Agent(a.Prompt)
	}
	if err != nil {
		return err
	}
	if p.agentSettings, err = p.settingsOfAgent(); err != nil || p.flags.goesOn() {
		return err
	}
	return p.checkRoom()
}

// openAgent opens the model under test. One of this process is loaded at once for a new run, so that a wrong folder leaves
// nothing behind.
func (p *plRun) openAgent() (err error) {
	if p.agent, err = newAgent(p.config.Agent); err == nil && p.agent.server == nil && !p.flags.goesOn() {
		_, err = p.agent.sampler()
	}
	return err
}

// settingsOfAgent are what the actions depend on.
func (p *plRun) settingsOfAgent() (map[string]string, error) {
	a := p.config.Agent
	all := map[string]string{
		"kind": a.Way(), "prompt": a.Prompt, "temperature": fmt.Sprint(a.Temperature), "top_p": fmt.Sprint(a.TopP),
		"max_new_tokens": fmt.Sprint(a.MaxNew), "seed": fmt.Sprint(p.config.Seed),
	}
	optional := map[string]any{"top_k": a.TopK, "min_p": a.MinP, "stop": a.Stop} // absent from older runs
	for key, value := range optional {
		if !reflect.ValueOf(value).IsZero() {
			all[key] = fmt.Sprint(value)
		}
	}
	identifyAgent(a, all)
	var err error
	all["prompts"], err = p.hashPrompts(func(c *lens.Case, add func(string, error)) { add(p.agentPrompts.Agent(c)) })
	return all, err
}

// checkRoom wants a model of this process that at least one prompt fits.
func (p *plRun) checkRoom() error {
	if p.agent.server != nil {
		return nil
	}
	o, shortest := p.actionOptions(), math.MaxInt
	positions := 0
	for i := range p.cases {
		talk, err := o.Conversation(&p.cases[i])
		if err != nil {
			return err
		}
		n, room, err := p.agent.measure(talk)
		if err != nil {
			return err
		}
		if shortest, positions = min(shortest, n), room; shortest < positions {
			return nil
		}
	}
	return fmt.Errorf("no prompt fits the model: %s has %d positions, the shortest prompt has %d tokens", p.agent.name(), positions, shortest)
}

func (p *plRun) actionOptions() privacylens.ActionOptions {
	a := p.config.Agent
	o := privacylens.ActionOptions{
		Chat: p.agent, Prompts: p.agentPrompts, Think: a.Prompt == privacylens.CoT, Sampling: a.Sampling,
		Seed: p.config.Seed, Settings: p.agentSettings,
	}
	o.Parallel, o.Batch = p.agent.together()
	if p.agent.server == nil {
		o.Fits = p.agent.fits
	}
	if a.Prefill {
		o.Prefill = ci.ThinkPrefill
	}
	return o
}

// actions is the stage of that name.
func (p *plRun) actions(ctx context.Context) error {
	if p.agent == nil {
		return p.importActions()
	}
	if err := p.tryJudge(ctx); err != nil {
		return err
	}
	bar := p.newBar(privacylens.StageActions, "action", p.agent.told)
	defer bar.close()
	o := p.actionOptions()
	o.Tick = bar.tick
	return p.run.Actions(ctx, o)
}

// importActions notes recorded actions.
func (p *plRun) importActions() error {
	if p.recorded == nil {
		return nil
	}
	hash, err := fileHash(p.config.Agent.Actions)
	if err != nil {
		return err
	}
	settings := map[string]string{"kind": privacylens.AgentRecorded, "contents": hash}
	if p.leftOut != "" {
		settings[privacylens.LeftOut] = p.leftOut
	}
	return p.run.Import(p.recorded, settings)
}

// probe is the stage of that name.
func (p *plRun) probe(ctx context.Context) error {
	c := p.config
	settings, err := p.settingsOfProbe()
	if err != nil {
		return err
	}
	bar := p.newBar(privacylens.StageProbe, "probe", p.agent.told)
	defer bar.close()
	o := privacylens.ProbeOptions{
		Chat: p.agent, Prompts: p.prompts, Levels: c.Probe.Levels, Seed: c.Seed, MaxNew: c.Probe.MaxNew, Settings: settings, Tick: bar.tick,
	}
	o.Parallel, o.Batch = p.agent.together()
	if p.agent.server == nil {
		o.Fits = p.agent.fits
	}
	return p.run.Probe(ctx, o)
}

// settingsOfProbe are what the answers depend on. More levels may be probed later.
func (p *plRun) settingsOfProbe() (map[string]string, error) {
	c := p.config
	all := map[string]string{"kind": c.Agent.Way(), "seed": fmt.Sprint(c.Seed), "max_new_tokens": fmt.Sprint(c.Probe.MaxNew)}
	identifyAgent(c.Agent, all)
	delete(all, "prefill") // there is none
	var err error
	all["prompts"], err = p.hashPrompts(func(c *lens.Case, add func(string, error)) {
		for _, level := range privacylens.Levels {
			add(p.prompts.Probe(level, c, true))
		}
	})
	return all, err
}
