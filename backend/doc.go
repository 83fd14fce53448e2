// Package backend opens the engine that carries out tensor programs. It is the only package that links engines.
//
// Glossary:
//   - engine: one of go (pure Go, always in the binary), onnx (ONNX Runtime, the fast one on a CPU) and xla (PJRT
//     plugins, GPUs);
//   - wants: how an engine would like to be fed ([Wants]); train and rollout read it, and nobody asks which engine runs;
//   - buffer: a tensor that an engine can read. On go and onnx it lies in host memory and is shared;
//   - program: one graph of fixed shapes, compiled ([Program]); a [Cache] keeps the few that are in use.
//
// The pipeline:
//  1. [Open] finds the engine and what it needs on this machine ([List] says what is there); nothing is ever downloaded;
//  2. [Engine.Compile] builds a graph and compiles it;
//  3. [Program.Run] executes it; its outputs belong to the caller, who finalises them.
//
// Guards. Each engine has traps that are silent or fatal. Their guards stand here, each with a test:
//   - onnx loses additions when a scatter meets an index twice, so the gradient of a look-up is refused when the graph
//     is built (see the decorator in onnxfunction.go);
//   - onnx's fused attention is wrong for grouped queries: it is taken out, attention is built of plain operations;
//   - onnx would bake variables into a graph as constants: it is told not to;
//   - onnx's tensors live outside Go's heap: a program that fails frees what it made, and the caller finalises the rest;
//   - go deadlocks with a bounded worker pool: it is always unbounded;
//   - go panics in a goroutine of its own on float16: such graphs are refused;
//   - the libraries panic on many mistakes: [Open], [Engine.Compile] and [Program.Run] return errors.
//
// The xla engine has been tested as far as its error paths only: no PJRT plugin was at hand.
package backend
