"""Makes the tiny model folders under model/testdata and what transformers computes with them.

For each of qwen2, qwen3, llama, mistral, gemma, gemma2, gemma3, phi3, mixtral and qwen3moe there are two folders, one in each
generation of the Hugging Face layout: `<type>-older` as transformers 4 wrote it (and most of the hub still is),
`<type>-newer` as transformers 5 saves it. gemma3-older is a model that also sees, with its text part and one tensor of
another. Weights are random but large enough that logits are far from flat. Each folder has its own tokenizer, trained
here on the text below, a chat template in the style of its family, and oracle.json:

  rows[i]    text, ids, logits [len(ids)][vocab] to five decimals, logps [len(ids)-1] (log p(ids[t+1] | ids[:t+1])),
             of the row alone, without padding
  padded     left and right: ids, mask, positions, each [rows][longest]; the same rows as one batch
  pairs[i]   prompt, chosen, rejected (lists of role and content); the rendered prompt_text, chosen_text and
             rejected_text; their token ids; per-token log-probs of both completions and their sums
  greedy     per row, the ids of the 24 likeliest next tokens one after the other, by transformers with its cache
  gradients  per tensor, of the pairs' log-probs times WEIGHTS: L2 norm, and product with sin(1), sin(2), ...
             (greedy and gradients: only in the families that came after the first four)
  noise      largest difference between float32 and transformers in float64 (its softmax and norms stay float32)

Numbers are float32, eager attention, weights upcast from the stored dtype. Run:

  python scripts/oracle/models.py [--out model/testdata] [folder ...]
"""

import argparse
import json
import math
import pathlib
import shutil
import sys
import tempfile

import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXT = """The nurse asked the clinic to send the report before noon, and the clerk said that the report was ready.
Please tell my landlord that the rent will be paid on Friday, but do not tell him where I work.
She wrote the answer on the board: 12 + 30 = 42, then 42 * 10 = 420. It's what we'd have done; they'll see.
def send(report, to):\n    return to.receive(report)  # the clerk sends the report
A small boat went over the water in the morning, and the children on the shore were counting the birds.
What should I write in the letter? Write the date, the place, the names, and then thank them for the answer.
The weather today is warm and bright; the weather tomorrow will be cold, so take the coat with you.
Der Zug nach München fährt um acht Uhr. La réponse est là. ¿Dónde está la carta? 今日は晴れです。
"""

ROWS = [
    "The clerk sent the report, and then thanked them.",
    "42 + 10?\n\tIt's 52.",
    "là 🙂",
]

PAIRS = [
    {
        "prompt": [{"role": "user", "content": "Where is the report?"}],
        "chosen": [{"role": "assistant", "content": "The report is on the board."}],
        "rejected": [{"role": "assistant", "content": "I will not say."}],
    },
    {
        "prompt": [
            {"role": "system", "content": "Answer in a few words."},
            {"role": "user", "content": "Write to my landlord about the rent."},
        ],
        "chosen": [{"role": "assistant", "content": "The rent will be paid on Friday."}],
        "rejected": [{"role": "assistant", "content": "The rent will be paid. I work at the clinic, 42 Shore Street!"}],
    },
    {
        "prompt": [
            {"role": "user", "content": "12 + 30?"},
            {"role": "assistant", "content": "42"},
            {"role": "user", "content": "And 42 * 10?"},
        ],
        "chosen": [{"role": "assistant", "content": "420 🙂"}],
        "rejected": [{"role": "assistant", "content": "It's\n\n  52."}],
    },
]

# --- tokenizers ---------------------------------------------------------------------------------------------------

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_SPLIT = QWEN_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

CHATML = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are a clerk.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role != 'system' %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA_CHAT = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' \
+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL_CHAT = """{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] + '\\n\\n' %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = '' %}
    {%- set rest = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + (system if loop.first else '') + message['content'] + '[/INST]' }}
    {%- else %}
        {{- ' ' + message['content'] + eos_token }}
    {%- endif %}
{%- endfor %}
"""


GEMMA_CHAT = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] + '\\n\\n' %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = '' %}
    {%- set rest = messages %}
{%- endif %}
{%- for message in rest %}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
    {{- '<start_of_turn>' + role + '\\n' + (system if loop.first else '') + message['content'] | trim \
+ '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\\n' }}
{%- endif %}
"""


def byte_level(split, specials, size, nfc, bos=None):
    """A byte-level BPE as Qwen's and Llama 3's tokenizer.json have it: a look-ahead split, then bytes."""
    t = Tokenizer(BPE(ignore_merges=bos is not None))
    if nfc:
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    t.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(specials), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False
    )
    t.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    if bos:
        t.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=False), bos_template(bos, t.token_to_id(bos))]
        )
    else:
        t.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    return t


def bos_template(bos, number):
    return processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, number)]
    )


def byte_fallback(specials, merges, form):
    """Words begin with U+2581, unknown characters fall back to <0x00>..<0xFF>. Mistral's first form prepends U+2581 by a
    normalizer, its second by a pre-tokenizer; Gemma's prepends nothing."""
    words = Tokenizer(BPE())
    words.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    plain = TEXT.encode("ascii", "ignore").decode()
    alphabet = sorted({c for c in plain if c.isalnum() or c in ".,?"} | {"▁"})
    words.train_from_iterator(
        ["".join(c for c in line if c in alphabet or c == " ") for line in plain.splitlines()],
        trainers.BpeTrainer(vocab_size=len(alphabet) + merges, initial_alphabet=alphabet, show_progress=False),
    )
    trained = json.loads(words.to_str())["model"]
    names = specials + [f"<0x{b:02X}>" for b in range(256)] + sorted(trained["vocab"], key=trained["vocab"].get)
    vocab = {name: i for i, name in enumerate(names)}
    pairs = [tuple(m) for m in trained["merges"]]
    t = Tokenizer(BPE(vocab=vocab, merges=pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    bos, strip = "<s>", [decoders.Strip(content=" ", left=1)]
    if form == "gemma":
        bos, strip = "<bos>", []
        t.normalizer = normalizers.Replace(" ", "▁")
        t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif form == "older":
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    t.post_processor = bos_template(bos, vocab[bos])
    return t


CHATML_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA_SPECIALS = [
    "<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>",
    "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
]  # fmt: skip
MISTRAL_SPECIALS = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
GEMMA_SPECIALS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"]


def make_tokenizer(kind, older):
    """The raw tokenizer and its tokenizer_config.json (the part common to both generations)."""
    if kind in ("qwen2", "qwen3", "qwen3moe"):
        t = byte_level(QWEN_SPLIT, CHATML_SPECIALS, 304, nfc=True)
        names = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None}
        extra = {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False}
        return t, names, extra, CHATML
    if kind == "llama":
        t = byte_level(LLAMA_SPLIT, LLAMA_SPECIALS, 308, nfc=False, bos="<|begin_of_text|>")
        names = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|finetune_right_pad_id|>"}
        return t, names, {"tokenizer_class": "PreTrainedTokenizerFast"}, LLAMA_CHAT
    if kind.startswith("gemma"):
        t = byte_fallback(GEMMA_SPECIALS, 24, "gemma")
        names = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
        extra = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": False}
        return t, names, extra, GEMMA_CHAT
    t = byte_fallback(MISTRAL_SPECIALS, 24, "older" if older else "newer")
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
    extra = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "legacy": False}
    return t, names, extra, MISTRAL_CHAT


# --- models -------------------------------------------------------------------------------------------------------


def base(kind, raw, **more):
    """What every config shares. Heads 4, key/value heads 2, so that grouped attention is exercised."""
    cfg = {
        "architectures": [{"qwen2": "Qwen2", "qwen3": "Qwen3", "llama": "Llama", "mistral": "Mistral",
            "gemma": "Gemma", "gemma2": "Gemma2", "gemma3": "Gemma3", "phi3": "Phi3", "mixtral": "Mixtral", "qwen3moe": "Qwen3Moe"}[kind]
            + "ForCausalLM"],
        "model_type": {"gemma3": "gemma3_text", "qwen3moe": "qwen3_moe"}.get(kind, kind),
        "vocab_size": raw.get_vocab_size(),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-6,
        "attention_dropout": 0.0,
        "use_cache": True,
    }
    cfg.update(more)
    return cfg


def token_ids(kind, raw):
    """bos, eos (a number), generation_config's eos (may be a list) and pad, as the families ship them."""
    i = raw.token_to_id
    if kind in ("qwen2", "qwen3", "qwen3moe"):
        return i("<|endoftext|>"), i("<|im_end|>"), [i("<|im_end|>"), i("<|endoftext|>")], i("<|endoftext|>")
    if kind == "llama":
        eos = [i("<|end_of_text|>"), i("<|eot_id|>")]
        return i("<|begin_of_text|>"), eos, eos, i("<|finetune_right_pad_id|>")
    if kind.startswith("gemma"):
        return i("<bos>"), i("<eos>"), [i("<eos>"), i("<end_of_turn>")], i("<pad>")
    return i("<s>"), i("</s>"), i("</s>"), None


LLAMA3_ROPE = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_type": "llama3",
}

# folder: config beside base(), in the older generation's words; dtype; shard limit in bytes
FOLDERS = {
    "qwen2-older": (dict(tie_word_embeddings=True, rope_theta=1000000.0, rope_scaling=None, use_sliding_window=False,
        sliding_window=8, max_window_layers=1), "float32", None),
    "qwen2-newer": (dict(tie_word_embeddings=False, rope_theta=10000.0, use_sliding_window=True,
        sliding_window=8, max_window_layers=1), "float32", None),
    "qwen3-older": (dict(tie_word_embeddings=False, rope_theta=1000000.0, rope_scaling=None, head_dim=16,
        attention_bias=False,
        hidden_size=40, use_sliding_window=False, sliding_window=None, max_window_layers=2),
        "bfloat16", None),
    "qwen3-newer": (dict(tie_word_embeddings=True, rope_theta=1000000.0, head_dim=12, attention_bias=False,
        hidden_size=32,
        use_sliding_window=False, sliding_window=None), "float32", None),
    "llama-older": (dict(tie_word_embeddings=False, rope_theta=500000.0, rope_scaling=LLAMA3_ROPE, rms_norm_eps=1e-5,
        attention_bias=False, mlp_bias=False, pretraining_tp=1), "float32", 60_000),
    "llama-newer": (dict(tie_word_embeddings=True, rope_theta=10000.0,
        rope_scaling={"rope_type": "linear", "factor": 2.0},
        hidden_size=40, head_dim=12, rms_norm_eps=1e-5, attention_bias=False, mlp_bias=False),
        "float32", None),
    "mistral-older": (dict(tie_word_embeddings=False, rope_theta=10000.0, sliding_window=8, num_hidden_layers=3,
        rms_norm_eps=1e-5), "float16", None),
    "mistral-newer": (dict(tie_word_embeddings=True, rope_theta=1000000.0, sliding_window=8, head_dim=12,
        intermediate_size=40,
        rms_norm_eps=1e-5),
        "float32", None),
    "gemma-older": (dict(head_dim=12, intermediate_size=40, rope_theta=10000.0, hidden_act="gelu",
        num_key_value_heads=1, tie_word_embeddings=True), "bfloat16", None),
    "gemma-newer": (dict(head_dim=12, intermediate_size=40, rope_theta=500.0, hidden_act="gelu_pytorch_tanh",
        tie_word_embeddings=True), "float32", None),
    "gemma2-older": (dict(head_dim=12, intermediate_size=40, rope_theta=10000.0,
        hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=10,
        sliding_window=8, attn_logit_softcapping=5.0, final_logit_softcapping=9.0, tie_word_embeddings=True),
        "float32", None),
    "gemma2-newer": (dict(head_dim=12, intermediate_size=40, rope_theta=500.0,
        hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=14,
        sliding_window=8, attn_logit_softcapping=3.0, final_logit_softcapping=None, tie_word_embeddings=True),
        "float32", None),
    "gemma3-older": (dict(head_dim=12, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=10,
        sliding_window=8, sliding_window_pattern=2, num_hidden_layers=3, rope_theta=20000.0,
        rope_local_base_freq=10000.0, rope_scaling={"rope_type": "linear", "factor": 4.0}, tie_word_embeddings=True),
        "bfloat16", None),
    "gemma3-newer": (dict(head_dim=12, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=14,
        intermediate_size=40,
        sliding_window=8, sliding_window_pattern=2, rope_theta=500000.0, rope_local_base_freq=2000.0,
        tie_word_embeddings=True), "float32", None),
    "phi3-older": (dict(tie_word_embeddings=False, rope_theta=1000.0, rope_scaling=None, sliding_window=8,
        intermediate_size=40, resid_pdrop=0.0, embd_pdrop=0.0, pad_token_id=0,
        original_max_position_embeddings=256), "bfloat16", None),
    "phi3-newer": (dict(tie_word_embeddings=True, hidden_size=24, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=40, rope_theta=1000.0,
        partial_rotary_factor=0.67, max_position_embeddings=512, original_max_position_embeddings=128, pad_token_id=0,
        rope_scaling={"type": "longrope", "short_factor": [1.0, 1.5, 2.0, 3.5], "long_factor": [1.0, 4.0, 6.0, 8.0]}),
        "float32", None),
    "mixtral-older": (dict(tie_word_embeddings=False, rope_theta=1000000.0, intermediate_size=16, sliding_window=None,
        num_local_experts=4, num_experts_per_tok=2, output_router_logits=False), "bfloat16", None),
    "mixtral-newer": (dict(tie_word_embeddings=True, hidden_size=24, rope_theta=10000.0, intermediate_size=12, sliding_window=8,
        num_local_experts=5, num_experts_per_tok=3, head_dim=12), "float32", None),
    "qwen3moe-older": (dict(tie_word_embeddings=False, rope_theta=1000000.0, rope_scaling=None, head_dim=12,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=True, attention_bias=False,
        decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False, sliding_window=None,
        output_router_logits=False), "bfloat16", None),
    "qwen3moe-newer": (dict(tie_word_embeddings=True, rope_theta=500.0, head_dim=12, num_experts=5,
        num_experts_per_tok=3, moe_intermediate_size=10, norm_topk_prob=False, use_sliding_window=True,
        sliding_window=8), "float32", None),
    "llama-yarn": (dict(tie_word_embeddings=True, rope_theta=1000.0, hidden_size=48, intermediate_size=40,
        rms_norm_eps=1e-5, rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 4.0,
        "original_max_position_embeddings": 64}), "bfloat16", None),
    "qwen2-yarn": (dict(tie_word_embeddings=True, rope_theta=10000.0, hidden_size=64, intermediate_size=40,
        num_hidden_layers=1, rope_scaling={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 48,
        "truncate": False, "mscale": 1.0, "mscale_all_dim": 0.5}, use_sliding_window=False), "bfloat16", None),
    "mistral-dynamic": (dict(tie_word_embeddings=True, rope_theta=1000.0, hidden_size=32, intermediate_size=40,
        sliding_window=None, rope_scaling={"rope_type": "dynamic", "factor": 4.0}), "float32", None),
}  # fmt: skip


def config_for(name, raw):
    kind, generation = name.split("-")
    more, dtype, shard = FOLDERS[name]
    cfg = base(kind, raw, **more)
    bos, eos, gen_eos, pad = token_ids(kind, raw)
    cfg.update(bos_token_id=bos, eos_token_id=eos)
    if kind == "llama" and generation == "newer":
        cfg["pad_token_id"] = pad
    return cfg, dtype, shard, {"bos_token_id": bos, "eos_token_id": gen_eos,
        "pad_token_id": cfg.get("pad_token_id", pad)}


def randomise(model, seed):
    """Matrices with standard deviation 0.3, norms around 1, biases 0.3: attention and logits far from flat."""
    g = torch.Generator().manual_seed(seed)
    norm = 0 if model.config.model_type.startswith("gemma") else 1  # gemma multiplies by 1 + weight
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=g)
            p.copy_(norm + 0.2 * noise if "norm" in name else 0.3 * noise)


def from_config(cfg):
    """An AutoModel of the older generation's config dict, through a file, as a user's folder would be read."""
    with tempfile.TemporaryDirectory() as d:
        (pathlib.Path(d) / "config.json").write_text(json.dumps(cfg))
        c = transformers.AutoConfig.from_pretrained(d)
    plain = {"experts_implementation": "eager"} if c.model_type in ("mixtral", "qwen3_moe") else {}
    return AutoModelForCausalLM.from_config(c, attn_implementation="eager", dtype=torch.float32, **plain)


# --- writing ------------------------------------------------------------------------------------------------------


def dump(path, value, indent=2):
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


def merges_as_strings(text):
    """tokenizer.json as transformers 4 wrote it: merges are "a b"."""
    t = json.loads(text)
    t["model"]["merges"] = [" ".join(m) for m in t["model"]["merges"]]
    return t


def special_object(name):
    return {"content": name, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}


def write_older(folder, name, model, cfg, dtype, shard, gen, raw, names, extra, template):
    cfg = dict(cfg, torch_dtype=dtype, transformers_version="4.46.0")
    dump(folder / "config.json", whole_config(name, dict(sorted(cfg.items()))))
    gen = {k: v for k, v in gen.items() if v is not None}
    dump(folder / "generation_config.json", dict(gen, transformers_version="4.46.0"))
    write_weights(folder, model, getattr(torch, dtype), shard)
    dump(folder / "tokenizer.json", merges_as_strings(raw.to_str()), indent=1)
    specials = {k: (special_object(v) if v else None) for k, v in names.items()}
    added = raw.get_added_tokens_decoder()
    config = dict(extra)
    config["added_tokens_decoder"] = {
        str(i): dict(special_object(t.content), special=True) for i, t in sorted(added.items())
    }
    # Most of the hub has strings here; Llama 2 and early Mistral folders have objects that carry their type.
    objects = {k: dict(v, __type="AddedToken") for k, v in specials.items() if v}
    config.update(objects if name.startswith("mistral") else names)
    config.update(chat_template=template, clean_up_tokenization_spaces=False, model_max_length=256)
    dump(folder / "tokenizer_config.json", dict(sorted(config.items())))
    dump(folder / "special_tokens_map.json", {k: v for k, v in specials.items() if v})


def whole_config(name, cfg):
    """gemma3-older's config is that of the text part of a larger model."""
    if name != "gemma3-older":
        return cfg
    outside = ("architectures", "bos_token_id", "eos_token_id", "torch_dtype", "transformers_version")
    text = {k: v for k, v in cfg.items() if k not in outside}
    vision = {"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "image_size": 28,
        "num_attention_heads": 1, "num_hidden_layers": 1, "patch_size": 14}
    return {**{k: cfg[k] for k in outside}, "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "text_config": text, "vision_config": vision, "mm_tokens_per_image": 4, "boi_token_index": 4,
        "eoi_token_index": 5, "image_token_index": 3}


def write_weights(folder, model, dtype, shard):
    """model.safetensors, or shards with an index once `shard` bytes are passed; a tied head is not stored."""
    state = {k: v.detach().to(dtype).contiguous() for k, v in split_experts(model, model.state_dict()).items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    if folder.name == "gemma3-older":
        state = {"language_model." + k: v for k, v in state.items()}
        state["multi_modal_projector.mm_soft_emb_norm.weight"] = torch.ones(8, dtype=dtype)
    if shard is None:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return
    parts, size = [{}], 0
    for k, v in state.items():
        n = v.numel() * v.element_size()
        if parts[-1] and size + n > shard:
            parts, size = parts + [{}], 0
        parts[-1][k] = v
        size += n
    names = [f"model-{i + 1:05d}-of-{len(parts):05d}.safetensors" for i in range(len(parts))]
    for part, file in zip(parts, names):
        save_file(part, folder / file, metadata={"format": "pt"})
    total = sum(v.numel() * v.element_size() for v in state.values())
    where = {k: file for part, file in zip(parts, names) for k in part}
    dump(folder / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))})


def split_experts(model, tensors):
    """name -> tensor as in files, where each expert has tensors of its own; transformers 5 has one for all of a layer."""
    block, gate, up, down = {"mixtral": ("block_sparse_moe", "w1", "w3", "w2"),
        "qwen3_moe": ("mlp", "gate_proj", "up_proj", "down_proj")}.get(model.config.model_type, (None,) * 4)
    out = {}
    for name, x in tensors.items():
        if block is None or ".mlp." not in name:
            out[name] = x
            continue
        layer, rest = name.split(".mlp.")
        parts = {"experts.gate_up_proj": (gate, up), "experts.down_proj": (down,)}.get(rest)
        if parts is None:
            out[f"{layer}.{block}.{rest}"] = x
            continue
        for e, expert in enumerate(x):
            for part, piece in zip(parts, expert.chunk(len(parts))):
                out[f"{layer}.{block}.experts.{e}.{part}.weight"] = piece
    return out


def write_newer(folder, model, gen, raw, names, extra, template):
    """Whatever this transformers writes, after it has read the same tokenizer once (which fills its own fields)."""
    with tempfile.TemporaryDirectory() as d:
        raw.save(d + "/tokenizer.json")
        dump(pathlib.Path(d) / "tokenizer_config.json", dict(extra, **names, model_max_length=256))
        dump(pathlib.Path(d) / "config.json", {"model_type": model.config.model_type})
        tok = AutoTokenizer.from_pretrained(d)
    tok.chat_template = template
    tok.save_pretrained(folder)
    model.generation_config = transformers.GenerationConfig(**gen)
    model.save_pretrained(folder)


# --- the oracle ---------------------------------------------------------------------------------------------------


def load(folder, dtype=torch.float32):
    config = transformers.AutoConfig.from_pretrained(folder)
    if config.model_type == "gemma3":
        return load_text(pathlib.Path(folder), config.text_config).to(dtype).eval()
    plain = {"experts_implementation": "eager"} if config.model_type in ("mixtral", "qwen3_moe") else {}
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, **plain)
    return model.to(dtype).eval()


def load_text(folder, config):
    """The text part of a model that also sees."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    stored = load_file(folder / "model.safetensors")
    state = {k.removeprefix("language_model."): v for k, v in stored.items() if k.startswith("language_model.")}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected, (missing, unexpected)
    return model


def check_whole(folder, oracle):
    """The model that also sees gives its text part's logits."""
    whole = transformers.Gemma3ForConditionalGeneration.from_pretrained(folder, attn_implementation="eager",
        dtype=torch.float32).eval()
    want = [torch.tensor(row["logits"]) for row in oracle["rows"]]
    assert worst([logits_of(whole, row["ids"]) for row in oracle["rows"]], want) < 1e-4


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0]


def logps_of(logits, ids):
    return torch.log_softmax(logits[:-1].double(), -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def pad_rows(rows, pad, side):
    longest = max(map(len, rows))
    out = {"ids": [], "mask": [], "positions": []}
    for r in rows:
        fill = longest - len(r)
        put = (lambda row, v: [v] * fill + row) if side == "left" else (lambda row, v: row + [v] * fill)
        out["ids"].append(put(r, pad))
        out["mask"].append(put([1] * len(r), 0))
        out["positions"].append(put(list(range(len(r))), 0))
    return out


def padded_logits(model, batch):
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor(batch["ids"]),
            attention_mask=torch.tensor(batch["mask"]),
            position_ids=torch.tensor(batch["positions"]),
        ).logits
    return [out[i][torch.tensor(m).bool()] for i, m in enumerate(batch["mask"])]


def render_pair(tok, pair):
    """Texts and ids as a preference trainer makes them: the prompt with a generation prompt, the whole without;
    the completion is what the whole adds. A template's text is tokenised without added specials."""
    out = dict(pair)
    prompt = tok.apply_chat_template(pair["prompt"], tokenize=False, add_generation_prompt=True)
    prompt_ids = tok(prompt, add_special_tokens=False)["input_ids"]
    out.update(prompt_text=prompt, prompt_ids=prompt_ids)
    for side in ("chosen", "rejected"):
        whole = tok.apply_chat_template(pair["prompt"] + pair[side], tokenize=False)
        ids = tok(whole, add_special_tokens=False)["input_ids"]
        assert whole.startswith(prompt), (prompt, whole)
        assert ids[: len(prompt_ids)] == prompt_ids, (tok.convert_ids_to_tokens(ids),
            tok.convert_ids_to_tokens(prompt_ids))
        again = tok.apply_chat_template(pair["prompt"] + pair[side], tokenize=True, return_dict=True)["input_ids"]
        assert again == ids
        out[side + "_text"] = whole[len(prompt) :]
        out[side + "_ids"] = ids[len(prompt_ids) :]
    return out


def significant(values, digits=7):
    """Nested lists of floats rounded to that many significant digits."""
    if isinstance(values, torch.Tensor):
        values = values.tolist()
    if isinstance(values, list):
        return [significant(v, digits) for v in values]
    return float(f"{values:.{digits}g}")


def decimals(values, digits=5):
    """[rows][columns] rounded to that many decimals: small, and still twenty times finer than the tolerance."""
    return [[round(v, digits) for v in row] for row in values.tolist()]


def score_pair(model, model64, pair):
    noise = 0.0
    for side in ("chosen", "rejected"):
        ids = pair["prompt_ids"] + pair[side + "_ids"]
        n = len(pair[side + "_ids"])
        logps = logps_of(logits_of(model, ids), ids)[-n:]
        noise = max(noise, (logps_of(logits_of(model64, ids), ids)[-n:].sum() - logps.sum()).abs().item())
        pair[side + "_token_logps"] = significant(logps)
        pair[side + "_logps"] = significant(logps.sum().item(), 9)
    return noise


WEIGHTS = [-0.75, 0.5, 0.25, -0.5]  # of chosen, rejected, chosen, ...


def gradients_of(model, pairs):
    model.zero_grad()
    answers = [(p["prompt_ids"], p[side + "_ids"]) for p in pairs for side in ("chosen", "rejected")]
    loss = 0
    for i, (prompt, answer) in enumerate(answers):
        ids = prompt + answer
        loss = loss + WEIGHTS[i % 4] * logps_of(model(input_ids=torch.tensor([ids])).logits[0], ids)[-len(answer):].sum()
    loss.backward()
    out = {}
    for name, g in split_experts(model, {k: p.grad for k, p in model.named_parameters()}).items():
        g = g.double().flatten()
        wave = torch.sin(torch.arange(1, g.numel() + 1, dtype=torch.float64))
        out[name] = significant([g.norm().item(), (g @ wave).item()])
    return out


def greedy(model, ids, n=24):
    """The config's own end tokens do not end a text here."""
    config = transformers.GenerationConfig(max_new_tokens=n, do_sample=False, eos_token_id=None, pad_token_id=0)
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            generation_config=config)
    return out[0, len(ids):].tolist()


def worst(a, b):
    return max((x.double() - y.double()).abs().max().item() for x, y in zip(a, b))


def make_oracle(folder):
    """What transformers computes from the folder on disk, and the proof that padding does not change it."""
    tok = AutoTokenizer.from_pretrained(folder)
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model, model64 = load(folder), load(folder, torch.float64)
    rows = [tok(text)["input_ids"] for text in ROWS]
    for text, ids in zip(ROWS, rows):
        assert raw.encode(text).ids == ids, f"{folder.name}: transformers does not follow tokenizer.json on {text!r}"
    logits = [logits_of(model, ids) for ids in rows]
    logps = [logps_of(x, ids) for x, ids in zip(logits, rows)]
    pad = tok.pad_token_id
    padded = {side: pad_rows(rows, pad, side) for side in ("left", "right")}
    padding = {side: worst(padded_logits(model, b), logits) for side, b in padded.items()}
    assert max(padding.values()) < 2e-5, padding
    exact = [logits_of(model64, ids) for ids in rows]
    pairs = [render_pair(tok, p) for p in PAIRS]
    for p in pairs:
        whole = raw.encode(p["prompt_text"] + p["chosen_text"], add_special_tokens=False).ids
        assert whole == p["prompt_ids"] + p["chosen_ids"], f"{folder.name}: transformers does not follow tokenizer.json"
    noise = {
        "logits": worst(exact, logits),
        "logps": worst([logps_of(x, ids) for x, ids in zip(exact, rows)], logps),
        "sums": max(score_pair(model, model64, p) for p in pairs),
        "padding": max(padding.values()),
    }
    assert max(noise.values()) < 5e-5, noise
    more = {}
    if folder.name not in [f"{kind}-{g}" for kind in ("qwen2", "qwen3", "llama", "mistral") for g in ("older", "newer")]:
        model.generation_config = transformers.GenerationConfig()
        more = {"greedy": [greedy(model, ids) for ids in rows], "gradients": gradients_of(model, pairs)}
    return {
        "made_by": {"transformers": transformers.__version__, "torch": torch.__version__,
            "tokenizers": tokenizers.__version__},
        "noise": {k: float(f"{v:.2g}") for k, v in noise.items()},
        "rows": [
            {"text": t, "ids": i, "logits": decimals(x), "logps": significant(p)}
            for t, i, x, p in zip(ROWS, rows, logits, logps)
        ],
        "padded": padded,
        "pairs": pairs,
        **more,
    }


def compact(value):
    """JSON with one line per row of numbers: small, and a diff stays readable."""

    def flat(v):
        return not isinstance(v, dict) and all(not isinstance(x, (list, dict)) for x in v)

    def walk(v, pad):
        if isinstance(v, dict) and v:
            body = ",\n".join(f"{pad} {json.dumps(k)}: {walk(x, pad + ' ')}" for k, x in v.items())
            return "{\n" + body + "\n" + pad + "}"
        if isinstance(v, list) and not flat(v):
            return "[\n" + ",\n".join(pad + " " + walk(x, pad + " ") for x in v) + "\n" + pad + "]"
        return json.dumps(v, ensure_ascii=False, separators=(",", ":"))

    return walk(value, "") + "\n"


# --- one folder -----------------------------------------------------------------------------------------------------


def make(out, name):
    kind, generation = name.split("-")
    older = generation in ("older", "yarn")
    raw, names, extra, template = make_tokenizer(kind, older)
    cfg, dtype, shard, gen = config_for(name, raw)
    model = from_config(cfg)
    randomise(model, seed=sum(map(ord, name)))
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if older:
        write_older(folder, name, model, cfg, dtype, shard, gen, raw, names, extra, template)
    else:
        write_newer(folder, model, gen, raw, names, extra, template)
    oracle = make_oracle(folder)
    check_weights(model, load(folder), dtype)
    check_generations(folder, oracle)
    check_teeth(cfg, load(folder), oracle)
    if name == "gemma3-older":
        check_whole(folder, oracle)
    (folder / "oracle.json").write_text(compact(oracle))
    report(folder, oracle)


def check_weights(made, loaded, dtype):
    """transformers read every tensor that was made, rounded to the stored dtype and nothing else."""
    want, got = made.state_dict(), loaded.state_dict()
    assert want.keys() == got.keys()
    for k in want:
        assert torch.equal(want[k].to(getattr(torch, dtype)).float(), got[k]), k


def check_generations(folder, oracle):
    """Saved again by this transformers, whichever generation it was, the folder still gives the same logits and ids."""
    tok, model = AutoTokenizer.from_pretrained(folder), load(folder)
    with tempfile.TemporaryDirectory() as d:
        model.save_pretrained(d)
        tok.save_pretrained(d)
        again, tok2 = load(d), AutoTokenizer.from_pretrained(d)
    got = [logits_of(again, row["ids"]) for row in oracle["rows"]]
    assert worst(got, [torch.tensor(row["logits"]) for row in oracle["rows"]]) < 1e-5
    assert [tok2(row["text"])["input_ids"] for row in oracle["rows"]] == [row["ids"] for row in oracle["rows"]]
    assert [render_pair(tok2, p)["chosen_ids"] for p in PAIRS] == [p["chosen_ids"] for p in oracle["pairs"]]


def check_teeth(cfg, loaded, oracle):
    """What sets this folder apart really moves its logits: without it the fixture would prove nothing."""
    plain = {"use_sliding_window": False} if cfg["model_type"].startswith("qwen") else {"sliding_window": None}
    if cfg["model_type"].startswith("gemma"):
        plain = {"sliding_window": 256}
    windowed = cfg.get("sliding_window") and cfg.get("use_sliding_window", True)
    changes = [plain] if windowed else []
    scaling = cfg.get("rope_scaling") or {"rope_type": "dynamic"}  # which changes nothing in short texts
    changes += [{"rope_scaling": None}] if scaling.get("rope_type") != "dynamic" else []
    changes += [{"num_experts_per_tok": cfg["num_experts_per_tok"] - 1}] if "num_experts_per_tok" in cfg else []
    changes += [{key: 2 * cfg[key]} for key in ("rope_theta", "rope_local_base_freq", "query_pre_attn_scalar",
        "attn_logit_softcapping", "final_logit_softcapping") if cfg.get(key)]
    row = oracle["rows"][0]
    for change in changes:
        other = from_config(dict(cfg, **change)).eval()
        other.load_state_dict(loaded.state_dict())
        moved = worst([logits_of(other, row["ids"])], [torch.tensor(row["logits"])])
        assert moved > 0.05, (change, moved)


def report(folder, oracle):
    size = sum(f.stat().st_size for f in folder.iterdir())
    assert size <= 300_000, f"{folder.name}: {size} bytes"
    logps = [p for row in oracle["rows"] for p in row["logps"]]
    spread = max(logps) - min(logps)
    lengths = [len(row["ids"]) for row in oracle["rows"]]
    print(f"{folder.name:14} {size / 1000:5.0f} kB, rows {lengths}, log-probs over {spread:.1f} nats, "
        f"noise {oracle['noise']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=pathlib.Path, default=root / "model" / "testdata")
    parser.add_argument("folder", nargs="*", default=list(FOLDERS), help=", ".join(FOLDERS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.folder:
        if name not in FOLDERS:
            sys.exit(f"{name}: want one of {', '.join(FOLDERS)}")
        make(args.out, name)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    main()
