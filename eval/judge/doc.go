// Package judge asks a model on a server for many verdicts, and pays for none twice.
//
// Glossary:
//   - question: a prompt for the judge, asked with [Client.Ask];
//   - try: one request that is sent for a question. Those that fail and may pass are sent again, as another try;
//   - flight: the tries for one question, which equal questions at the same time share;
//   - reply: what the judge answers. Reading a verdict out of it is the caller's;
//   - cache: the file that keeps replies ([Options].Cache);
//   - ledger: counts and costs ([Stats]), and the budget that ends a run.
//
// The way of a question:
//  1. its reply is in the cache, or an equal question is in flight: that is its reply;
//  2. a try waits for one of Parallel places, for room in the budget, then for the limits of requests and tokens a minute;
//  3. the request is sent, for Timeout at most. After 408, 429, 5xx, a time-out, a broken connection or reply, or one that is
//     no chat completion, it is tried again: after a wait that doubles, by chance shorter by up to a half, and later by
//     what the server asks for (Retry-After, Retry-After-Ms). As long as the server has answered nothing at all, an
//     unreachable server or foreign replies end it after three tries: the base URL is wrong as a rule;
//  4. the reply is in the cache and flushed to the disk before the caller gets it;
//  5. when its askers are gone (an ended context, an error elsewhere), a flight sends nothing more; the request that is on
//     its way is paid for, so its reply is kept if it comes while the client is open or closes ([Options].Grace).
//
// The key is read from the environment. It is in no error and no file, not even where a server repeats it.
//
// The cache is lines of JSON: one that says what the file is, then one a reply, named by the SHA-256 of model, prompt and
// parameters. It has no prompts, and does not know the server: for two judges of the same name on two servers, name two
// files. A process killed while it writes leaves half a line at the end, which is cut off. A file that is something else
// is left alone. One process at a time uses it; the lock goes with the process (not on Windows, which has no such lock
// in Go's standard library).
package judge
