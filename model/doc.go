// Package model holds the decoder: its Hugging Face configuration, its weights on disk, and its graph.
//
// Glossary: N = rows*T positions of a packed batch, S target slots, H hidden size, V vocabulary size, h heads,
// kv key/value heads, D head size. Weights keep the Hugging Face layout [out, in] and names everywhere.
//
// The way of a model folder:
//
//  1. config.json (model_type llama, mistral, qwen2 or qwen3, written by transformers 4 or 5) becomes a [Config]; whatever
//     the decoder cannot do is an error that names the field (config.go, configread.go);
//  2. [Config.ParamSpecs] lists the tensors that such a model has, in one fixed order (params.go);
//  3. [Load] reads them from model.safetensors, whole or sharded, into float32 (safetensors.go, load.go);
//  4. [Config.LogProbs] and [Config.Logits] build the graph over them: embedding rows, layers of attention over packed rows
//     and SwiGLU, and a head that never holds [S, V] for a large batch at once (decoder.go, attention.go, head.go);
//  5. [Config.Prefill] and [Config.Step] build the graphs of decoding with a cache of keys and values: one pass over
//     prompts, then one token for every row a step, with what the next token is drawn from ([SampleHead]). They compute
//     what Logits does, of fewer operations and without gradients (prefill.go, step.go, inference.go). Rotations and
//     masks of a step are the host's ([Rotary], [StepShape.Mask]), so that rows may stand at different positions;
//  6. [Model.Save] writes the older generation of the layout, which every tool reads.
package model
