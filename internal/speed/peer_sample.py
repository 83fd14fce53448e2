"""Sampling in Python as a child process that answers one batch of prompts for each line it reads.

A driver alternates it with posttrain:

  python internal/speed/peer_sample.py --world DIR --side generate
  python internal/speed/peer_sample.py --world DIR --side loop

DIR is a world of the driver: a Hugging Face model folder and prompts.json ({"new", "prompts"}), prompts of one length.
generate is transformers' model.generate, loop a hand-written PyTorch loop over a preallocated cache of keys and values.
First line out: {"ready": true, ...}. Then for each line in, one line out:
  sample N   the first N prompts, `new` tokens each, temperature 1, the whole vocabulary, no end of text
  greedy N   the same with the likeliest tokens; the answer has them, and the loop's log-probs
  quit       (or the end of the input) ends the process
Prefill is part of the time. The loop gives the log-prob of every token as well, which generate is not asked for.
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from decoder import Decoder, Shape, rotate


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=pathlib.Path, required=True)
    parser.add_argument("--side", choices=["generate", "loop"], required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    return parser.parse_args()


class Generate:
    """transformers, as it is usually called."""

    def __init__(self, folder, device, dtype):
        from transformers import AutoModelForCausalLM, GenerationConfig, logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
        self.model.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=0)

    def answer(self, prompts, new, greedy):
        draw = {"do_sample": False} if greedy else {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0}
        ids = self.model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=new, **draw)
        return ids[:, prompts.shape[1] :], None


class Loop:
    """A user's own loop: cache allocated ahead, group queries as rows of one attention, no mask in the steps."""

    def __init__(self, folder, device, dtype):
        from safetensors.torch import load_file

        with torch.device("meta"):
            self.model = Decoder(shape_of(json.loads((folder / "config.json").read_text())))
        self.model.load_state_dict(load_file(folder / "model.safetensors"), assign=True, strict=False)
        if self.model.shape.tied:
            self.model.lm_head.weight = self.model.model.embed_tokens.weight
        self.model.to(device=device, dtype=dtype)
        self.shape, self.device, self.dtype = self.model.shape, device, dtype

    def rotations(self, length):
        s = self.shape
        frequencies = 1 / s.rope_theta ** (torch.arange(0, s.head_dim, 2, device=self.device) / s.head_dim)
        angles = torch.outer(torch.arange(length, device=self.device), frequencies).repeat(1, 2)
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)

    def attend(self, layer, x, cos, sin, keys, values, at):
        """x [rows, t, hidden] at positions at to at+t; keys, values [rows, kv_heads, positions, head_dim] grow by t."""
        a, s, (rows, t, _) = layer.self_attn, self.shape, x.shape
        q = rotate(a.q_proj(x).view(rows, t, s.heads, -1).transpose(1, 2), cos, sin)
        k = rotate(a.k_proj(x).view(rows, t, s.kv_heads, -1).transpose(1, 2), cos, sin)
        v = a.v_proj(x).view(rows, t, s.kv_heads, -1).transpose(1, 2)
        keys[:, :, at : at + t], values[:, :, at : at + t] = k, v
        if t > 1:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
        else:
            grouped = q.view(rows, s.kv_heads, s.heads // s.kv_heads, s.head_dim)
            y = F.scaled_dot_product_attention(grouped, keys[:, :, : at + 1], values[:, :, : at + 1])
        return a.o_proj(y.reshape(rows, t, -1))

    def forward(self, tokens, cache, at, cos, sin):
        """The logits behind the last token of every row."""
        end = at + tokens.shape[1]
        x, cos, sin = self.model.model.embed_tokens(tokens), cos[at:end], sin[at:end]
        for layer, (keys, values) in zip(self.model.model.layers, cache):
            x = x + self.attend(layer, layer.input_layernorm(x), cos, sin, keys, values, at)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.model.lm_head(self.model.model.norm(x[:, -1]))

    @torch.no_grad()
    def answer(self, prompts, new, greedy):
        (rows, length), s = prompts.shape, self.shape
        size = (rows, s.kv_heads, length + new, s.head_dim)
        cache = [[torch.empty(size, dtype=self.dtype, device=self.device) for _ in "kv"] for _ in range(s.layers)]
        cos, sin = self.rotations(length + new)
        ids = torch.empty((rows, new), dtype=torch.long, device=self.device)
        logps = torch.empty((rows, new), device=self.device)
        tokens, at = prompts, 0
        for i in range(new):
            every = torch.log_softmax(self.forward(tokens, cache, at, cos, sin).float(), -1)
            at += tokens.shape[1]
            tokens = every.argmax(-1, keepdim=True) if greedy else torch.multinomial(every.exp(), 1)
            ids[:, i], logps[:, i] = tokens[:, 0], every.gather(1, tokens)[:, 0]
        return ids, logps


def shape_of(c):
    """The decoder's sizes from config.json; biases on q, k, v are Qwen2's."""
    return Shape(
        hidden=c["hidden_size"], layers=c["num_hidden_layers"], heads=c["num_attention_heads"],
        kv_heads=c["num_key_value_heads"],
        head_dim=c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"],
        intermediate=c["intermediate_size"], vocab=c["vocab_size"], tied=c["tie_word_embeddings"],
        qkv_bias=c["model_type"] == "qwen2", rope_theta=c.get("rope_theta") or c["rope_parameters"]["rope_theta"],
        eps=c["rms_norm_eps"],
    )  # fmt: skip


def say(**value):
    print(json.dumps(value), flush=True)


def main():
    args = parse()
    world = json.loads((args.world / "prompts.json").read_text())
    dtype = getattr(torch, args.dtype)
    side = {"generate": Generate, "loop": Loop}[args.side](args.world, args.device, dtype)
    prompts = torch.tensor(world["prompts"], device=args.device)
    torch.manual_seed(1)
    parameters = sum(p.numel() for p in side.model.parameters())
    say(ready=True, torch=torch.__version__, threads=torch.get_num_threads(), parameters=parameters,
        tokens=world["new"])
    for line in sys.stdin:
        word, _, count = line.strip().partition(" ")
        if word == "quit":
            return
        if word not in ("sample", "greedy"):
            sys.exit(f"{line.strip()!r}: want sample N, greedy N or quit")
        begin = time.perf_counter()
        ids, logps = side.answer(prompts[: int(count)], world["new"], word == "greedy")
        ids = ids.tolist()  # a GPU has finished when they are here
        seconds = time.perf_counter() - begin
        answer = {"did": word, "seconds": seconds, "tokens": sum(map(len, ids))}
        if word == "greedy":
            answer |= {"ids": ids, "logps": logps.tolist() if logps is not None else None}
        say(**answer, peak_rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1))


if __name__ == "__main__":
    main()
