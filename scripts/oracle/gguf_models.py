"""Writes recipe/exchange/testdata/NAME.gguf: folders of model/testdata as llama.cpp's converter would write them.

  pip install gguf==0.19.0 numpy==2.4.6 safetensors==0.8.0
  python scripts/oracle/gguf_models.py

Matrices are float16, vectors float32, as with llama.cpp's --outtype f16. The order of rows of q and k is that of its
convert_hf_to_gguf.py. Scores of SentencePiece's kind are the ranks of the merges, below zero.
"""

import json
import math
import pathlib

import numpy
from gguf import GGUFWriter, TokenType
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = {"llama-newer": "llama-bpe", "llama-older": "llama-bpe", "qwen2-older": "qwen2", "qwen3-newer": "qwen2",
           "mistral-older": None}  # fmt: skip
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}  # fmt: skip
SINGLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
          "lm_head.weight": "output.weight"}  # fmt: skip


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def name_of(name):
    if name in SINGLE:
        return SINGLE[name]
    _, _, layer, rest = name.split(".", 3)
    part, end = rest.rsplit(".", 1)
    return f"blk.{layer}.{LAYER[part]}.{end}"


def add_config(writer, c, kind):
    heads = c["num_attention_heads"]
    head = c.get("head_dim") or c["hidden_size"] // heads
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    rope = c.get("rope_parameters") or {"rope_theta": c["rope_theta"], **(c.get("rope_scaling") or {})}
    writer.add_rope_freq_base(rope["rope_theta"])
    if kind == "llama" and c.get("sliding_window"):
        writer.add_sliding_window(c["sliding_window"])
    scaling = rope.get("rope_type", rope.get("type", "default"))
    if scaling == "linear":
        writer.add_string(f"{kind}.rope.scaling.type", "linear")
        writer.add_float32(f"{kind}.rope.scaling.factor", rope["factor"])
    if scaling == "llama3":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_tensor("rope_freqs.weight", factors(rope, head))


def factors(rope, head):
    """What the frequencies are divided by."""
    low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    out = []
    for i in range(0, head, 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (i / head)
        if wave < old / high:
            out.append(1)
        elif wave > old / low:
            out.append(rope["factor"])
        else:
            smooth = (old / wave - low) / (high - low)
            out.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return numpy.array(out, dtype=numpy.float32)


def add_tokenizer(writer, folder, config, pre):
    spec = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    vocab, merges = spec["model"]["vocab"], [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    tokens, types = [f"[PAD{i}]" for i in range(config["vocab_size"])], [TokenType.UNUSED] * config["vocab_size"]
    for text, i in vocab.items():
        byte = pre is None and text.startswith("<0x") and text.endswith(">")
        tokens[i], types[i] = text, TokenType.BYTE if byte else TokenType.NORMAL
    for a in spec["added_tokens"]:
        tokens[a["id"]] = a["content"]
        types[a["id"]] = TokenType.CONTROL if a["special"] else TokenType.USER_DEFINED
    if pre:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges(merges)
    else:
        writer.add_tokenizer_model("llama")
        types[tokens.index("<unk>")] = TokenType.UNKNOWN
        rank = {m.replace(" ", "", 1): -float(i) for i, m in reversed(list(enumerate(merges)))}
        writer.add_token_scores([rank.get(t, 0.0) for t in tokens])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    named = {k: settings.get(k) for k in ("bos_token", "eos_token", "unk_token", "pad_token")}
    named = {k: v["content"] if isinstance(v, dict) else v for k, v in named.items() if v}
    adders = {"bos_token": writer.add_bos_token_id, "eos_token": writer.add_eos_token_id,
              "unk_token": writer.add_unk_token_id, "pad_token": writer.add_pad_token_id}  # fmt: skip
    for key, token in named.items():
        adders[key](tokens.index(token))
    post = json.dumps(spec["post_processor"])
    writer.add_add_bos_token('"SpecialToken"' in post)
    template = folder / "chat_template.jinja"
    writer.add_chat_template(template.read_text() if template.exists() else settings["chat_template"])


def weights(folder):
    for path in sorted(folder.glob("*.safetensors")):
        yield from load_file(path).items()


def convert(name, pre, out):
    folder = ROOT / "model" / "testdata" / name
    config = json.loads((folder / "config.json").read_text())
    kind = {"mistral": "llama"}.get(config["model_type"], config["model_type"])
    writer = GGUFWriter(out / f"{name}.gguf", kind)
    add_config(writer, config, kind)
    add_tokenizer(writer, folder, config, pre)
    for tensor, w in weights(folder):
        w = w.astype(numpy.float32)
        if kind == "llama" and ".q_proj." in tensor:
            w = permute(w, config["num_attention_heads"])
        if kind == "llama" and ".k_proj." in tensor:
            w = permute(w, config["num_key_value_heads"])
        w = w.astype(numpy.float16 if w.ndim > 1 else numpy.float32)
        writer.add_tensor(name_of(tensor), numpy.ascontiguousarray(w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    out = ROOT / "recipe" / "exchange" / "testdata"
    out.mkdir(exist_ok=True)
    for name, pre in FOLDERS.items():
        convert(name, pre, out)


if __name__ == "__main__":
    main()
