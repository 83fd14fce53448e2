// Package embedded carries what the program needs for a first run without any download: a tiny model, trained by
// scripts/embedded/build.sh from text that the project generates, preference pairs sampled from it, and a small example
// of a PrivacyLens evaluation. The example is there to show what goes in and what comes out: its cases, the assistant's
// actions, the verdicts and the helpfulness are all invented, so its numbers say nothing about any model.
package embedded

import "embed"

// Names in Files.
const (
	Model = "model"       // a model folder in Hugging Face layout
	Pairs = "pairs.jsonl" // preference pairs on held-out scenarios, with rewards in [0,1]

	PrivacyLensCases       = "privacylens/cases.json"       // twelve cases in the shape of the benchmark's
	PrivacyLensActions     = "privacylens/actions.csv"      // what an assistant might have done last in each
	PrivacyLensVerdicts    = "privacylens/verdicts.json"    // whether that gives away the items of the case, judged by hand
	PrivacyLensHelpfulness = "privacylens/helpfulness.json" // 0 to 3, judged by hand
)

// Files holds them.
//
//go:embed all:model pairs.jsonl privacylens
var Files embed.FS
