// Package ask puts questions to a model, keeps its answers, and has them scored. Everything that samples for a purpose
// goes through it: evaluation, reinforcement learning, pairs and demonstrations, generation.
//
// Glossary:
//
//   - question: a prompt, how it is answered, and what a judge scores its answers by ([Question]);
//
//   - answer: a completion of a question ([Answer]);
//
//   - score: a number, higher for a better answer ([Score]);
//
//   - model: whatever answers ([Model]): one in this process ([Local]), a server's, recorded answers;
//
//   - judge: whatever scores ([Judge]): a program, a reward model, another model, a rule;
//
//   - kept: what is on disk before it counts ([Kept]).
//
//     1. [Fit] encodes the prompts and leaves out what is too long (question.go).
//     2. [Sample] draws the completions of some questions from a sampler; a [Model] answers any number (model.go).
//     3. A judge scores the answers; [Judged] asks it part by part and refuses what is no score (judge.go).
//     4. [Keep] opens the file that answers or scores grow in; [Kept.Fill] gets what is missing (keep.go).
//     5. [Pairs] makes preference pairs of the best and the worst answer to each question (pairs.go).
package ask
