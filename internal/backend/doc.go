// Package backend opens the engine that runs tensor programs. It is the only package that links engines.
//
// Glossary:
//   - engine: one of go (pure Go, always in the binary), onnx (ONNX Runtime, the fast one on a CPU) and xla (PJRT
//     plugins, GPUs);
//   - wants: how to use an engine well ([Wants]); train and rollout read it and never ask which engine runs;
//   - buffer: a tensor that an engine can read. On go and onnx it is shared host memory;
//   - device: a GPU that is not there, for which programs are compiled and measured ([OpenDevice], [Compiled]);
//   - program: one compiled graph of fixed shapes ([Program]); a [Cache] keeps the few that are in use.
//
// The pipeline:
//  1. [Open] finds the engine and its libraries on this machine ([List] says which are there); it downloads nothing;
//  2. [Engine.Compile] builds a graph and compiles it;
//  3. [Program.Run] executes it; the caller owns the outputs and finalises them.
//
// Guards. Each engine can fail silently or fatally. Each guard against that has a test:
//   - onnx loses additions if a scatter gets an index twice: the gradient of a look-up is refused when the graph is
//     built (onnxfunction.go);
//   - onnx's fused attention is wrong for grouped queries: it is removed, and attention is built of plain operations;
//   - onnx would turn variables into constants of the graph: that is switched off;
//   - onnx's tensors live outside Go's heap: a program that fails frees its outputs, and the caller finalises the rest;
//   - go deadlocks with a bounded worker pool: the pool is always unbounded;
//   - go panics on float16 in a goroutine of its own: such graphs are refused;
//   - xla's library crashes on plugins of an old PJRT: their version is read first (xlaabi.go);
//   - the libraries panic on many mistakes: [Open], [Engine.Compile] and [Program.Run] return errors.
package backend
