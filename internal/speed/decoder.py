"""A Llama-like decoder and a DPO step in plain PyTorch: the form a user would write, for comparison.

Parameter names are Hugging Face's, so that the weights are a model folder's (see save).
"""

import dataclasses
import json
import pathlib

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Shape:
    """Sizes of a decoder. qkv_bias as in Qwen2; tied: the head is the embedding."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = True
    qkv_bias: bool = False
    rope_theta: float = 10000.0
    eps: float = 1e-5
    positions: int = 2048


PRESETS = {
    "5.4M": Shape(256, 6, 8, 4, 32, 688, 4096),
    "56M": Shape(640, 10, 10, 5, 64, 1728, 16384),
    "tiny": Shape(32, 2, 4, 2, 8, 64, 256),
    "135M": Shape(576, 30, 9, 3, 64, 1536, 49152),
    "qwen2.5-1.5b": Shape(1536, 28, 12, 2, 128, 8960, 151936, qkv_bias=True, rope_theta=1e6, eps=1e-6, positions=32768),
    "qwen2.5-0.5b": Shape(896, 24, 14, 2, 64, 4864, 151936, qkv_bias=True, rope_theta=1e6, eps=1e-6, positions=32768),
}


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q_proj = nn.Linear(s.hidden, s.heads * s.head_dim, bias=s.qkv_bias)
        self.k_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=s.qkv_bias)
        self.v_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=s.qkv_bias)
        self.o_proj = nn.Linear(s.heads * s.head_dim, s.hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.s.heads, -1).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.s.kv_heads, -1).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.s.kv_heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj = nn.Linear(s.hidden, s.intermediate, bias=False)
        self.up_proj = nn.Linear(s.hidden, s.intermediate, bias=False)
        self.down_proj = nn.Linear(s.intermediate, s.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(s.hidden, s.eps), RMSNorm(s.hidden, s.eps)
        self.self_attn, self.mlp = Attention(s), MLP(s)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Backbone(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed_tokens = nn.Embedding(s.vocab, s.hidden)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = RMSNorm(s.hidden, s.eps)
        self.frequencies = 1 / s.rope_theta ** (torch.arange(0, s.head_dim, 2) / s.head_dim)

    def forward(self, tokens):
        angles = torch.outer(torch.arange(tokens.shape[1]), self.frequencies).repeat(1, 2).to(tokens.device)
        x = self.embed_tokens(tokens)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Decoder(nn.Module):
    """tokens [rows, T] -> logits [rows, T, vocab]; rows carry no padding."""

    def __init__(self, s):
        super().__init__()
        self.shape = s
        self.model = Backbone(s)
        self.lm_head = nn.Linear(s.hidden, s.vocab, bias=False)
        if s.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens):
        return self.lm_head(self.model(tokens))


def build(shape, seed=1):
    """A decoder with weights of standard deviation 0.02, the same for a seed."""
    torch.manual_seed(seed)
    model = Decoder(shape)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" not in name:
                p.normal_(0, 0.02)
    return model


def config(s):
    """config.json of the model folder; without biases it is a Llama, with them a Qwen2."""
    kind = "qwen2" if s.qkv_bias else "llama"
    return {
        "architectures": ["Qwen2ForCausalLM" if s.qkv_bias else "LlamaForCausalLM"],
        "model_type": kind,
        "vocab_size": s.vocab,
        "hidden_size": s.hidden,
        "intermediate_size": s.intermediate,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": s.positions,
        "rms_norm_eps": s.eps,
        "rope_theta": s.rope_theta,
        "rope_scaling": None,
        "tie_word_embeddings": s.tied,
        "torch_dtype": "float32",
    }


def save(model, folder, **more):
    """Writes config.json (with `more`, such as token ids) and model.safetensors."""
    from safetensors.torch import save_file

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config(model.shape), **more), indent=2) + "\n")
    state = {k: v.detach().contiguous() for k, v in model.state_dict().items()}
    if model.shape.tied:
        del state["lm_head.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def batch(shape, pairs, length, prompt, seed=2):
    """tokens [2*pairs, length], chosen rows first; a pair shares its first `prompt` tokens, the rest are answers."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, shape.vocab, (2 * pairs, length), generator=g)
    tokens[pairs:, :prompt] = tokens[:pairs, :prompt]
    return tokens


def answer_logps(model, tokens, prompt):
    """[rows]: the summed log-probability of every row's tokens from `prompt` on."""
    logits = model(tokens)[:, :-1]
    logps = torch.log_softmax(logits.float(), -1).gather(2, tokens[:, 1:, None]).squeeze(2)
    return logps[:, prompt - 1 :].sum(1)


def dpo_step(model, optimizer, tokens, reference, prompt, beta=0.1, clip=1.0):
    """One step of DPO with reference [2*pairs] given; returns the loss as a tensor, so that a GPU need not wait."""
    optimizer.zero_grad(set_to_none=True)
    chosen, rejected = (answer_logps(model, tokens, prompt) - reference).chunk(2)
    loss = -F.logsigmoid(beta * (chosen - rejected)).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.detach()
