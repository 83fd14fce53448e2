// Package remote asks models on servers that speak OpenAI's protocol.
//
// Glossary:
//   - try: one HTTP request; a question may need several;
//   - failure: a kind of error, by what may help ([Failure]);
//   - patience: how often and after which wait a failed try is made again ([Patience]);
//   - dialect: where a server differs from OpenAI's own (dialect.go);
//   - thoughts: reasoning that a server returns apart from the answer. It is put back in think tags.
//
// A [Client] is a [ask.Model]. It answers a question in five steps:
//
//  1. It refuses what the protocol cannot ask for, and asks once whether the server continues the beginning of an
//     answer (dialect.go).
//  2. Several questions are under way at a time (parallel.go). Each becomes a request (client.go), its tools and
//     calls in OpenAI's form (tools.go).
//  3. A try sends it and reads a reply of bounded size (http.go).
//  4. An error becomes one line with a kind. Patience waits and tries again where that may help.
//  5. A reply becomes answers. The key is in no answer and no message (internal/secret).
package remote
