// Package rollout lets a model answer prompts.
//
// Glossary:
//   - request: a prompt with how to continue it ([Request]);
//   - completion: the tokens that were drawn, their log-probs under the model, and why they end ([Completion]);
//   - draw: the uniform number that decides a token. It is a hash of the request's seed and the token's index, so that
//     a request draws the same numbers whatever stands beside it in a batch.
//
// [Sampler] is what other packages ask for. [Recompute] is the plain one: every token costs a forward pass over the
// whole text. It is slow and obviously right; faster samplers are tested against it.
package rollout
