// Package rollout lets a model answer prompts.
//
// Glossary:
//   - request: a prompt with how to continue it ([Request]);
//   - completion: the tokens that were drawn, their log-probs under the model, their text and why they end ([Completion]);
//   - draw: the uniform number that decides a token. It is a hash of the request's seed and the token's index, so that
//     a request draws the same numbers whatever stands beside it in a batch;
//   - wave: requests that are answered together, each in a row of a step;
//   - layout: which row stands where. Samples of one prompt stand together, so that they can share its cache; rows that
//     have ended make room when the others fit a step of fewer rows.
//
// [Sampler] is what other packages ask for, with its promises; the tests hold them against every implementation.
//
//  1. [Cached] reads each prompt once (a prefill) and keeps its keys and values; every token more costs one row of a
//     step (wave.go). The cache is memory that the host writes and the engine reads (host.go), or it stays in the engine
//     (graphstore.go).
//  2. The graph gives logits with the sums and maxima of blocks of them; the token is chosen on the host in float64,
//     without a sort of the vocabulary and mostly without a look at it (row.go).
//  3. [Recompute] is the plain sampler: every token costs a forward pass over the whole text, and is chosen by a sort and
//     full sums (choose.go). It is slow and obviously right, and the others are tested against it.
//  4. [Remote] asks a server that speaks OpenAI's protocol.
package rollout
