// Package metered asks a model on a server many questions within a budget, and pays for each reply only once.
//
// Glossary:
//   - question: a prompt passed to [Client.Ask];
//   - try: one request sent for a question; a failed request that may succeed later is sent again as another try;
//   - flight: the tries for one question, shared by callers that ask the same question at the same time;
//   - reply: the text the server answers; the caller interprets it;
//   - cache: the file that keeps replies ([Options].Cache);
//   - ledger: counts, costs ([Stats]) and the budget that ends a run.
//
// The path of a question:
//  1. If its reply is in the cache, or the same question is in flight, that reply is returned.
//  2. A try waits for one of Parallel places, for room in the budget, then for the limit per minute.
//  3. The request is sent, for Timeout at most. After 408, 429, 5xx, a timeout, a broken connection or reply, or a
//     reply that is not a chat completion, it is tried again. The wait doubles each time, is shortened at random by
//     up to a half, and what the server asks for (Retry-After, Retry-After-Ms) is added. Until the server has
//     answered once, an unreachable server or unreadable replies end the question after three tries: the base URL is
//     probably wrong.
//  4. The reply is flushed to the cache's disk before the caller gets it.
//  5. A caller may leave (an ended context). After Close a flight sends nothing more. The request under way is paid for,
//     so its reply is kept if it arrives before [Options].Grace has passed.
//
// The key is read from the environment. It appears in no error and no file, even if a server repeats it.
//
// The cache is JSON lines: a header, then one reply per line, named by the SHA-256 of model, prompt and parameters. It
// stores no prompts and does not know the server: give two servers with the same model name two files. A killed process
// may leave half a line at the end, which is cut off. Any other file is left unchanged. One process at a time may use a
// cache; its lock ends with the process (there is no lock on Windows).
package metered
