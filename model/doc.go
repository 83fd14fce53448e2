// Package model holds the decoder: its Hugging Face configuration, its weights on disk, and its graph.
//
// Glossary: N = rows*T positions of a packed batch, S target slots, H hidden size, V vocabulary size, h heads, kv
// key/value heads, D head size. Weights keep the names and the layout [out, in] of Hugging Face.
//
// From a model folder to a graph and back:
//
//  1. config.json (one of [Types], written by transformers 4 or 5) becomes a [Config]; an option that the decoder does
//     not support is an error that names it (config.go, configread.go);
//  2. [Config.ParamSpecs] lists the model's tensors in a fixed order (params.go);
//  3. [Load] reads them from model.safetensors, whole or sharded, into float32 (safetensors.go, load.go);
//  4. [Config.LogProbs] and [Config.Logits] build the graph: embedding rows, layers of attention over packed rows and
//     gated MLPs, and a head that never holds all of [S, V] for a large batch (decoder.go, attention.go, head.go);
//  5. [Config.Prefill] and [Config.Step] build the graphs of decoding with a cache of keys and values: one pass over
//     the prompts, then one token per row and step, with a [SampleHead] from which the host draws the next token. They
//     compute the same as Logits with fewer operations and without gradients (prefill.go, step.go, inference.go). The
//     host makes a step's rotations and masks ([Rotary], [StepShape.Mask]), since rows have different positions;
//  6. [Model.Save] writes the layout of transformers 4, which every tool reads;
//  7. [Model.Adapt] and [Model.LoadAdapter] add an adapter ([LoRA]) to a model: its tensors come last in ParamSpecs,
//     every graph adds its products, and only they are trained. peft reads what [Writer.SaveAdapter] writes, and
//     [Model.SaveMerged] adds the products to the weights (lora.go, adapter.go, merge.go).
package model
