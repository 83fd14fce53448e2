// Package run keeps the folder of a training run: what it was asked, what it measured, and from where it can go on.
//
//	runs/mappo-20260102-150405/
//	  config.yaml                       the resolved config
//	  metrics.jsonl                     one object a line: step, epoch, then the metrics in order of name
//	  samples.jsonl                     completions of a run that learns from rewards, one object a line
//	  curves.png                        the same as a picture
//	  summary.txt                       the same in words
//	  model/                            the trained model, a Hugging Face folder
//	  reference.safetensors             log-probs of the reference, also reference-eval.safetensors
//	  best.json                         which checkpoint is the best so far, and by what metric
//	  checkpoints/step-00000010/        whatever the trainer stores, and manifest.json
//	  lock                              held by the process that trains into the folder
//
// Glossary:
//   - run folder: [Folder], opened by one process at a time ([Create], [Open]);
//   - record: one line of metrics ([Record]);
//   - checkpoint: a folder that a run can go on from ([Checkpoint]); complete or not there at all;
//   - state: what a run must remember beside weights and moments ([State]).
//
// The life of a run:
//  1. [Create] makes and locks the folder; [Folder.WriteConfig] stores what was asked;
//  2. every step [Folder.Log]s its record, and tells [Progress];
//  3. from time to time [Folder.WriteCheckpoint], [Folder.MarkBest], [Folder.Prune], in this order, after the records
//     of that step are logged;
//  4. [Folder.WriteCurves] and [Folder.WriteSummary] close it.
//
// To go on after an interruption, with the same config: [Open], [Folder.Latest], [Folder.ReadCheckpoint],
// [Folder.RestoreBest], and [Folder.CutMetrics] to the checkpoint's step. A run that was interrupted anywhere then has
// the same records as one that was not.
//
// Every file but metrics.jsonl is written under a temporary name, flushed to the disk and renamed, so that a process
// killed at any moment, or a full disk, leaves the old file or the new one. [Open] removes what is left under these
// temporary names, and nothing else.
package run
