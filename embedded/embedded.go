// Package embedded carries what the program needs for a first run without any download: a tiny model, trained by
// scripts/embedded/build.sh from text that the project generates, and preference pairs sampled from it.
package embedded

import "embed"

// Names in Files.
const (
	Model = "model"       // a model folder in Hugging Face layout
	Pairs = "pairs.jsonl" // preference pairs on held-out scenarios, with rewards in [0,1]
)

// Files holds them.
//
//go:embed all:model pairs.jsonl
var Files embed.FS
