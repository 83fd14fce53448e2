// Package serve answers OpenAI's protocol with a model: chats, with tools (tools.go), and completions, whole or
// streamed, the list of models, and a health page.
//
// Glossary:
//   - ask: a client's request, read and checked ([ask]);
//   - job: an ask being answered, with one row of the sampler per choice;
//   - queue: where jobs wait for rows of the sampler's steps; a request that finds it full is asked to come back.
//
// The path of a request:
//
//  1. Guards reject requests from other sites' web pages, without the token, or while the server stops (guard.go).
//  2. The body is read up to a limit. Every field is understood, known to change nothing, or rejected by name: nothing
//     that a client asks for is silently ignored (fields.go, messages.go).
//  3. The chat template turns the messages into a prompt, and the job joins the queue (job.go).
//  4. One goroutine samples (queue.go). Between two steps the sampler takes requests from the queue into its free rows,
//     so that a short answer does not wait for a long one. Tokens reach their jobs one by one. Prompts to be echoed are
//     measured before that, by the same goroutine.
//  5. The handler writes the reply (reply.go) or streams it as server-sent events (stream.go).
//
// When a client disconnects, its job leaves the queue and its rows become free.
package serve
