// Package cirl is the recipe of posttrain ci-rl: it teaches contextual integrity with GRPO and the keyword reward.
package cirl

import (
	"strings"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/fleet"
)

// Command is the command that runs this recipe.
const Command = "ci-rl"

// Options say what is trained, on what and how. A training step is a rollout batch with its updates.
type Options struct {
	recipe.Base `yaml:",inline" defaults:"train.epochs=150 train.learning_rate=1e-6 train.schedule=constant train.weight_decay=0.01 train.checkpoint_every=240 train.share_prefix=" paper:"adapter= lora.rank=0 lora.alpha=0 lora.rslora=false lora.targets= quantize= train.epochs=150 train.max_steps=0 train.learning_rate=1e-6 train.schedule=constant train.warmup_steps=0 train.weight_decay=0.01 train.adam_beta1=0.9 train.adam_beta2=0.999 train.adam_epsilon=1e-8 train.max_grad_norm=1 train.dtype=bfloat16 train.moments= train.shuffle=true"`
	Data        Data                   `yaml:"data"`
	Sampling    Sampling               `yaml:"sampling"`
	Rollout     fleet.Options          `yaml:"rollout,omitempty" paper:"ahead=0"`
	Reward      reward.Options         `yaml:"reward"`
	GRPO        grpo.Options           `yaml:"grpo" paper:"importance_cap=0 norm_length=0"`
	Validation  grpo.ValidationOptions `yaml:"validation"`
}

// Sampling says how completions are drawn, and what their cache of keys and values may take, in gigabytes.
type Sampling struct {
	rollout.Sampling `yaml:",inline" defaults:"max_new_tokens=2048 temperature=1" paper:"max_new_tokens=2048 temperature=1 top_k=0 top_p=0 min_p=0 stop="`
	CacheGB          float64 `yaml:"cache_gb,omitempty" want:">=0" zero:"a quarter of the memory" help:"most gigabytes of the cache of keys and values; 0: a quarter of the memory"`
}

// Check refuses draws that cannot differ: a group of equal completions teaches nothing.
func (s Sampling) Check() []fault.Fault { return CheckDraws(s.Sampling) }

// CheckDraws refuses draws that cannot differ.
func CheckDraws(s rollout.Sampling) []fault.Fault {
	return s.CheckVaried("all completions of a prompt would be the same, and their advantages 0: want ")
}

// Data says where the items come from, and how they become prompts. Paths are relative to the working directory.
type Data struct {
	recipe.Files       `yaml:",inline"`
	Scenarios          int     `yaml:"scenarios,omitempty" want:">=0" words:"a whole number, 3 or more" help:"how many embedded scenarios are made, those for validation and test included (2000)"`
	Items              string  `yaml:"items,omitempty" want:"|all|released" words:"all or released" paper:"released" help:"items of the files: those that the released preprocessing keeps, or all"`
	ValidationFraction float64 `yaml:"validation_fraction" want:">0 <1" default:"0.09" paper:"0.09" help:"share of the items that chooses the best checkpoint"`
	Validation         string  `yaml:"validation,omitempty" hub:"data" paper:"" help:"the file of these items, instead of the share"`
	TestFraction       float64 `yaml:"test_fraction" want:">=0 <1" default:"0.1" paper:"0.1" help:"share of the items that the result is measured on, before and after; 0: no test"`
	Test               string  `yaml:"test,omitempty" hub:"data" paper:"" help:"the file of these items, instead of the share"`
	ci.Form            `yaml:",inline" paper:"prompt=cot prefill=true"`
	MaxPromptTokens    int `yaml:"max_prompt_tokens" want:">=0" default:"768" paper:"768" help:"longer prompts are dropped and counted; 0: no limit"`
}

// Spec says how a configuration becomes Options. What train.Options has about batches of examples and their evaluation,
// the sections grpo and validation say here.
var Spec = config.Register(&config.Spec[Options]{
	Command:    Command,
	QuickStart: recipe.QuickStart("ci-rl-quickstart.yaml"),
	Without: []string{"train.batch_size", "train.micro_batch_size", "train.share_prefix", "train.eval_every",
		"train.eval_metric"},
	Idle: func(o *Options) []string { return o.Data.idle() },
})

// embeddedScenarios is how many scenarios are made where the configuration does not say; fewestScenarios give one to
// each part of the split.
const (
	embeddedScenarios = 2000
	fewestScenarios   = 3
)

// Defaults are the released settings; the caller gives model and data.
func Defaults() Options { return config.Default[Options]() }

// usualCap bounds the ratios of truncated importance sampling where other servers sample, as in TRL and verl.
const usualCap = 2

// Resolve gives the options that depend on others their defaults.
func (o *Options) Resolve(g *config.Given) {
	if o.Data.Train.Are(embedded.Name) && !g.Has("data.scenarios") {
		o.Data.Scenarios = embeddedScenarios
	}
	if !g.Has("data.prompt") {
		o.Data.Prompt = ci.PromptCoT
		if o.Model == embedded.Name {
			o.Data.Prompt = ci.PromptCompact
		}
	}
	if !g.Has("data.prefill") {
		o.Data.Prefill = o.Data.Thinks()
	}
	if o.GRPO.KL == grpo.None && !g.Has("grpo.kl_coef") {
		o.GRPO.KLCoef = 0
	}
	if o.Rollout.Engine != "" && !g.Has("grpo.importance_cap") {
		o.GRPO.ImportanceCap = usualCap
	}
	if o.GRPO.Aggregation == grpo.SeqMeanConstant && !g.Has("grpo.norm_length") {
		o.GRPO.NormLength = o.Sampling.MaxNew
	}
}

// Validate looks across sections.
func (o *Options) Validate(g *config.Given) {
	o.Data.checkFiles(g)
	switch e := o.Rollout.Engine; {
	case e == fleet.SGLang && o.Adapting.On():
		g.Fault("rollout.engine", "rollout.engine sglang: these servers are given whole weights, and an adapter is "+
			"trained: want vllm")
	case e != "" && o.Adapting.Quantized():
		g.Fault("quantize", "quantize %s: the servers of rollout.urls draw with whole weights, another model: remove "+
			"one of the two", o.Adapting.Quantize)
	case e == fleet.VLLM && !o.Adapting.On():
		g.Fault("rollout.engine", "rollout.engine vllm: these servers are given an adapter: want sglang, or an "+
			"adapter (lora.rank)")
	}
	if o.Rollout.Engine != "" && o.Sampling.CacheGB > 0 {
		g.Fault("sampling.cache_gb", "sampling.cache_gb %v: the servers of rollout.urls have caches of their own; "+
			"remove it", o.Sampling.CacheGB)
	}
}

// files are those of the parts that have one of their own, "" where a share of Train is the part.
func (d Data) files() [3]string { return [3]string{ci.Validation: d.Validation, ci.Test: d.Test} }

// SyntheticTest says that the test items are embedded scenarios, not those of a file.
func (d Data) SyntheticTest() bool { return d.Train.Are(embedded.Name) && d.Test == "" }

// idle are the shares of parts that have files of their own.
func (d Data) idle() (keys []string) {
	if d.Validation != "" {
		keys = append(keys, "data.validation_fraction")
	}
	if d.Test != "" {
		keys = append(keys, "data.test_fraction")
	}
	return keys
}

// shares are those of the training data that are held out for validation and for the test.
func (d Data) shares() (validation, test float64) {
	validation, test = d.ValidationFraction, d.TestFraction
	if d.Validation != "" {
		validation = 0
	}
	if d.Test != "" {
		test = 0
	}
	return validation, test
}

// hasTest says that there is a test.
func (d Data) hasTest() bool { return d.Test != "" || d.TestFraction > 0 }

// checkFiles refuses a part that has a share and a file.
func (d Data) checkFiles(g *config.Given) {
	for _, key := range d.idle() {
		if g.Has(key) {
			file := strings.TrimSuffix(key, "_fraction")
			g.Fault(key, "%s %s: %s %s names the file of these items; remove one of the two (for one run: --set %s=)",
				key, g.Show(key), file, g.Show(file), key)
		}
	}
}

// Check looks across the keys of the section.
func (d Data) Check() []fault.Fault {
	var faults fault.Faults
	if !d.Train.Are(embedded.Name) && d.Scenarios != 0 {
		faults.Add("scenarios", d.Scenarios, "only embedded scenarios are made to a number, and data.train is %s; "+
			"remove it", d.Train)
	}
	if d.Train.Are(embedded.Name) && d.Scenarios < fewestScenarios {
		faults.Add("scenarios", d.Scenarios, "want %d or more", fewestScenarios)
	}
	if d.Train.Are(embedded.Name) && d.Items == ci.ReleasedItems {
		faults.Add("items", d.Items, "it is about files, and data.train is %s; remove it", d.Train)
	}
	if v, t := d.shares(); v < 1 && t < 1 && v+t >= 1 {
		faults.Add("test_fraction", t, "with data.validation_fraction %v nothing is left to train on: want a sum "+
			"below 1", v)
	}
	if d.Prefill && d.Prompt == ci.PromptCompact {
		faults.Add("prefill", true, "with data.prompt compact the model opens the think block itself, as the "+
			"embedded one was taught to; "+
			"want false, or another data.prompt")
	}
	return faults
}

// Resolved is everything in force as YAML, which loads to the same value.
func (o *Options) Resolved() []byte { return Spec.Resolve(o) }
