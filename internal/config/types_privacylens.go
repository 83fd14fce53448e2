package config

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/rollout"
)

// CommandPrivacyLens is the command of [PrivacyLens].
const CommandPrivacyLens = "eval privacylens"

// PrivacyLens is the configuration of posttrain eval privacylens. Options that say nothing about the agent or judge that is
// chosen are left out of Resolved.
type PrivacyLens struct {
	Command string  `yaml:"command"` // eval privacylens
	Seed    uint64  `yaml:"seed"`    // of the agent's draws, and of the orders of probes' choices
	Prompts string  `yaml:"prompts"` // folder with templates in the place of the embedded ones; "": none
	Data    PLData  `yaml:"data"`
	Agent   PLAgent `yaml:"agent"`
	Judge   PLJudge `yaml:"judge"`
	Probe   PLProbe `yaml:"probe"`
}

// PLData says which cases. Paths are relative to the working directory.
type PLData struct {
	Cases string `yaml:"cases"` // Embedded, a file of cases, or a folder with main_data.json
	First int    `yaml:"first"` // only so many; 0: all
}

// PLAgent is the model under test: a folder, a server's, or one whose actions are recorded.
type PLAgent struct {
	Model    string        `yaml:"model"`       // Embedded, or a Hugging Face model folder
	Backend  string        `yaml:"backend"`     // auto|go|onnx[:LIB]|xla[:cpu|:cuda|:PLUGIN]
	BaseURL  string        `yaml:"base_url"`    // of an OpenAI-compatible server
	APIModel string        `yaml:"api_model"`   // as the server calls it
	KeyEnv   string        `yaml:"api_key_env"` // environment variable that holds the server's key
	Parallel int           `yaml:"parallel"`    // requests to the server at a time
	Timeout  time.Duration `yaml:"timeout"`     // for a reply of the server
	Batch    int           `yaml:"batch"`       // cases that a model of this process answers together
	Actions  string        `yaml:"actions"`     // Embedded, or a file of recorded actions

	Prompt           string `yaml:"prompt"`  // privacylens.Kinds
	Recorded         string `yaml:"prompts"` // file of prompts in the place of the templates
	Prefill          bool   `yaml:"prefill"` // answers begin with <think>; in process only
	rollout.Sampling `yaml:",inline"`
}

// The ways in which an agent's actions come about.
const (
	AgentLocal    = "local"    // a model in this process
	AgentServer   = "server"   // a server's model
	AgentRecorded = "recorded" // in a file
)

// Way is how the agent's actions come about, "" where nothing is said of it.
func (a PLAgent) Way() string {
	switch {
	case a.Actions != "":
		return AgentRecorded
	case a.BaseURL != "":
		return AgentServer
	case a.Model != "":
		return AgentLocal
	}
	return ""
}

// PLJudge says who judges.
type PLJudge struct {
	Kind              string        `yaml:"kind"`        // model|keyword|replay
	BaseURL           string        `yaml:"base_url"`    // of an OpenAI-compatible server
	Model             string        `yaml:"model"`       // as the server calls it
	KeyEnv            string        `yaml:"api_key_env"` // environment variable that holds the server's key
	Parallel          int           `yaml:"parallel"`    // requests at a time
	RequestsPerMinute int           `yaml:"requests_per_minute"`
	TokensPerMinute   int           `yaml:"tokens_per_minute"`
	Timeout           time.Duration `yaml:"timeout"` // of one try
	Retries           int           `yaml:"retries"` // tries after the first
	MaxNew            int           `yaml:"max_new_tokens"`
	MaxRequests       int           `yaml:"max_requests"`     // budget of a call of the command; 0: no limit
	MaxCost           float64       `yaml:"max_cost"`         // the same, in the currency of the prices
	PromptPrice       float64       `yaml:"prompt_price"`     // of a million tokens
	CompletionPrice   float64       `yaml:"completion_price"` // of a million tokens
	Cache             string        `yaml:"cache"`            // file that keeps replies; "": one in the run folder
	Recorded          string        `yaml:"prompts"`          // file of prompts in the place of the templates
	AllowUnparsed     bool          `yaml:"allow_unparsed"`   // go on with a judge that never gives a verdict in the form asked for
	Verdicts          string        `yaml:"verdicts"`         // of replay: Embedded, or a file
	Helpfulness       string        `yaml:"helpfulness"`      // of replay: Embedded, a file, or "": it was not recorded
}

// The kinds of judges.
const (
	JudgeModel   = privacylens.KindModel
	JudgeKeyword = privacylens.KindKeyword
	JudgeReplay  = privacylens.KindReplay
)

// PLProbe is about the stage probe.
type PLProbe struct {
	Levels []string `yaml:"levels"`         // privacylens.Levels
	MaxNew int      `yaml:"max_new_tokens"` // of a reply
}

// The defaults of where the judge is, and of the environment variable with its key.
const (
	DefaultBaseURL = "https://api.openai.com/v1"
	DefaultKeyEnv  = "OPENAI_API_KEY"
)

// defaultPrivacyLens has the published settings; cases, agent and judge must be given.
func defaultPrivacyLens() PrivacyLens {
	return PrivacyLens{
		Command: CommandPrivacyLens,
		Agent: PLAgent{
			Backend: "auto", KeyEnv: DefaultKeyEnv, Parallel: 8, Timeout: 5 * time.Minute, Batch: 16,
			Prompt: privacylens.Naive, Sampling: rollout.Sampling{Temperature: 0.7, MaxNew: 7000},
		},
		Judge: PLJudge{
			Kind: JudgeModel, BaseURL: DefaultBaseURL, KeyEnv: DefaultKeyEnv, Parallel: 8, Timeout: time.Minute, Retries: 8, MaxNew: privacylens.JudgeTokens,
		},
		Probe: PLProbe{Levels: privacylens.Levels, MaxNew: privacylens.ProbeTokens},
	}
}

// applies says of the keys that are about some agents or judges only, about which.
var applies = map[string][]string{
	"agent.model":    {AgentLocal},
	"agent.backend":  {AgentLocal},
	"agent.batch":    {AgentLocal},
	"agent.prefill":  {AgentLocal},
	"agent.actions":  {AgentRecorded},
	"agent.base_url": {AgentServer}, "agent.api_model": {AgentServer}, "agent.api_key_env": {AgentServer},
	"agent.parallel": {AgentServer}, "agent.timeout": {AgentServer},
	"agent.prompt": {AgentLocal, AgentServer}, "agent.prompts": {AgentLocal, AgentServer}, "agent.temperature": {AgentLocal, AgentServer},
	"agent.top_k": {AgentLocal}, "agent.top_p": {AgentLocal, AgentServer}, "agent.min_p": {AgentLocal},
	"agent.stop": {AgentLocal, AgentServer}, "agent.max_new_tokens": {AgentLocal, AgentServer},

	"judge.base_url": {JudgeModel}, "judge.model": {JudgeModel}, "judge.api_key_env": {JudgeModel}, "judge.parallel": {JudgeModel},
	"judge.requests_per_minute": {JudgeModel}, "judge.tokens_per_minute": {JudgeModel}, "judge.timeout": {JudgeModel}, "judge.retries": {JudgeModel},
	"judge.max_new_tokens": {JudgeModel}, "judge.max_requests": {JudgeModel}, "judge.max_cost": {JudgeModel}, "judge.prompt_price": {JudgeModel},
	"judge.completion_price": {JudgeModel}, "judge.cache": {JudgeModel}, "judge.prompts": {JudgeModel}, "judge.allow_unparsed": {JudgeModel},
	"judge.verdicts": {JudgeReplay}, "judge.helpfulness": {JudgeReplay},
}

// Paths are the options that name files and folders.
func (c *PrivacyLens) Paths() []*string {
	a, j := &c.Agent, &c.Judge
	return []*string{&c.Prompts, &c.Data.Cases, &a.Model, &a.Actions, &a.Recorded, &j.Cache, &j.Recorded, &j.Verdicts, &j.Helpfulness}
}

// Resolved is everything in force as YAML, which loads to the same value.
func (c *PrivacyLens) Resolved() []byte {
	var tree yaml.MapSlice
	values := reflect.ValueOf(c).Elem()
	for _, l := range schemaFor(CommandPrivacyLens).leaves {
		if c.idle(l.key) {
			continue
		}
		of := section(l.key)
		item := yaml.MapItem{Key: strings.TrimPrefix(l.key, of), Value: values.FieldByIndex(l.index).Interface()}
		tree = within(tree, strings.TrimSuffix(of, "."), item)
	}
	return resolved(tree)
}

// within adds an item to a section of a tree, "" for its top.
func within(tree yaml.MapSlice, section string, item yaml.MapItem) yaml.MapSlice {
	if section == "" {
		return append(tree, item)
	}
	if n := len(tree); n > 0 && tree[n-1].Key == section {
		tree[n-1].Value = append(tree[n-1].Value.(yaml.MapSlice), item)
		return tree
	}
	return append(tree, yaml.MapItem{Key: section, Value: yaml.MapSlice{item}})
}

// ways are what was chosen for the keys of a section, "" where nothing was.
func (c *PrivacyLens) ways() map[string]string {
	return map[string]string{"agent.": c.Agent.Way(), "judge.": c.Judge.Kind}
}

// idle says that a key has no effect on the agent or judge that is chosen.
func (c *PrivacyLens) idle(key string) bool {
	whom, limited := applies[key]
	return limited && !slices.Contains(whom, c.ways()[section(key)])
}
