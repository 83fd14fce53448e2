package privacylens

// Published is a row of the results published with CI-RL, on the 493 cases: shares in percent, helpfulness 0 to 3.
type Published struct {
	Model  string
	Method string // baseline: the naive prompt; CI-CoT; CI-RL: trained, with the CI-CoT prompt

	Leakage, Adjusted, Helpfulness float64
}

// PublishedResults are there to be put beside one's own. They were judged by a model and with prompts that are not ours: see
// the package's comment.
var PublishedResults = []Published{
	{"Qwen2.5-7B", "baseline", 50.3, 52.4, 1.99},
	{"Qwen2.5-7B", "CI-CoT", 44.8, 45.7, 2.13},
	{"Qwen2.5-7B", "CI-RL", 33.7, 33.9, 2.08},
	{"Mistral-7B", "baseline", 47.9, 52.1, 1.78},
	{"Mistral-7B", "CI-CoT", 28.8, 46.6, 1.17},
	{"Mistral-7B", "CI-RL", 31.2, 29.6, 1.84},
	{"Llama-3.1-8B", "baseline", 18.2, 38.9, 1.05},
	{"Llama-3.1-8B", "CI-CoT", 21.3, 31.5, 1.29},
	{"Llama-3.1-8B", "CI-RL", 18.5, 29.4, 1.18},
	{"Qwen2.5-14B", "baseline", 52.9, 51.2, 2.37},
	{"Qwen2.5-14B", "CI-CoT", 42.8, 44.4, 2.27},
	{"Qwen2.5-14B", "CI-RL", 33.9, 34.4, 2.30},
}
