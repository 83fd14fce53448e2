package privacylens

import (
	"cmp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/rollout"
)

// Command is the command that runs an evaluation.
const Command = "eval privacylens"

// Options say which cases are put to which agent, and who judges. Paths are relative to the working directory.
type Options struct {
	Seed    uint64      `yaml:"seed"` // of the agent's draws, and of the orders of probes' choices
	Prompts string      `yaml:"prompts" words:"a folder of templates, released, or a .jsonl file"`
	Data    DataConfig  `yaml:"data"`
	Agent   AgentConfig `yaml:"agent"`
	Judge   JudgeConfig `yaml:"judge"`
	Probe   ProbeConfig `yaml:"probe"`
}

// DataConfig say which cases.
type DataConfig struct {
	Cases string `yaml:"cases" want:"given" words:"a file of cases (main_data.json), its folder, or embedded"`
	First int    `yaml:"first" want:">=0"` // only the first N cases; 0: all
}

// AgentConfig say which model is under test: a folder's, a server's, or one whose actions are recorded.
type AgentConfig struct {
	bench.ModelConfig `yaml:",inline"`

	Actions string `yaml:"actions" words:"embedded, or a .csv, .jsonl, .json or .parquet file of actions"`

	Prompt string `yaml:"prompt" want:"naive|enhanced|cot"`
	// replaces the templates
	Recorded string `yaml:"prompts" words:"a .jsonl file with name, kind and prompt"`
	Prefill  bool   `yaml:"prefill"` // answers begin with <think>; see Continue for a server's
	// the server continues the beginning of an answer
	Continue string `yaml:"continue,omitempty" want:"|vllm" words:"vllm, or nothing: the server cannot"`

	// what becomes of the thoughts ahead of an action, under any prompt
	Think string `yaml:"think" want:"strip|keep"`

	rollout.Sampling `yaml:",inline"`
}

// The ways in which an agent's actions come about.
const (
	AgentLocal    = bench.Local
	AgentServer   = bench.Server
	AgentRecorded = bench.Recorded
)

// Way is how the agent's actions come about, "" where the options name no agent.
func (a AgentConfig) Way() string {
	if a.Actions != "" {
		return AgentRecorded
	}
	return a.ModelConfig.Way()
}

// canPrefill says whether answers can have a beginning.
func (a AgentConfig) canPrefill() bool {
	return a.Way() == AgentLocal || a.Way() == AgentServer && a.Continue != "" && !a.ThinkOpened
}

// JudgeConfig say who judges.
type JudgeConfig struct {
	Kind              string `yaml:"kind" want:"model|keyword|replay"`
	bench.JudgeConfig `yaml:",inline"`
	// replaces the templates
	Recorded string `yaml:"prompts" words:"a .jsonl file with name, kind, item, before and after"`
	// continue with a judge whose verdicts never have the form asked for
	AllowUnparsed bool   `yaml:"allow_unparsed"`
	Verdicts      string `yaml:"verdicts" words:"embedded, or a .json file {name: {leak_info, secret_judgment}}"`
	Helpfulness   string `yaml:"helpfulness" words:"embedded, a .json file {name: score}, or nothing: not recorded"`
}

// ProbeConfig is about the stage probe.
type ProbeConfig struct {
	Levels []string `yaml:"levels" want:"seed|vignette|trajectory|trajectory-enhanced"`
	Think  bool     `yaml:"think"`                                               // first, as CI-RL asks
	MaxNew int      `yaml:"max_new_tokens" want:">=0" zero:"10, with think 512"` // of a reply
}

// tokens are the most of a reply.
func (p ProbeConfig) tokens() int {
	if p.MaxNew == 0 && p.Think {
		return thinkProbeTokens
	}
	return cmp.Or(p.MaxNew, probeTokens)
}

// Defaults are the published settings; the caller gives cases, agent and judge.
func Defaults() Options {
	return Options{
		Agent: AgentConfig{
			ModelConfig: bench.DefaultModel(), Prompt: Naive, Think: bench.ThinkStrip,
			Sampling: rollout.Sampling{Temperature: 0.7, MaxNew: 7000},
		},
		Judge: JudgeConfig{Kind: KindModel, JudgeConfig: bench.DefaultJudge(judgeTokens)},
		Probe: ProbeConfig{Levels: Levels},
	}
}

// applies lists by section which of its keys each agent or judge uses. All use the keys that are in no list.
var applies = bench.Choices{
	"agent": {
		AgentLocal: "model adapter cache_gb backend batch prompt prompts prefill think temperature top_k top_p min_p " +
			"stop max_new_tokens chat.template chat.template_sha256 chat.variables chat.date",
		AgentServer: "base_url api_model api_version api_key_env parallel timeout prompt prompts prefill continue " +
			"think think_opened temperature top_p stop max_new_tokens",
		AgentRecorded: "actions",
	},
	"judge": {
		KindModel: "base_url model api_version think_opened api_key_env parallel requests_per_minute " +
			"tokens_per_minute timeout retries max_new_tokens max_requests max_cost prompt_price completion_price " +
			"cache prompts allow_unparsed",
		KindReplay: "verdicts helpfulness",
	},
}

// Resolved is everything in force as YAML, which loads to the same value. Keys without effect are left out.
func (o *Options) Resolved() []byte { return Spec().Resolve(o) }

// Spec says how a configuration becomes Options, for the stages that are to run. An agent or judge that the command
// line chooses replaces the file's, with all that the file says about that.
func Spec(run ...string) *config.Spec[Options] {
	return &config.Spec[Options]{
		Command:    Command,
		QuickStart: func(overrides []config.Override) (string, []byte) { return quickStart(overrides, run) },
		Choose:     choose,
		Defaults:   func(*config.Given) Options { return Defaults() },
		Settle: func(g *config.Given, o *Options) {
			if !g.Has("agent.prefill") {
				o.Agent.Prefill = o.Agent.Prompt == CoT && o.Agent.canPrefill()
			}
		},
		Check: func(g *config.Given, o *Options) { checks{g, o, run}.all() },
		Idle: func(o *Options) []string {
			return append(applies.Idle("agent", o.Agent.Way()), applies.Idle("judge", o.Judge.Kind)...)
		},
	}
}

var _ = config.Register(Spec())

// quickStart is the embedded example, for actions and judge together, as long as the command line names no other agent
// and no other cases.
func quickStart(overrides []config.Override, stages []string) (string, []byte) {
	other := slices.ContainsFunc(overrides, func(o config.Override) bool {
		return strings.HasPrefix(o.Key, "agent.") || o.Key == "data.cases" && o.Value != embedded.Name
	})
	if other || !slices.Contains(stages, StageActions) || !slices.Contains(stages, StageJudge) {
		return "", nil
	}
	const name = "privacylens-quickstart.yaml"
	text, err := configs.Files.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return "configs/" + name, text
}

// agentKeys choose the agent, judgeKeys the judge, each in its way.
var (
	agentKeys = []bench.AgentKey{{Key: "agent.model", Way: AgentLocal}, {Key: "agent.base_url", Way: AgentServer},
		{Key: "agent.actions", Way: AgentRecorded}}
	judgeKeys = []struct{ key, kind string }{{"judge.model", KindModel}, {"judge.base_url", KindModel},
		{"judge.verdicts", KindReplay}}
)

// choose drops what the file says of another agent or judge than the command line chooses.
func choose(g *config.Given) {
	applies.ChooseAgent(g, agentKeys)
	for _, k := range judgeKeys {
		if g.FromCommandLine(k.key) && !g.FromCommandLine("judge.kind") {
			g.Put("judge.kind", k.kind, k.key)
		}
	}
	if g.FromCommandLine("judge.kind") {
		applies.Drop(g, "judge", g.Text("judge.kind"))
	}
}

// checks look across sections, for the stages that are to run.
type checks struct {
	*config.Given
	o      *Options
	stages []string
}

func (c checks) all() {
	c.judge()
	if !applies.OneAgent(c.Given, agentKeys) {
		return
	}
	c.agent()
	for _, k := range agentKeys {
		if k.Way == c.o.Agent.Way() {
			applies.Refuse(c.Given, "agent", k.Way, k.Key)
		}
	}
	if kind := c.o.Judge.Kind; !c.Bad("judge.kind") {
		applies.Refuse(c.Given, "judge", kind, "judge.kind "+kind)
	}
}

func (c checks) runs(stage string) bool { return slices.Contains(c.stages, stage) }

// agent wants an agent, where a stage needs one.
func (c checks) agent() {
	const missing = "agent.model is missing: want a model folder; or agent.base_url and agent.api_model of a server"
	a, probes := c.o.Agent, c.runs(StageProbe)
	replays := c.o.Judge.Kind == KindReplay && c.runs(StageJudge) // needs no agent
	switch way := a.Way(); {
	case probes && way == AgentRecorded:
		c.Fault("agent.actions", "agent.actions %s: recorded actions cannot be asked; want agent.model, or "+
			"agent.base_url and agent.api_model", a.Actions)
	case probes && way == "":
		c.Fault("agent.model", missing)
	case c.runs(StageActions) && way == "" && !replays:
		c.Fault("agent.model", missing+", or agent.actions, a file of recorded actions")
	case way == AgentServer && a.APIModel == "":
		c.Fault("agent.api_model", "agent.api_model is missing: want the model's name on %s", a.BaseURL)
	case way == AgentServer && a.Prefill && a.Continue == "":
		c.Fault("agent.prefill", "agent.prefill true: this server does not continue the beginning of an answer; want "+
			"false, or agent.continue vllm for a server that does")
	case way == AgentServer && a.Prefill && a.ThinkOpened:
		c.Fault("agent.prefill", "agent.prefill true: with agent.think_opened the chat template has opened the think "+
			"block already; want false")
	}
	dialect := rollout.Dialect{APIVersion: a.APIVersion, Continue: a.Continue}
	for _, f := range dialect.Check(a.BaseURL) {
		c.Fault("agent."+f.Key, "agent.%v", f)
	}
}

// judge wants what the stage judge needs.
func (c checks) judge() {
	j := c.o.Judge
	if j.Kind == KindModel && j.MaxCost > 0 && j.PromptPrice == 0 && j.CompletionPrice == 0 {
		c.Fault("judge.max_cost", "judge.max_cost %v: without prices nothing costs anything; give judge.prompt_price "+
			"and judge.completion_price, each of a million tokens", j.MaxCost)
	}
	switch {
	case !c.runs(StageJudge):
	case j.Kind == KindModel && j.Model == "":
		c.Fault("judge.model", "judge.model is missing: want the judge's name on %s; or judge.kind keyword (a smoke "+
			"test), or replay (recorded verdicts)", j.BaseURL)
	case j.Kind == KindReplay && j.Verdicts == "":
		c.Fault("judge.verdicts", "judge.verdicts is missing: judge.kind replay wants a file of recorded verdicts")
	}
}

// stageKeys lists by stage the sections and keys that it uses.
var stageKeys = map[string][]string{
	StageActions: {"seed", "prompts", "data", "agent"},
	StageJudge:   {"prompts", "data", "judge", "agent.actions"},
	StageProbe: {"seed", "prompts", "data", "probe", "agent.model", "agent.backend", "agent.batch", "agent.base_url",
		"agent.api_model", "agent.api_version", "agent.api_key_env", "agent.parallel", "agent.timeout", "agent.think",
		"agent.think_opened", "agent.continue", "agent.adapter", "agent.cache_gb", "agent.chat.template",
		"agent.chat.template_sha256", "agent.chat.variables", "agent.chat.date"},
	StageReport: {"data"},
}

// Uses reports whether one of the stages uses a key.
func Uses(stages []string, key string) bool {
	section, _, _ := strings.Cut(key, ".")
	return slices.ContainsFunc(stages, func(stage string) bool {
		return slices.Contains(stageKeys[stage], section) || slices.Contains(stageKeys[stage], key)
	})
}
