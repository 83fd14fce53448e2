package bench

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout"
)

// AnswerOptions are what every benchmark has that asks a model. Paths are relative to the working directory.
type AnswerOptions struct {
	Seed  uint64     `yaml:"seed"`             // of the model's draws, and of orders in which a judge sees answers
	First int        `yaml:"first" want:">=0"` // only the first N questions; 0: all
	Agent BenchAgent `yaml:"agent"`
}

// BenchOptions are what every benchmark with a judge has.
type BenchOptions struct {
	AnswerOptions `yaml:",inline"`

	Judge BenchJudge `yaml:"judge"`
}

// BenchAgent says which model is under test: a folder's, a server's, or one whose answers are recorded.
type BenchAgent struct {
	ModelConfig `yaml:",inline"`

	Answers          string `yaml:"answers" words:"a file of answers"`
	rollout.Sampling `yaml:",inline"`
}

// BenchJudge says who judges.
type BenchJudge struct {
	JudgeConfig `yaml:",inline"`
	// continue with a judge whose verdicts never have the form asked for
	AllowUnparsed bool `yaml:"allow_unparsed"`
}

// Way is how the answers come about, "" where the options name no model.
func (a BenchAgent) Way() string {
	if a.Answers != "" {
		return Recorded
	}
	return a.ModelConfig.Way()
}

// RecordedName is the name of the model whose answers are recorded, from that of their file; "" of another agent.
func (a BenchAgent) RecordedName() string {
	if a.Answers == "" {
		return ""
	}
	name, _, _ := strings.Cut(filepath.Base(a.Answers), ".json")
	return name
}

// identify notes what the answers depend on, besides the questions.
func (a BenchAgent) identify(seed uint64) (map[string]string, error) {
	all, err := a.Identify(seed, a.MaxNew)
	if err != nil {
		return nil, err
	}
	all["temperature"] = fmt.Sprint(a.Temperature)
	for key, value := range map[string]any{"top_p": a.TopP, "top_k": a.TopK, "min_p": a.MinP, "stop": a.Stop} {
		if !reflect.ValueOf(value).IsZero() {
			all[key] = fmt.Sprint(value)
		}
	}
	return all, nil
}

// DefaultAnswers has no model yet.
func DefaultAnswers(temperature float64, maxNew int) AnswerOptions {
	return AnswerOptions{Agent: BenchAgent{ModelConfig: DefaultModel(),
		Sampling: rollout.Sampling{Temperature: temperature, MaxNew: maxNew}}}
}

// DefaultBench has no model and no judge yet.
func DefaultBench(temperature float64, maxNew, judgeTokens int) BenchOptions {
	return BenchOptions{AnswerOptions: DefaultAnswers(temperature, maxNew),
		Judge: BenchJudge{JudgeConfig: DefaultJudge(judgeTokens)}}
}

// Whole makes the paths those from the root: later calls on the folder may come from elsewhere.
func (o *AnswerOptions) Whole() {
	o.Agent.Whole()
	o.Agent.Answers = WholePath(o.Agent.Answers)
}

// Whole makes the paths those from the root, that of the judge's cache too.
func (o *BenchOptions) Whole() {
	o.AnswerOptions.Whole()
	o.Judge.Cache = WholePath(o.Judge.Cache)
}

// Pin notes what the prompts of a local model depend on, for the stage answers: see ModelConfig.Pin.
func (o *AnswerOptions) Pin(place Place) error {
	if len(place.Stages) > 0 && !place.Runs(StageAnswers) {
		return nil
	}
	return o.Agent.Pin(place.Dir, StageAnswers)
}

// Choices list by section which of its keys each choice in it uses. All choices use the keys that are in no list.
type Choices map[string]map[string]string

// Idle are the keys that have no effect with what is chosen in a section.
func (c Choices) Idle(section, chosen string) (keys []string) {
	used := strings.Fields(c[section][chosen])
	for _, list := range c[section] {
		for _, key := range strings.Fields(list) {
			if !slices.Contains(used, key) {
				keys = append(keys, section+"."+key)
			}
		}
	}
	return keys
}

// Drop forgets what a file says in a section that has no effect with what is chosen.
func (c Choices) Drop(g *config.Given, section, chosen string) {
	for _, key := range c.Idle(section, chosen) {
		if !g.FromCommandLine(key) {
			g.Drop(key)
		}
	}
}

// Refuse refuses keys that have no effect with what is chosen in a section; by names the choice.
func (c Choices) Refuse(g *config.Given, section, chosen, by string) {
	idle := c.Idle(section, chosen)
	for _, key := range g.Keys() {
		if g.Text(key) != "" && slices.Contains(idle, key) {
			g.Fault(key, "%s %s: it has no effect with %s; remove it", key, g.Show(key), by)
		}
	}
}

// AgentKey is a key that chooses where answers come from.
type AgentKey struct{ Key, Way string }

// ChooseAgent drops what the file says of another model than the command line chooses.
func (c Choices) ChooseAgent(g *config.Given, keys []AgentKey) {
	for _, k := range keys {
		if g.FromCommandLine(k.Key) {
			c.Drop(g, "agent", k.Way)
			return
		}
	}
}

// OneAgent refuses options that name two models, or keys that have no effect with the one named.
func (c Choices) OneAgent(g *config.Given, keys []AgentKey) (ok bool) {
	var named []AgentKey
	for _, k := range keys {
		if g.Text(k.Key) != "" {
			named = append(named, k)
		}
	}
	if len(named) > 1 {
		first, second := named[0].Key, named[1].Key
		g.Fault(second, "%s %s: %s names an agent already; remove one of the two", second, g.Show(second), first)
		return false
	}
	return true
}

// benchAgents are the ways to answers, with the keys that each uses.
var (
	benchAgents  = []AgentKey{{"agent.model", Local}, {"agent.base_url", Server}, {"agent.answers", Recorded}}
	benchChoices = Choices{"agent": {
		Local: "model adapter cache_gb backend batch temperature top_k top_p min_p stop max_new_tokens " +
			"chat.template chat.template_sha256 chat.variables chat.date",
		Server: "base_url api_model api_version api_key_env parallel timeout think_opened temperature top_p stop " +
			"max_new_tokens",
		Recorded: "answers",
	}}
)

// ChooseBench is the Choose of a benchmark's Spec.
func ChooseBench(g *config.Given) { benchChoices.ChooseAgent(g, benchAgents) }

// KeepKeys refuses every key with a value but those to keep; by names what makes the others idle.
func KeepKeys(g *config.Given, keep []string, by string) {
	for _, key := range g.Keys() {
		if !slices.Contains(keep, key) && g.Text(key) != "" {
			g.Fault(key, "%s %s: it has no effect with %s; remove it", key, g.Show(key), by)
		}
	}
}

// AllBut are the keys without effect where a command only counts, which some keys are for.
func AllBut(keys, counting []string) []string {
	return slices.DeleteFunc(keys, func(key string) bool { return slices.Contains(counting, key) })
}

// IdleBench are the keys without effect.
func (o *AnswerOptions) IdleBench() []string { return benchChoices.Idle("agent", o.Agent.Way()) }

// CheckBench looks across sections, for the stages that are to run. or names what may be given in place of answers.
func (o *BenchOptions) CheckBench(g *config.Given, run []string, or string) {
	j := o.Judge
	if j.MaxCost > 0 && !j.HasPrice() {
		g.Fault("judge.max_cost", "judge.max_cost %v: without prices nothing costs anything; give judge.prompt_price "+
			"and judge.completion_price, each of a million tokens", j.MaxCost)
	}
	if slices.Contains(run, StageJudge) && j.Model == "" {
		g.Fault("judge.model", "judge.model is missing: want the judge's name on %s", j.BaseURL)
	}
	o.CheckAgent(g, run, or)
}

// CheckAgent wants one model under test, with keys that have an effect. or names what may be given in place of answers.
func (o *AnswerOptions) CheckAgent(g *config.Given, run []string, or string) {
	a := o.Agent
	if !benchChoices.OneAgent(g, benchAgents) {
		return
	}
	switch way := a.Way(); {
	case slices.Contains(run, StageAnswers) && way == "":
		g.Fault("agent.model", "agent.model is missing: want a model folder; or agent.base_url and agent.api_model of "+
			"a server, or agent.answers, a file of recorded answers%s", or)
	case way == Server && a.APIModel == "":
		g.Fault("agent.api_model", "agent.api_model is missing: want the model's name on %s", a.BaseURL)
	}
	for _, k := range benchAgents {
		if k.Way == a.Way() {
			benchChoices.Refuse(g, "agent", k.Way, k.Key)
		}
	}
}

// benchKeys lists by stage the sections and keys that it uses, of those of BenchOptions.
var benchKeys = map[string][]string{
	StageAnswers: {"seed", "first", "agent"},
	StageJudge:   {"seed", "first", "judge"},
	StageReport:  {"first"},
}

// UsesBench reports whether one of the stages uses a key of BenchOptions; ok is false for other keys.
func UsesBench(run []string, key string) (uses, ok bool) {
	section, _, _ := strings.Cut(key, ".")
	if !slices.Contains([]string{"seed", "first", "agent", "judge"}, section) {
		return false, false
	}
	return slices.ContainsFunc(run, func(stage string) bool { return slices.Contains(benchKeys[stage], section) }), true
}

// FolderName begins the name of a run folder that the user does not name.
func FolderName(command string) string {
	return strings.ReplaceAll(strings.TrimPrefix(command, "eval "), " ", "-")
}

// WriteCount makes the folder of a count of judgements: its config.yaml and summary.json.
func WriteCount(dir, kind string, resolved []byte, summary any) error {
	folder, err := run.Create(dir, kind)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.WriteConfig(resolved); err != nil {
		return err
	}
	return folder.WriteSummaryJSON(summary)
}
