// Package embedded holds what a first run needs, so that it works without any download: a tiny model, trained by
// scripts/embedded/build.sh on text that the project generates; preference pairs sampled from it; and a small example
// of a PrivacyLens evaluation. That example only shows the formats: its cases, actions, verdicts and ratings are
// invented, so its numbers say nothing about any model.
package embedded

import "embed"

// Paths in Files.
const (
	Name = "embedded" // names the model or the data that the program carries, in options

	Model = "model"       // a model folder in Hugging Face layout
	Pairs = "pairs.jsonl" // preference pairs on held-out scenarios, with rewards in [0,1]

	PrivacyLensCases       = "privacylens/cases.json"       // twelve cases in the shape of the benchmark's
	PrivacyLensActions     = "privacylens/actions.csv"      // an assistant's last action in each case
	PrivacyLensVerdicts    = "privacylens/verdicts.json"    // does the action leak the case's items? judged by hand
	PrivacyLensHelpfulness = "privacylens/helpfulness.json" // 0 to 3, judged by hand
)

//go:embed all:model pairs.jsonl privacylens
var Files embed.FS
