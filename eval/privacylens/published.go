package privacylens

import (
	"fmt"
	"strings"
)

// PublishedSource says where the published figures are from, and of what.
const PublishedSource = "arXiv 2506.04245, table 3: 493 cases, judge GPT-4o 2024-11-20"

// publishedCases is the number of cases of the published figures.
const publishedCases = 493

// Published are a model's figures with the naive prompt, with CI-CoT and, of models that were trained, after CI-RL with
// the CI-CoT prompt.
type Published struct {
	Model       string
	Leakage     []float64 // LR, in percent
	Adjusted    []float64 // ALR, in percent
	Helpfulness []float64 // mean, 0 to 3
}

// PublishedRows are the frontier models, of which the second two reason, and the trained ones.
var PublishedRows = []Published{
	{"Claude 3.7 Sonnet", []float64{30.4, 23.1}, []float64{35.9, 25.4}, []float64{2.49, 2.69}},
	{"Gemini 2.5 Flash", []float64{29.0, 19.7}, []float64{30.8, 24.0}, []float64{2.75, 2.31}},
	{"Claude 3.7 Sonnet Thinking", []float64{32.0, 20.1}, []float64{34.6, 22.6}, []float64{2.75, 2.63}},
	{"Gemini 2.5 Pro", []float64{37.3, 25.3}, []float64{38.2, 26.9}, []float64{2.84, 2.72}},
	{"Mistral-7B", []float64{47.9, 28.8, 31.2}, []float64{52.1, 46.6, 29.6}, []float64{1.78, 1.17, 1.84}},
	{"Qwen2.5-7B", []float64{50.3, 44.8, 33.7}, []float64{52.4, 45.7, 33.9}, []float64{1.99, 2.13, 2.08}},
	{"Llama-3.1-8B", []float64{18.2, 21.3, 18.5}, []float64{38.9, 31.5, 29.4}, []float64{1.05, 1.29, 1.18}},
	{"Qwen2.5-14B", []float64{52.9, 42.8, 33.9}, []float64{51.2, 44.4, 34.4}, []float64{2.37, 2.27, 2.30}},
}

// Cells are the figures as a table has them, such as "50.3 / 44.8 / 33.7".
func (p Published) Cells() [3]string {
	return [3]string{figures("%.1f", p.Leakage), figures("%.1f", p.Adjusted), figures("%.2f", p.Helpfulness)}
}

func figures(format string, values []float64) string {
	var all []string
	for _, v := range values {
		all = append(all, fmt.Sprintf(format, v))
	}
	return strings.Join(all, " / ")
}
