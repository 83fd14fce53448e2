package batch

// Options limit and shape the token sequences of a data set. Limits count tokens; 0 is no limit.
type Options struct {
	MaxPromptTokens     int    `yaml:"max_prompt_tokens"`     // longest prompt kept
	MaxCompletionTokens int    `yaml:"max_completion_tokens"` // longest completion kept, end-of-turn token included
	MaxTokens           int    `yaml:"max_tokens"`            // longest prompt + completion kept
	Truncate            string `yaml:"truncate"`              // none (drop and count)|prompt (cut its start)|completion (cut its end)|both
}
