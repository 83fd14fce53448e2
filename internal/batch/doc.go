// Package batch turns records into rows of token ids. It is the only place where the boundary between a prompt and
// its answers is decided, where an end-of-turn token is added, and where over-long examples are dropped.
//
// Glossary:
//   - group: one prompt and the n answers to it (a preference pair has two, a demonstration one, a GRPO group many);
//   - row: T tokens of one forward pass; it holds one group or several, or one answer of a group where prompts are
//     not shared;
//   - microbatch: the rows that go through the model at once; a minibatch, what one update learns from, has several;
//   - slot: one predicted token, that is one log-prob that the model computes;
//   - block: the rows, and their slots, that one of several devices gets.
//
// The pipeline:
//  1. Encoder makes a Group of a record ([Encoder.Preference], [Encoder.Demonstration]);
//  2. [Limit] drops, or cuts, the groups that are over the limits;
//  3. [Pack], [Split] and, for groups of many answers, [PackGroups] lay groups out in rows of few lengths;
//  4. the arrays of a [Packed] batch go to package model as they are.
package batch
