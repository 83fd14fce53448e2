package batch

import "github.com/posttrain/posttrain/internal/config/fault"

// Options limit and shape the token sequences of a data set. Limits count tokens; 0 is no limit.
type Options struct {
	MaxPromptTokens     int    `yaml:"max_prompt_tokens" want:">=0"`                // longest prompt kept
	MaxCompletionTokens int    `yaml:"max_completion_tokens" want:">=0"`            // longest completion kept, end-of-turn token included
	MaxTokens           int    `yaml:"max_tokens" want:">=0"`                       // longest prompt + completion kept
	Truncate            string `yaml:"truncate" want:"none|prompt|completion|both"` // none: drop and count; prompt: cut its start; completion: cut its end
}

// Check wants the limit at which truncation cuts.
func (o Options) Check() []fault.Fault {
	faults := fault.Check(o)
	prompt, completion, whole := o.MaxPromptTokens > 0, o.MaxCompletionTokens > 0, o.MaxTokens > 0
	for _, c := range []struct {
		truncate string
		enough   bool
		needs    string
	}{
		{"prompt", prompt || whole, "data.max_prompt_tokens or data.max_tokens"},
		{"completion", completion || whole, "data.max_completion_tokens or data.max_tokens"},
		{"both", prompt && completion || whole, "data.max_tokens, or both data.max_prompt_tokens and data.max_completion_tokens"},
	} {
		if o.Truncate == c.truncate && !c.enough {
			faults = append(faults, fault.Fault{Key: "truncate", Value: o.Truncate, Problem: "give the limit to cut at, " + c.needs})
		}
	}
	return faults
}
