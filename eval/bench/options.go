package bench

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/metered"
	"github.com/posttrain/posttrain/rollout/remote"
)

// Options are what every benchmark has that asks a model. Paths are relative to the working directory; fields with a
// tag path are made whole in the config of a run.
type Options struct {
	Stage string `yaml:"stage,omitempty" want:"|answers|judge|report" flag:"stage" help:"run one stage alone: answers, judge or report (default: all)"`
	// of the model's draws, and of orders in which a judge sees answers
	Seed  uint64 `yaml:"seed" flag:"seed" help:"seed of every random choice"`
	First int    `yaml:"first" want:">=0" flag:"first" help:"use only the first N questions of each kind (0 = all)"`
	Agent Agent  `yaml:"agent"`
	Dir   string `yaml:"-"` // run folder, a new one or one to continue; "": a new one in runs
}

// Judged are what every benchmark with a judge has.
type Judged struct {
	Options `yaml:",inline"`

	Judgments string          `yaml:"judgments,omitempty" path:"" words:"a file of judgements" flag:"judgments" help:"recorded verdicts in place of a judge's: verdicts.jsonl of a run, or a file in the benchmark's own form"`
	Judge     metered.Options `yaml:"judge" flags:"judge-"`
}

// shared is an interface of every benchmark's options. parts gives the options that all benchmarks have, and the options
// of a judged benchmark; the second are nil where nothing is judged. A benchmark may need neither a model nor a judge.
type shared interface {
	parts() (*Options, *Judged)
	NeedsModel() bool
	NeedsJudge() bool
}

func (o *Options) parts() (*Options, *Judged) { return o, nil }
func (o *Judged) parts() (*Options, *Judged)  { return &o.Options, o }

// NeedsModel says that a model under test is needed.
func (o *Options) NeedsModel() bool { return true }

// NeedsJudge says that a server that judges is needed.
func (o *Options) NeedsJudge() bool { return false }

// NeedsJudge says that a server that judges is needed.
func (o *Judged) NeedsJudge() bool { return o.Judgments == "" }

// Agent is the model under test: a folder's, a server's, or one whose answers are recorded.
type Agent struct {
	Model   string `yaml:"model" hub:"model" path:"" words:"embedded, a model folder, or org/name on the hub" flag:"model" help:"model under test: a folder in Hugging Face layout, org/name[@revision] on the hub, or embedded"`
	Adapter string `yaml:"adapter,omitempty" hub:"adapter" path:"" words:"an adapter's folder, or org/name on the hub" flag:"adapter" help:"folder of a LoRA adapter for the model, as peft or this program saves it"`
	// the most memory of the cache of keys and values, in gigabytes
	CacheGB float64 `yaml:"cache_gb,omitempty" want:">=0" zero:"a quarter of the memory" flag:"cache-gb" help:"most gigabytes of the cache of keys and values (default a quarter of the memory)"`
	Backend string  `yaml:"backend" want:"@backend" needs:"libraries" default:"auto" flag:"backend" help:"auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN"`
	// cases that a local model answers together
	Batch int        `yaml:"batch" want:">=1" default:"16" flag:"batch" help:"cases that a model folder answers together"`
	Chat  local.Chat `yaml:"chat"` // of a folder's model

	remote.Served `yaml:",inline"`

	Answers string `yaml:"answers" path:"" words:"a file of answers" flag:"answers" help:"file of recorded answers instead of a model"`

	Prefill          bool `yaml:"prefill,omitempty" flag:"prefill" help:"answers begin with <think>; of a server only with --continue"`
	rollout.Sampling `yaml:",inline"`
}

// The ways in which answers come about.
const (
	Local    = "local"    // from a model in this process
	Remote   = "server"   // from a server's model
	Recorded = "recorded" // from a file
)

// Way is how the answers come about, "" where the options name no model.
func (a Agent) Way() string {
	switch {
	case a.Answers != "":
		return Recorded
	case a.BaseURL != "":
		return Remote
	case a.Model != "":
		return Local
	}
	return ""
}

// CanPrefill says whether answers can have a beginning.
func (a Agent) CanPrefill() bool {
	return a.Way() == Local || a.Way() == Remote && a.Continue != "" && !a.ThinkOpened
}

// RecordedName is the name of the model whose answers are recorded, from the name of their file; "" of another agent.
func (a Agent) RecordedName() string {
	if a.Answers == "" {
		return ""
	}
	name, _, _ := strings.Cut(filepath.Base(a.Answers), ".json")
	return name
}

// Runs says whether a stage runs.
func (o *Options) Runs(stage string) bool { return o.Stage == "" || o.Stage == stage }

// ways are those to answers: the key of the section agent that chooses each, and the keys that it uses.
var ways = []struct{ way, key, uses string }{
	{Local, "model", "model adapter cache_gb backend batch temperature top_k top_p min_p stop max_new_tokens " +
		"keep_special_tokens prefill chat.template chat.template_sha256 chat.variables chat.date"},
	{Remote, "base_url", "base_url api_model api_version api_key_env parallel timeout think_opened temperature " +
		"top_p stop max_new_tokens prefill continue"},
	{Recorded, "answers", "answers"},
}

// idle are the keys without effect where answers come about in a way; "": none.
func idle(way string) (keys []string) {
	used := map[string][]string{}
	for _, w := range ways {
		used[w.way] = strings.Fields(w.uses)
		keys = append(keys, used[w.way]...)
	}
	return slices.DeleteFunc(keys, func(key string) bool { return way == "" || slices.Contains(used[way], key) })
}

// named are the keys that are given of those that choose a way.
func named(g *config.Given) (keys []string) {
	for _, w := range ways {
		if g.Text(w.key) != "" {
			keys = append(keys, w.key)
		}
	}
	return keys
}

// Defaults drops what the file says of another model than the command line chooses.
func (a *Agent) Defaults(g *config.Given) {
	for _, w := range ways {
		if !g.FromCommandLine(w.key) {
			continue
		}
		for _, key := range idle(w.way) {
			if !g.FromCommandLine(key) {
				g.Drop(key)
			}
		}
		return
	}
}

// Idle are the keys that are not about the way in which answers come about; none where two ways are given.
func (a *Agent) Idle(g *config.Given) config.Idle {
	all := config.Idle{}
	switch keys := named(g); len(keys) {
	case 0:
		all.Add("it has no effect with a model in this process; add agent.base_url, or remove it", idle(a.Way())...)
	case 1:
		all.Add("it has no effect with "+g.Key(keys[0])+"; remove it", idle(a.Way())...)
	}
	return all
}

// Validate wants one model at most, and of a server its name and no beginning of an answer that it cannot continue.
func (a *Agent) Validate(g *config.Given) {
	if keys := named(g); len(keys) > 1 {
		g.Refuse(keys[1], g.Show(keys[1]), "%s names an agent already; remove one of the two", g.Key(keys[0]))
		return
	}
	switch way := a.Way(); {
	case way == Remote && a.APIModel == "" && !g.Bad("base_url"):
		g.Fault("api_model", "agent.api_model is missing: want the model's name on %s", a.BaseURL)
	case way == Remote && a.Prefill && a.Continue == "":
		g.Refuse("prefill", true, "this server does not continue the beginning of an answer; want false, or "+
			"agent.continue vllm for a server that does")
	case way == Remote && a.Prefill && a.ThinkOpened:
		g.Refuse("prefill", true, "with agent.think_opened the chat template has opened the think block already; want "+
			"false")
	}
}

// Idle is the stage, which is of a call, not of a run.
func (o *Options) Idle(*config.Given) config.Idle { return config.Idle{"stage": ""} }

// Validate wants a model under test, and refuses the stage of a judge where there is none.
func (o *Options) Validate(g *config.Given) {
	whole := g.Whole().(shared)
	if whole.NeedsModel() && o.Runs(StageAnswers) && o.Agent.Way() == "" {
		g.Fault("agent.model", "agent.model is missing: want a model folder; or agent.base_url and agent.api_model of "+
			"a server, or agent.answers, a file of recorded answers")
	}
	if _, judge := whole.parts(); judge == nil && o.Stage == StageJudge {
		g.Refuse("stage", StageJudge, "this benchmark has no judge; want answers or report")
	}
}

// Head is the first of all, as many as first says; 0: all of them.
func Head[T any](all []T, first int) []T {
	if first == 0 {
		return all
	}
	return all[:min(first, len(all))]
}

// CheckSamples wants answers to a question that can differ.
func (o *Options) CheckSamples(g *config.Given, samples int) {
	if samples > 1 && o.Agent.Temperature == 0 && o.Agent.Answers == "" {
		g.Fault("samples", "samples %d: at temperature 0 all answers to a question are the same; want samples 1, or "+
			"agent.temperature above 0", samples)
	}
}

// Defaults drops the file's verdicts where the command line chooses a judge.
func (o *Judged) Defaults(g *config.Given) {
	if (g.FromCommandLine("judge.model") || g.FromCommandLine("judge.base_url")) && !g.FromCommandLine("judgments") {
		g.Drop("judgments")
	}
}

// Idle is the judge where none is asked: a file may have it, the command line may not.
func (o *Judged) Idle(g *config.Given) config.Idle {
	if g.Whole().(shared).NeedsJudge() {
		return nil
	}
	all := config.Idle{"judge": ""}
	for _, key := range g.Keys() {
		if strings.HasPrefix(key, "judge.") && g.FromCommandLine(key) {
			all[key] = "it has no effect, no server's model judges here; remove it"
		}
	}
	return all
}

// Validate wants the name of a judge that is asked, and prices where its cost is bounded.
func (o *Judged) Validate(g *config.Given) {
	if !g.Whole().(shared).NeedsJudge() {
		return
	}
	j := o.Judge
	j.CheckCost(g.In("judge."))
	if o.Runs(StageJudge) && j.Model == "" && !g.Bad("judge.base_url") {
		g.Fault("judge.model", "judge.model is missing: want the judge's name on %s", j.BaseURL)
	}
}

// wholePaths makes the paths in options, the fields with a tag path, those from the root.
func wholePaths(options reflect.Value) {
	for i := range options.NumField() {
		f, v := options.Type().Field(i), options.Field(i)
		_, isPath := f.Tag.Lookup("path")
		switch {
		case v.Kind() == reflect.Struct && f.IsExported():
			wholePaths(v)
		case isPath && v.Kind() == reflect.Slice:
			all := make([]string, v.Len())
			for k := range all {
				all[k] = wholePath(v.Index(k).String())
			}
			v.Set(reflect.ValueOf(all))
		case isPath:
			v.SetString(wholePath(v.String()))
		}
	}
}

// identify notes what the answers depend on, besides the questions.
func (a Agent) identify(seed uint64) (map[string]string, error) {
	all := map[string]string{"kind": a.Way(), "seed": fmt.Sprint(seed), "max_new_tokens": fmt.Sprint(a.MaxNew),
		"temperature": fmt.Sprint(a.Temperature)}
	for key, value := range map[string]any{"top_p": a.TopP, "top_k": a.TopK, "min_p": a.MinP, "stop": a.Stop,
		"prefill": a.Prefill, "think_opened": a.ThinkOpened, "keep_special_tokens": a.KeepSpecial} {
		if !reflect.ValueOf(value).IsZero() {
			all[key] = fmt.Sprint(value)
		}
	}
	if a.Way() == Remote {
		all["model"], all["base_url"] = a.APIModel, strings.TrimRight(a.BaseURL, "/")
		return all, nil
	}
	all["model"], all["backend"] = wholePath(a.Model), a.Backend
	if a.Adapter != "" {
		all["adapter"] = wholePath(a.Adapter)
	}
	chat, err := a.Chat.Identify()
	if chat != "" {
		all["chat"] = chat
	}
	return all, agentFault(err)
}
