// Package rollout samples a model's answers to prompts.
//
// Glossary:
//   - request: a prompt and how to continue it ([Request], [Sampling]);
//   - completion: the tokens drawn, their log-probs under the model, their text and why they end ([Completion]);
//   - draw: the uniform number that decides a token: a hash of the request's seed and the token's index, the same
//     whatever else is in the batch;
//   - batch: requests answered together, each in one row of a step; in a [Cached.SampleContinuously] others join it;
//   - layout: which row is where. Samples of one prompt are neighbours, so that they can share its cache; when rows
//     have ended, the others move into a step of fewer rows.
//
// Other packages use a [Sampler], whose promises are tested for every implementation.
//
//  1. [Cached] reads each prompt once (prefill) and keeps its keys and values; each further token costs one row of a
//     step (batch.go). The cache is memory that the host writes and the engine reads (host.go), or stays in the engine
//     (graphstore.go).
//  2. The graph returns logits with sums and maxima of their blocks. The host chooses the token in float64, without
//     sorting the vocabulary and mostly without reading it (row.go).
//  3. On a mesh one [Cached] samples on all devices, over which the rows are cut.
//  4. Package remote asks a server that speaks OpenAI's protocol; package metered adds a cache, a budget and limits.
//
// The tests hold a plain sampler (slow_test.go): a forward pass over the whole text for every token, then a sort and
// full sums. It is slow and easy to verify; [Cached] is tested against it.
package rollout
