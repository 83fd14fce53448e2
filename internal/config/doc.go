// Package config reads a YAML file, and what the command line sets, into the options of a command. It reports every
// fault at once, each in one line with its place:
//
//	configs/mappo.yaml:12: loss.type "dop": want dpo, ipo, simpo, cpo, hinge, robust, rpo, orpo or kto
//
// Glossary. A key is dotted: "loss.beta". A given value comes from the file or from an Override (a flag, or --set
// key=value), which wins. A key that is not given has a default.
//
// A setting is declared once, by the tags of its field:
//
//	GroupSize int `yaml:"group_size" want:">=2" default:"16" paper:"16" flag:"group-size" help:"completions of a prompt"`
//
// A section's tags defaults and paper give its keys other values; flags changes or hides the names of its flags. From the
// tags come the flags and their help, the comments of config files and the page of all keys ([Spec.Table]), and what departs
// from the paper ([Spec.Departures]).
//
// A [Spec] describes a command. The pipeline of [Spec.Load]:
//
//  1. Parse: the YAML's syntax tree becomes given values by key. Unknown, repeated and misplaced keys are faults.
//  2. Overrides replace or remove given values.
//  3. Decode: given values are written over the defaults by the types of the options. Wrong types are faults. The tags
//     have the defaults; a section's method Defaults changes them, and drops given values that do not count.
//  4. Resolve: a section's method of this name gives the options that depend on others their defaults.
//  5. Validate: every value is compared with the tags of its field (package fault), and every section is asked by its
//     methods Check, Idle and Validate (methods.go).
//  6. Permit: values of the file that load, run or send something need a grant ([Grants]).
//
// [Spec.Resolve] writes the options in force as YAML that loads to the same value; [Diff] names what two of them differ
// in. The package knows no command: recipes register theirs.
package config
