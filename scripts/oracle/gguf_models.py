"""Writes recipe/exchange/testdata/NAME.gguf: folders of model/testdata as llama.cpp's converter would write them.

  pip install gguf==0.19.0 numpy==2.4.6 ml_dtypes==0.6.0 safetensors==0.8.0
  python scripts/oracle/gguf_models.py

Matrices are float16, vectors float32, as with llama.cpp's --outtype f16. The order of rows of q and k is that of its
convert_hf_to_gguf.py. Scores of SentencePiece's kind are the ranks of the merges, below zero.
"""

import json
import math
import pathlib

import ml_dtypes  # numpy's bfloat16  # noqa: F401
import numpy
from gguf import GGUFWriter, TokenType
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = {"llama-newer": "llama-bpe", "llama-older": "llama-bpe", "qwen2-older": "qwen2", "qwen3-newer": "qwen2",
           "mistral-older": None, "gemma2-older": None, "gemma3-newer": None, "phi3-older": None, "phi3-newer": None,
           "mixtral-older": None, "qwen3moe-newer": "qwen2"}  # fmt: skip
KINDS = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3", "qwen3_moe": "qwen3moe"}
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "block_sparse_moe.gate": "ffn_gate_inp", "mlp.gate": "ffn_gate_inp"}  # fmt: skip
GEMMA = LAYER | {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                 "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip
EXPERT = {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps", "gate_proj": "ffn_gate_exps",
          "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}  # fmt: skip
SINGLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
          "lm_head.weight": "output.weight"}  # fmt: skip


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def name_of(name, kind):
    """llama.cpp's name, and the number of an expert in the tensor of all."""
    if name in SINGLE:
        return SINGLE[name], None
    _, _, layer, rest = name.split(".", 3)
    part, end = rest.rsplit(".", 1)
    if ".experts." in part:
        number, of = part.split(".experts.")[1].split(".")
        return f"blk.{layer}.{EXPERT[of]}.{end}", int(number)
    return f"blk.{layer}.{(GEMMA if kind.startswith('gemma') else LAYER)[part]}.{end}", None


def add_config(writer, c, kind):
    heads = c["num_attention_heads"]
    head = c.get("head_dim") or c["hidden_size"] // heads
    rotated = int(head * c.get("partial_rotary_factor", 1))
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(rotated)
    rope = c.get("rope_parameters") or {"rope_theta": c["rope_theta"], **(c.get("rope_scaling") or {})}
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(c["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(c["final_logit_softcapping"])
    if kind == "gemma3":
        writer.add_float32("gemma3.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
        writer.add_uint32("gemma3.attention.sliding_window_pattern", c["sliding_window_pattern"])
        rope = rope["full_attention"]
    if kind == "qwen3moe" or "num_local_experts" in c:
        writer.add_expert_count(c["num_local_experts"])
        writer.add_expert_used_count(c["num_experts_per_tok"])
    if kind == "qwen3moe":
        writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
    writer.add_rope_freq_base(rope["rope_theta"])
    if kind in ("llama", "phi3", "gemma2", "gemma3", "qwen3moe") and c.get("sliding_window"):
        writer.add_sliding_window(c["sliding_window"])
    scaling = rope.get("rope_type", rope.get("type", "default"))
    if scaling == "linear":
        writer.add_string(f"{kind}.rope.scaling.type", "linear")
        writer.add_float32(f"{kind}.rope.scaling.factor", rope["factor"])
    if scaling == "llama3":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_tensor("rope_freqs.weight", factors(rope, head))
    if scaling == "longrope":
        longer = c["max_position_embeddings"] / c["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(c["original_max_position_embeddings"])
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(longer) / math.log(c["original_max_position_embeddings"])))
        for of in ("long", "short"):
            writer.add_tensor(f"rope_factors_{of}.weight", numpy.array(rope[f"{of}_factor"], dtype=numpy.float32))


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
        if config["model_type"].startswith("gemma"):
            writer.add_add_space_prefix(False)
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
    kind = KINDS.get(config["model_type"], config["model_type"])
    writer = GGUFWriter(out / f"{name}.gguf", kind)
    add_config(writer, config, kind)
    add_tokenizer(writer, folder, config, pre)
    experts = {}
    for tensor, w in weights(folder):
        w = w.astype(numpy.float32)
        if kind == "llama" and ".q_proj." in tensor:
            w = permute(w, config["num_attention_heads"])
        if kind == "llama" and ".k_proj." in tensor:
            w = permute(w, config["num_key_value_heads"])
        if kind.startswith("gemma") and tensor.endswith("norm.weight"):
            w = w + 1
        name, expert = name_of(tensor, kind)
        w = w.astype(numpy.float16 if w.ndim > 1 and "ffn_gate_inp" not in name else numpy.float32)
        if expert is None:
            writer.add_tensor(name, numpy.ascontiguousarray(w))
        else:
            experts.setdefault(name, {})[expert] = w
    for name, all in experts.items():
        writer.add_tensor(name, numpy.stack([all[i] for i in range(len(all))]))
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
