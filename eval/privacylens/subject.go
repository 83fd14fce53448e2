package privacylens

import (
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/rollout"
)

// openSubject opens the model under test. A local one is loaded at once for a new run.
func (e *evaluation) openSubject() (err error) {
	model := e.Agent.ModelConfig
	model.Continue = e.Agent.Continue
	e.subject, err = bench.OpenSubject(model, !e.Continuing, e.Reporter)
	return err
}

// prepareProbe opens the model under test.
func (e *evaluation) prepareProbe() (err error) {
	if !e.Runs(StageProbe) {
		return nil
	}
	p := e.Probe
	e.probePrompts, err = fromSource(e.prompts, "", func(from promptSource) (probePrompter, error) {
		return from.Probes(p.Levels, p.Think, e.cases)
	})
	if err != nil {
		return err
	}
	return e.openSubject()
}

// reading says how the agent's outputs are read.
func (a AgentConfig) reading() reading {
	return reading{Answers: a.Prompt == CoT, Keep: a.Think == bench.ThinkKeep}
}

// prepareActions opens the model under test and reads its prompts.
func (e *evaluation) prepareActions() (err error) {
	a := e.Agent
	if way := a.Way(); !e.Runs(StageActions) || way == AgentRecorded || way == "" { // a replay needs no agent
		return nil
	}
	if err := e.openSubject(); err != nil {
		return err
	}
	o := &e.actions
	o.Asking, o.Sampling, o.Reading = e.subject.Asking(e.Seed), a.Sampling, a.reading()
	if a.Prefill {
		o.Prefill = ci.ThinkPrefill
	}
	o.Prompts, err = fromSource(e.prompts, a.Recorded, func(from promptSource) (agentPrompter, error) {
		return from.Agent(a.Prompt, e.cases)
	})
	if err != nil {
		return err
	}
	if o.Settings, err = e.settingsOfActions(); err != nil || e.Continuing {
		return err
	}
	return e.subject.CheckRoom(len(e.cases), func(i int) (rollout.Conversation, error) {
		return e.actions.Conversation(&e.cases[i])
	})
}

// checkKeys wants the keys without which servers refuse.
func (e *evaluation) checkKeys() error {
	if e.Agent.Way() == AgentServer && (e.Runs(StageActions) || e.Runs(StageProbe)) {
		if err := e.Agent.CheckKey(); err != nil {
			return err
		}
	}
	if j := e.Judge; j.Kind == KindModel && e.Runs(StageJudge) {
		return j.CheckKey()
	}
	return nil
}
