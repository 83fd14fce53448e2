// Package fleet samples on servers that other programs run: vLLM, SGLang, posttrain serve, or others that speak
// OpenAI's protocol with token ids.
//
// Glossary:
//   - policy: the model that learns ([Policy]); its version counts the updates;
//   - swap: giving a server the policy's present weights;
//   - missing: a completion that no server gave. It is one sample less, not a lost step.
//
// Tokens travel as ids and weights as files in a folder that trainer and servers share:
//
//  1. Before it samples, a [Fleet] writes the policy's weights, if they have changed, and swaps them on every server
//     that answers (swap.go). A server that does not answer is asked again before the next samples.
//  2. A probe compares the server's log-probs of fixed prompts with the trainer's (probe.go). Weights that were taken
//     wrongly end the run with a line that says how.
//  3. Each request goes to the server with the fewest under way (fleet.go). A server that fails loses its place, and
//     the request goes to another.
//  4. The reply's token ids become a completion by the rules of the local samplers, so that text and reason to end are
//     theirs (protocol.go). Ids that the model does not have are an error: the server has another model.
package fleet
