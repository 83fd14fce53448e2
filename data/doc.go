// Package data holds the records that post-training learns from, and reads and writes them.
//
// Glossary: a Message is one turn of a conversation; a Text is a plain string or a conversation; a Preference is a
// prompt with a chosen and a rejected answer (and, for the prior, a score of each); a Demonstration is a prompt with
// the answer to imitate; a CIItem is a contextual-integrity scenario with required and restricted keywords.
//
// The way of a file:
//
//  1. open: .jsonl, .json or .parquet, each also .gz, as a stream of rows (rows.go, json.go, parquet.go);
//  2. row → record, with the field's column names; a bad row is an error that names file and line (preference.go,
//     demonstration.go, text.go); a prompt that stands inside both answers is split off (extract.go);
//  3. what was dropped or looks odd is counted in a Report (report.go);
//  4. scores → prior gaps r_w − r_l of MaPPO (prior.go); Split divides training from evaluation (split.go, ci_split.go);
//     WritePreferences and WriteDemonstrations put records back on disk (write.go).
//
// Contextual integrity: ReadCI reads the published items (ci.go, ci_json.go), CIPrompt puts one to a model (prompt.go), SplitCI
// divides them (ci_split.go); Synthesize makes small ones from templates and open value spaces, Prompt and Reference turn
// one into a training example, Noisy into a flawed one (synth*.go).
//
// PrivacyLens: ReadPrivacyLens reads the benchmark's cases (privacylens.go), ReadActions what agents did in them
// (privacylens_actions.go), ReadVerdicts and ReadScores what judges said of that (privacylens_verdicts.go), all joined by name;
// WriteActions, WriteVerdicts and WriteScores write them in the benchmark's own forms.
//
// The package knows no tensors, no tokenizer and no network.
package data
