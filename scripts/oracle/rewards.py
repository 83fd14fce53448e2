"""Records the scores of transformers' sequence classification models, and checks reward models that posttrain wrote.

  python scripts/oracle/rewards.py scores [--out model/testdata/reward]
  python scripts/oracle/rewards.py check DIR SCORES.jsonl [--tolerance 1e-4]

scores writes for each of MODELS a file <type>.json, and for ArmoRM's and URM's heads armo.json and urm.json:

  model     folder under model/testdata whose tensors the model has, but for the head
  config    config.json as transformers saved it
  score     score.weight, the head; or tensors, those of the head with their shapes
  rows[i]   prompt and response, two texts or two lists of messages; ids of the whole, by the chat template for messages
            and with the end-of-text token behind texts; score in float32, alone and in a padded batch

check loads DIR with transformers and compares its scores with SCORES.jsonl, pairs that posttrain data score wrote with DIR.
"""

import argparse
import json
import pathlib
import tempfile

import torch
import transformers
from models import PAIRS, ROWS, significant
from safetensors import safe_open
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]

# type: the token that pads. In many published models that is eos, as here in llama's: then the end of the last turn does
# not count as text. Without such a token, transformers takes texts one at a time.
MODELS = {"llama": "eos", "mistral": None, "qwen2": "pad", "qwen3": "pad", "gemma": "pad"}


def ids_of(tok, prompt, response):
    if isinstance(prompt, list):
        return tok.apply_chat_template(prompt + response, tokenize=True, return_dict=False)
    return tok(prompt + response + tok.eos_token)["input_ids"]


def score(model, rows):
    """The scores of rows of ids as one batch, padded on the right."""
    longest, pad = max(map(len, rows)), model.config.pad_token_id
    ids = torch.tensor([r + [pad] * (longest - len(r)) for r in rows])
    mask = torch.tensor([[1] * len(r) + [0] * (longest - len(r)) for r in rows])
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask).logits[:, 0].tolist()


def load(folder, **more):
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, **more)
    return model.eval()


def make(out, kind):
    base = ROOT / "model" / "testdata" / f"{kind}-newer"
    tok, model = AutoTokenizer.from_pretrained(base), load(base, num_labels=1)
    model.config.pad_token_id = {"eos": tok.eos_token_id, "pad": tok.pad_token_id, None: None}[MODELS[kind]]
    with torch.no_grad():
        model.score.weight.copy_(0.3 * torch.randn(model.score.weight.shape, generator=torch.Generator().manual_seed(7)))
    texts = [(p["prompt"], p[side]) for p in PAIRS for side in ("chosen", "rejected")] + [(r[:9], r[9:]) for r in ROWS]
    ids = [ids_of(tok, *t) for t in texts]
    alone = [score(model, [r])[0] for r in ids]
    if model.config.pad_token_id is not None:
        assert max(abs(a - b) for a, b in zip(alone, score(model, ids))) < 1e-4
    with tempfile.TemporaryDirectory() as d:
        model.save_pretrained(d)
        config = json.loads((pathlib.Path(d) / "config.json").read_text())
        with safe_open(d + "/model.safetensors", "pt") as f, safe_open(base / "model.safetensors", "pt") as b:
            assert set(f.keys()) == set(b.keys()) - {"lm_head.weight"} | {"score.weight"}
    rows = [{"prompt": p, "response": r, "ids": i, "score": significant(s, 9)} for (p, r), i, s in zip(texts, ids, alone)]
    head = [significant(x, 9) for x in model.score.weight[0].tolist()]
    write(out, kind, base, config, f'"score": {head}', rows)


def write(out, kind, base, config, head, rows):
    lines = ",\n  ".join(json.dumps(r, ensure_ascii=False) for r in rows)
    (out / f"{kind}.json").write_text(
        f'{{"model": "{base.name}",\n "config": {json.dumps(config)},\n {head},\n "rows": [\n  {lines}]}}\n')
    print(f"{kind:8} scores", " ".join(f"{r['score']:.3f}" for r in rows))


class Head(torch.nn.Module):
    """What scores a text in the class that a published model has code of its own for: written from its formula.

    ArmoRM, RLHFlow/ArmoRM-Llama3-8B-v0.1: LlamaForRewardModelWithGating. URM, LxzGordon/URM-LLaMa-3.1-8B:
    LlamaForSequenceClassificationWithNormal_Weights."""

    def __init__(self, kind, width, aspects=3, hidden=8, layers=2):
        super().__init__()
        self.kind, linear = kind, torch.nn.Linear
        if kind == "armo":
            sizes = [width] + [hidden] * layers + [aspects]
            self.regression_layer = linear(width, aspects, bias=False)
            self.reward_transform_matrix = torch.nn.Parameter(torch.zeros(aspects, aspects))
            self.gating = torch.nn.Module()
            self.gating.layers = torch.nn.ModuleList(linear(a, b) for a, b in zip(sizes, sizes[1:]))
            self.gating.logit_scale = torch.nn.Parameter(torch.ones(1))
        else:
            self.score = linear(width, 2 * aspects, bias=False)
            self.weights = torch.nn.Module()
            self.weights.fc = torch.nn.Sequential(linear(width, width), torch.nn.SELU(), linear(width, width),
                                                  torch.nn.SELU(), linear(width, aspects))
        draw, scale = torch.Generator().manual_seed(9), {"armo": 0.5, "urm": 0.2}[kind]
        with torch.no_grad():
            for p in self.parameters():  # in few digits, which the file has
                p.copy_(torch.round(1000 * scale * torch.randn(p.shape, generator=draw)) / 1000)

    def forward(self, hidden, ids, gate):
        """The score of a text of one row, without padding."""
        last = hidden[-1]
        if self.kind == "urm":
            return (self.weights.fc(last) * self.score(last)[0::2]).sum()
        at = max(i for i in range(len(ids)) if ids[i:i + len(gate)] == gate)
        x, layers = hidden[at], list(self.gating.layers)
        for layer in layers[:-1]:
            x = torch.relu(layer(x))
        weights = torch.softmax(layers[-1](x) / TEMPERATURE, -1) * self.gating.logit_scale[0]
        return (weights * (self.regression_layer(last) @ self.reward_transform_matrix)).sum()


TEMPERATURE = 0.5
GATE = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
KEYS = {
    "armo": dict(architectures=["LlamaForRewardModelWithGating"], num_objectives=3, gating_hidden_dim=8,
                 gating_n_hidden=2, gating_temperature=TEMPERATURE, num_labels=3, pad_token_id=None),
    "urm": dict(architectures=["LlamaForSequenceClassificationWithNormal_Weights"], num_labels=6,
                id2label={str(i): f"LABEL_{i}" for i in range(6)}, pad_token_id=None),
}


def make_head(out, kind):
    base = ROOT / "model" / "testdata" / "llama-newer"
    tok, model = AutoTokenizer.from_pretrained(base), AutoModel.from_pretrained(
        base, attn_implementation="eager", dtype=torch.float32).eval()
    head, gate = Head(kind, model.config.hidden_size), tok(GATE, add_special_tokens=False)["input_ids"]
    texts = [(p["prompt"], p[side]) for p in PAIRS for side in ("chosen", "rejected")]
    texts += [(r[:9], r[9:]) for r in ROWS] if kind == "urm" else []
    rows = []
    for prompt, response in texts:
        ids = ids_of(tok, prompt, response)
        with torch.no_grad():
            s = head(model(input_ids=torch.tensor([ids])).last_hidden_state[0], ids, gate).item()
        rows.append({"prompt": prompt, "response": response, "ids": ids, "score": significant(s, 9)})
    config = dict(json.loads((base / "config.json").read_text()), **KEYS[kind])
    tensors = {n: {"shape": list(p.shape), "data": [round(x, 3) for x in p.flatten().tolist()]}
               for n, p in head.named_parameters()}
    write(out, kind, base, config, f'"tensors": {json.dumps(tensors)}', rows)


def check(folder, scored, tolerance):
    tok, model = AutoTokenizer.from_pretrained(folder), load(folder)
    worst, n = 0.0, 0
    for line in scored.read_text().splitlines():
        pair = json.loads(line)
        for side in ("chosen", "rejected"):
            want = score(model, [ids_of(tok, pair["prompt"], pair[side])])[0]
            worst, n = max(worst, abs(want - pair[side + "_score"])), n + 1
    print(f"{n} scores, largest difference {worst:.2g}, accepted {tolerance:g}")
    return worst <= tolerance


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("scores").add_argument("--out", type=pathlib.Path, default=ROOT / "model" / "testdata" / "reward")
    checking = what.add_parser("check")
    checking.add_argument("folder", type=pathlib.Path)
    checking.add_argument("scored", type=pathlib.Path)
    checking.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "check":
        raise SystemExit(0 if check(args.folder, args.scored, args.tolerance) else 1)
    args.out.mkdir(parents=True, exist_ok=True)
    for kind in MODELS:
        make(args.out, kind)
    for kind in KEYS:
        make_head(args.out, kind)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    main()
