package privacylens

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"reflect"
	"slices"

	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/bench"
)

// leftOut is the setting of recorded actions that says how many cases have none.
const leftOut = "left_out"

// formatThink is the setting "format" of probes that ask the model to think first.
const formatThink = "think"

// settingsOfActions are what the actions of a model depend on.
func (e *evaluation) settingsOfActions() (all map[string]string, err error) {
	a := e.Agent
	if all, err = a.identify(e.Seed, a.MaxNew); err != nil {
		return nil, err
	}
	all["prompt"], all["temperature"], all["top_p"] = a.Prompt, fmt.Sprint(a.Temperature), fmt.Sprint(a.TopP)
	for key, value := range map[string]any{"top_k": a.TopK, "min_p": a.MinP, "stop": a.Stop} {
		if !reflect.ValueOf(value).IsZero() { // absent from older runs
			all[key] = fmt.Sprint(value)
		}
	}
	all["prompts"], err = hashPrompts(e.cases, func(c *lens.Case, add func(string, error)) {
		add(e.actions.Prompts(c))
	})
	return all, err
}

// importSettings are what recorded actions depend on.
func (e *evaluation) importSettings() (map[string]string, error) {
	hash, err := bench.HashFile(e.Agent.Actions)
	settings := map[string]string{"kind": AgentRecorded, "contents": hash}
	if e.leftOut != "" {
		settings[leftOut] = e.leftOut
	}
	return settings, err
}

// probeSettings are what the answers to probes depend on. The levels are not among them: more may be probed later.
func (e *evaluation) probeSettings() (all map[string]string, err error) {
	if all, err = e.Agent.identify(e.Seed, e.Probe.tokens()); err != nil {
		return nil, err
	}
	delete(all, "prefill") // that is of actions
	if e.Probe.Think {
		all["format"], all["prefill"] = formatThink, fmt.Sprint(e.Agent.canPrefill())
	}
	all["prompts"], err = hashPrompts(e.cases, func(c *lens.Case, add func(string, error)) {
		for _, level := range Levels {
			text, err := e.probePrompts.Probe(level, c, true)
			if err == nil || slices.Contains(e.Probe.Levels, level) && canProbe(c, level) {
				add(text, err)
			}
		}
	})
	return all, err
}

// identify notes which model it is, and what all of its answers depend on.
func (a AgentConfig) identify(seed uint64, maxNew int) (map[string]string, error) {
	all, err := a.ModelConfig.Identify(seed, maxNew)
	if err != nil {
		return nil, err
	}
	if a.Way() == AgentLocal || a.Prefill {
		all["prefill"] = fmt.Sprint(a.Prefill)
	}
	if a.Think == bench.ThinkKeep {
		all["think"] = a.Think
	}
	return all, nil
}

// settingsOfJudge are what the verdicts depend on, besides the actions.
func (e *evaluation) settingsOfJudge() (map[string]string, error) {
	j := e.Judge
	switch j.Kind {
	case KindReplay:
		verdicts, err := bench.HashFile(j.Verdicts)
		scores, scoresErr := bench.HashFile(j.Helpfulness)
		return map[string]string{"kind": j.Kind, "verdicts": verdicts, "helpfulness": scores}, cmp.Or(err, scoresErr)
	case KindModel:
		hash, err := hashPrompts(e.cases, func(c *lens.Case, add func(string, error)) {
			for _, item := range c.Trajectory.Items {
				add(e.judgePrompts.Leakage(c, "", item))
			}
			add(e.judgePrompts.Helpfulness(c, ""))
		})
		all := j.Identify()
		all["kind"], all["prompts"] = j.Kind, hash
		return all, err
	}
	return map[string]string{"kind": j.Kind}, nil
}

// hashPrompts names the prompts that a function adds for every case.
func hashPrompts(cases []lens.Case, of func(c *lens.Case, add func(text string, err error))) (string, error) {
	sum := sha256.New()
	var first error
	for i := range cases {
		of(&cases[i], func(text string, err error) {
			if err != nil && first == nil {
				first = fmt.Errorf("%s: %w", cases[i].Place, err)
			}
			io.WriteString(sum, text)
		})
	}
	return fmt.Sprintf("sha256 %x", sum.Sum(nil)[:16]), first
}
