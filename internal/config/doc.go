// Package config reads a command's YAML file into the option structs that the packages own, and reports every fault of
// the file at once, each in one line with its place:
//
//	configs/mappo.yaml:12: loss.type "dop": want dpo, ipo, simpo or cpo
//
// Glossary. A key is dotted: "loss.beta". A given value comes from the file or from an Override (a flag, or --set
// key=value), which wins. What is not given has a default: the paper's where it has one, the field's otherwise.
//
// The pipeline:
//
//  1. parse: the YAML's syntax tree becomes given values by key; unknown, duplicate and misplaced keys are faults.
//  2. overrides replace or take back given values.
//  3. decode: given values are written over the command's defaults by the types of its structs; wrong types are faults.
//  4. rules hold each value to its range or its list of words; losses.Options validates itself; check looks across keys.
//  5. Resolved writes everything in force as YAML that loads to the same value; Diff names what two of them differ in;
//     Explain says it in words.
package config
