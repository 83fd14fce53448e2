// Package data holds the records that post-training learns from, and reads and writes them.
//
// Glossary: a Message is one turn of a conversation; a Text is a plain string or a conversation; a Preference is a
// prompt with a chosen and a rejected answer (and, for the prior, a score of each); a Demonstration is a prompt with
// the answer to imitate; a PromptRow is a prompt alone.
//
// The way of a file:
//
//  1. open: .jsonl, .json or .parquet, each also .gz, as a stream of rows (rows.go, json.go, parquet.go); a hostile
//     file ends in an error before it takes much memory (bound.go, internal/pages);
//  2. the columns of other programs → ours (forms.go); row → record: a bad row is an error that names file and line
//     (preference.go, demonstration.go, unpaired.go); a prompt that both answers repeat is split off;
//  3. what was dropped or looks odd is counted in a Report (report.go);
//  4. scores → prior gaps r_w − r_l of MaPPO (rewards.go, prior.go); Split divides training from evaluation (split.go);
//     Write puts records back on disk (write.go).
//
// Below this package: data/ci has contextual-integrity items, and data/records reads and checks a file of any kind. They
// know no tensors, no tokenizer and no network.
package data
