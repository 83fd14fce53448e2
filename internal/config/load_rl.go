package config

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/rollout"
)

// LoadCIRL is LoadMappo for posttrain ci-rl; its quick start is configs/ci-rl-quickstart.yaml.
func LoadCIRL(path string, overrides []Override) (*CIRL, error) {
	name, text, err := read(path, CommandCIRL, overrides)
	if err != nil {
		return nil, err
	}
	return ParseCIRL(name, text, overrides)
}

// ParseCIRL is LoadCIRL of a text; name stands for the file in messages.
func ParseCIRL(name string, text []byte, overrides []Override) (*CIRL, error) {
	l := newLoader(name, schemaFor(CommandCIRL))
	if !l.parse(text) {
		return nil, l.err()
	}
	l.override(overrides)
	l.chooseLength()
	c := defaultCIRL()
	l.decode(&c)
	settleRL(l, &c)
	l.hold(&c)
	if c.Train.MaxSteps > 0 {
		c.Train.Epochs = 0 // max_steps stands in for them: nothing shows them as in force
	}
	l.checkCommand(c.Command)
	l.checkDType(c.Backend, c.Train.DType)
	l.checkItems(c.Data)
	l.checkSampling(c)
	l.checkGRPO(c)
	if err := l.err(); err != nil {
		return nil, err
	}
	return &c, nil
}

// checkItems looks across the keys of the data section.
func (l *loader) checkItems(d CIData) {
	if d.Train != Embedded && d.Scenarios != 0 {
		l.faultOf("data.scenarios", "data.scenarios %d: data.train %s has the items that it has, only embedded scenarios are made to a number; remove it (for one run: --set data.scenarios=)",
			d.Scenarios, d.Train)
	}
	if d.Train == Embedded && d.Scenarios < fewestScenarios {
		l.faultOf("data.scenarios", "data.scenarios %d: want %d or more", d.Scenarios, fewestScenarios)
	}
	if v, t := d.ValidationFraction, d.TestFraction; v < 1 && t < 1 && v+t >= 1 {
		l.faultOf("data.test_fraction", "data.test_fraction %v: with data.validation_fraction %v nothing is left to train on: want a sum below 1", d.TestFraction, d.ValidationFraction)
	}
	if d.Prefill && d.Prompt == ci.PromptCompact {
		l.faultOf("data.prefill", "data.prefill true: with data.prompt compact the model opens the think block itself, as the embedded one was taught to; want false, or data.prompt cot or plain")
	}
}

// fewestScenarios make one for each split.
const fewestScenarios = 3

// checkSampling refuses draws that cannot differ: nothing is learnt from a group of equal completions.
func (l *loader) checkSampling(c CIRL) {
	if c.Sampling.Temperature == 0 {
		l.faultOf("sampling.temperature", "sampling.temperature 0: all completions of a prompt would be the same, and their advantages 0: want a number above 0")
	}
	if c.Sampling.TopK == 1 {
		l.faultOf("sampling.top_k", "sampling.top_k 1: all completions of a prompt would be the same, and their advantages 0: want 2 or more, or 0 (off)")
	}
	l.checkDraws("sampling.", c.Sampling)
	if c.Reward.RequiredWeight == 0 && c.Reward.RestrictedWeight == 0 {
		l.faultOf("reward.required_weight", "reward.required_weight 0: reward.restricted_weight is 0 too, so that only the format would count: want one of them above 0")
	}
}

// checkGRPO takes over what the options' owner finds.
func (l *loader) checkGRPO(c CIRL) {
	for _, f := range c.GRPO.Check() {
		key, text := "grpo."+f.Key, f.Error()
		if strings.HasSuffix(text, "; remove it") {
			text += fmt.Sprintf(" (for one run: --set %s=)", key)
		}
		l.faultOf(key, "grpo.%s", text)
	}
}

// checkDraws takes over the faults that the owner of a section's Sampling finds.
func (l *loader) checkDraws(section string, s rollout.Sampling) {
	for _, f := range s.Check() {
		l.faultOf(section+f.Key, "%s%v", section, f)
	}
}

// checkCommand wants the schema's own command.
func (l *loader) checkCommand(command string) {
	if command != l.schema.command && command != "" {
		l.faultOf("command", "command %q: want %s", command, l.schema.command)
	}
}

// checkDType refuses bfloat16 where the engine has none.
func (l *loader) checkDType(backend, dtype string) {
	if engine, _, _ := strings.Cut(backend, ":"); dtype == "bfloat16" && (engine == "go" || engine == "onnx") {
		l.faultOf("train.dtype", "train.dtype bfloat16: backend %s computes in float32, only xla can do bfloat16", backend)
	}
}

// Resolved is everything in force as YAML, which loads to the same value.
func (c *CIRL) Resolved() []byte { return resolved(c) }
