// Package serve puts a model behind an endpoint that speaks OpenAI's protocol: chat completions, whole or streamed, the
// list of models, and a page that says whether all is well.
//
// Glossary:
//   - ask: a request of a client, read and checked ([ask]);
//   - job: an ask under way, with one row of the sampler for each choice that it wants;
//   - line: where jobs wait while the sampler is at work. It has an end: who comes when it is full is told to come back;
//   - batch: the jobs that one call of the sampler answers together.
//
// The way of a request:
//
//  1. guards (guard.go): requests of web pages elsewhere, without the token, or while the server stops are turned away;
//  2. the body is read up to a limit, and every field of it is either understood, or known to change nothing, or
//     refused by name (fields.go, messages.go): nothing that a client asks for is silently dropped;
//  3. the chat template makes a prompt of the messages, and the job joins the line (job.go);
//  4. one goroutine takes jobs out of the line and has them sampled together (line.go, batch.go). Tokens reach their
//     jobs one by one, so that a job's reply does not wait for the others of its batch;
//  5. the handler writes the reply (reply.go), or streams it as server-sent events (stream.go).
//
// A client that goes away leaves the line, or its batch, which ends when everybody else in it has been served.
package serve
