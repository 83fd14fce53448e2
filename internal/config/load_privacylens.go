package config

import (
	"slices"

	"github.com/posttrain/posttrain/eval/privacylens"
)

// The stages of posttrain eval privacylens, each with needs of its own.
const (
	StageActions = privacylens.StageActions
	StageJudge   = privacylens.StageJudge
	StageProbe   = privacylens.StageProbe
	StageReport  = privacylens.StageReport
)

// LoadPrivacyLens is LoadMappo for posttrain eval privacylens, of which some stages are to be run; its quick start, for actions and
// judge together, is configs/privacylens-quickstart.yaml. An agent or judge chosen by an override takes the place of the file's, with all that the
// file says about that.
func LoadPrivacyLens(path string, overrides []Override, stages ...string) (*PrivacyLens, error) {
	if path == "" && !(slices.Contains(stages, StageActions) && slices.Contains(stages, StageJudge)) {
		return ParsePrivacyLens("", []byte("command: "+CommandPrivacyLens), overrides, stages...)
	}
	name, text, err := read(path, CommandPrivacyLens, overrides)
	if err != nil {
		return nil, err
	}
	return ParsePrivacyLens(name, text, overrides, stages...)
}

// ParsePrivacyLens is LoadPrivacyLens of a text; name stands for the file in messages.
func ParsePrivacyLens(name string, text []byte, overrides []Override, stages ...string) (*PrivacyLens, error) {
	l := newLoader(name, schemaFor(CommandPrivacyLens))
	if !l.parse(text) {
		return nil, l.err()
	}
	l.override(overrides)
	l.chooseAgent()
	l.chooseJudge()
	c := defaultPrivacyLens()
	l.decode(&c)
	if !l.has("agent.prefill") {
		c.Agent.Prefill = c.Agent.Way() == AgentLocal && c.Agent.Prompt == privacylens.CoT
	}
	l.hold(&c)
	l.checkCommand(c.Command)
	l.checkJudge(&c, stages)
	if l.checkOneAgent() {
		l.checkAgent(&c, stages)
		l.checkIdle(&c)
	}
	if err := l.err(); err != nil {
		return nil, err
	}
	return &c, nil
}

// agentKeys choose the agent, each in its way.
var agentKeys = []struct{ key, way string }{{"agent.model", AgentLocal}, {"agent.base_url", AgentServer}, {"agent.actions", AgentRecorded}}

// chooseAgent leaves one of the keys that choose the agent, where one of them is an override, and what applies to it.
func (l *loader) chooseAgent() {
	chosen := ""
	for _, k := range agentKeys {
		if g, ok := l.given[k.key]; ok && g.form == formRaw {
			chosen = k.way
		}
	}
	if chosen != "" {
		l.drop("agent.", chosen)
	}
}

// chooseJudge is chooseAgent for the judge, which an override names by its kind, or by what one kind alone has.
func (l *loader) chooseJudge() {
	if g, ok := l.given["judge.kind"]; ok && g.form == formRaw {
		l.drop("judge.", g.text)
		return
	}
	for _, k := range []struct{ key, kind string }{{"judge.model", JudgeModel}, {"judge.base_url", JudgeModel}, {"judge.verdicts", JudgeReplay}} {
		if g, ok := l.given[k.key]; ok && g.form == formRaw {
			l.given["judge.kind"] = given{place: g.place, form: formRaw, text: k.kind}
			l.drop("judge.", k.kind)
			return
		}
	}
}

// drop takes away what a file says in a section that does not apply to a way.
func (l *loader) drop(of, way string) {
	for key, whom := range applies {
		if g, ok := l.given[key]; ok && section(key) == of && g.form != formRaw && !slices.Contains(whom, way) {
			delete(l.given, key)
		}
	}
}

// checkOneAgent refuses a second agent.
func (l *loader) checkOneAgent() bool {
	first := ""
	for _, k := range agentKeys {
		g, ok := l.given[k.key]
		switch {
		case !ok || g.text == "":
		case first != "":
			l.faultOf(k.key, "%s %s: %s names an agent already; remove one of the two", k.key, g.show(), first)
			return false
		default:
			first = k.key
		}
	}
	return true
}

// checkAgent wants an agent, where a stage needs one.
func (l *loader) checkAgent(c *PrivacyLens, stages []string) {
	a := c.Agent
	asked := slices.Contains(stages, StageProbe)
	if way := a.Way(); way == AgentLocal || way == AgentServer {
		l.checkDraws("agent.", a.Sampling)
	}
	switch way := a.Way(); {
	case asked && way == AgentRecorded:
		l.faultOf("agent.actions", "agent.actions %s: recorded actions cannot be asked; want agent.model, or agent.base_url and agent.api_model", a.Actions)
	case asked && way == "":
		l.faultOf("agent.model", "agent.model is missing: want a model folder; or agent.base_url and agent.api_model of a server")
	case slices.Contains(stages, StageActions) && way == "" && !(c.Judge.Kind == JudgeReplay && slices.Contains(stages, StageJudge)): // which needs none
		l.faultOf("agent.model", "agent.model is missing: want a model folder; or agent.base_url and agent.api_model of a server, or agent.actions, a file of recorded actions")
	case way == AgentServer && a.APIModel == "":
		l.faultOf("agent.api_model", "agent.api_model is missing: want the model's name on %s", a.BaseURL)
	}
}

// checkJudge wants what the stage judge needs.
func (l *loader) checkJudge(c *PrivacyLens, stages []string) {
	j := c.Judge
	if j.Kind == JudgeModel && j.MaxCost > 0 && j.PromptPrice == 0 && j.CompletionPrice == 0 {
		l.faultOf("judge.max_cost", "judge.max_cost %v: without prices nothing costs anything; give judge.prompt_price and judge.completion_price, each of a million tokens", j.MaxCost)
	}
	if !slices.Contains(stages, StageJudge) {
		return
	}
	switch {
	case j.Kind == JudgeModel && j.Model == "":
		l.faultOf("judge.model", "judge.model is missing: want the judge's name on %s; or judge.kind keyword (a smoke test), or replay (recorded verdicts)", j.BaseURL)
	case j.Kind == JudgeReplay && j.Verdicts == "":
		l.faultOf("judge.verdicts", "judge.verdicts is missing: judge.kind replay wants a file of recorded verdicts")
	}
}

// checkIdle refuses what has no effect on the agent or judge that is chosen.
func (l *loader) checkIdle(c *PrivacyLens) {
	chosen := map[string]string{"judge.": "judge.kind " + c.Judge.Kind}
	for _, k := range agentKeys {
		if k.way == c.Agent.Way() {
			chosen["agent."] = k.key
		}
	}
	if l.bad["judge.kind"] {
		delete(chosen, "judge.")
	}
	for _, leaf := range l.schema.leaves {
		g, ok := l.given[leaf.key]
		if by := chosen[section(leaf.key)]; ok && g.text != "" && by != "" && c.idle(leaf.key) {
			l.faultOf(leaf.key, "%s %s: it has no effect with %s; remove it", leaf.key, g.show(), by)
		}
	}
}
