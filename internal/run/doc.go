// Package run keeps the folder of a training run: its config, its measurements, and checkpoints to resume from. It also
// has the [Reporter] through which a run talks to its user.
//
//	runs/mappo-20260102-150405/
//	  config.yaml                       the resolved config
//	  metrics.jsonl                     one object a line: step, epoch, then the metrics sorted by name
//	  samples.jsonl                     answers that evaluations show, one object a line
//	  curves.png                        a picture of the metrics
//	  tensorboard/                      event files, if the config asks for them (package track)
//	  summary.txt                       the results in words; summary.json has them as numbers
//	  manifest.json                     hashes of what the run was made of and what it left ([Manifest])
//	  model/                            the trained model, a Hugging Face folder
//	  reference.safetensors             log-probs of the reference, also reference-eval.safetensors
//	  best.json                         the best checkpoint so far and its metric
//	  checkpoints/step-00000010/        the trainer's files and manifest.json
//	  lock                              held by the process that trains into the folder
//
// Glossary:
//   - run folder: [Folder], opened by one process at a time ([Create], [Open]), which notices when the folder is taken
//     away from it ([Folder.Held]);
//   - record: one line of metrics ([Record]);
//   - checkpoint: a folder from which a run can resume ([Checkpoint]); it is complete or absent;
//   - watcher: shows what is logged elsewhere, too ([Watcher]);
//   - state: what a run must remember besides weights and moments ([State]).
//
// The life of a run:
//  1. [Create] makes and locks the folder; [Folder.WriteConfig] stores the config;
//  2. every step calls [Folder.Log] with its record and reports to a [Bar];
//  3. from time to time [Folder.WriteCheckpoint], [Folder.MarkBest], [Folder.Prune], in this order, after the records
//     of that step are logged;
//  4. [Folder.WriteCurves] and [Folder.WriteSummary] end it.
//
// To resume a run with the same config: [Open], [Folder.Latest], [Folder.ReadCheckpoint], [Folder.RestoreBest], and
// [Folder.CutMetrics] to the checkpoint's step. An interrupted run then has the same records as one without
// interruption.
//
// Every file except metrics.jsonl and samples.jsonl is written under a temporary name, flushed to the disk and renamed:
// if the process is killed or the disk is full, the folder has the old file or the new one. [Open] and [Folder.Own]
// remove the temporary files that remain, and no others.
package run
