// Package config reads a YAML file, and what the command line sets, into the options of a command. It reports every
// fault at once, each in one line with its place:
//
//	configs/mappo.yaml:12: loss.type "dop": want dpo, ipo, simpo, cpo, hinge, robust, rpo, orpo or kto
//
// Glossary. A key is dotted: "loss.beta". A given value comes from the file or from an Override (a flag, or --set
// key=value), which wins. A key that is not given has a default.
//
// A [Spec] describes a command. The pipeline of [Spec.Load]:
//
//  1. Parse: the YAML's syntax tree becomes given values by key. Unknown, repeated and misplaced keys are faults.
//  2. Overrides replace or remove given values; Choose settles which of them count.
//  3. Decode: given values are written over the Defaults by the types of the options. Wrong types are faults.
//  4. Settle gives the options that depend on others their defaults.
//  5. Check: every value is compared with the tags of its field (package fault), every section's own Check is asked,
//     and the Spec's Check looks across sections.
//
// [Spec.Resolve] writes the options in force as YAML that loads to the same value; [Diff] names what two of them differ
// in. The package knows no command: recipes register theirs.
package config
