// Package recipe holds what the recipes share. A recipe is an importable package that does what a command of posttrain
// does: its Options carry the YAML keys, defaults, rules and explanation, and its
//
//	Run(ctx, Options, run.Reporter) (Result, error)
//
// loads, trains or measures, and reports. A recipe knows no flags and no streams.
package recipe
