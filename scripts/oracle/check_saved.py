"""Checks with transformers a model folder that posttrain wrote, against the fixture it came from.

  python scripts/oracle/check_saved.py DIR REF [--tolerance 1e-4] [--tokens-only]

DIR is the saved folder, REF a folder under model/testdata with its oracle.json. transformers loads DIR: its logits must
be REF's, and its tokenizer and chat template must give REF's texts and token ids. Prints one line for each check; the
exit status is 1 if one fails. A folder saved in bfloat16 or float16 from float32 weights needs a wider tolerance.
--tokens-only is for a folder that was trained since, of which only the tokenizer must be unchanged.
"""

import argparse
import json
import pathlib
import sys

import torch
import transformers
from models import load, logits_of, padded_logits, render_pair, worst
from safetensors import safe_open
from transformers import AutoTokenizer


def stored(folder):
    """name -> (dtype, shape) of every tensor in the folder's safetensors files."""
    out = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as f:
            out.update({k: (str(f.get_tensor(k).dtype), tuple(f.get_tensor(k).shape)) for k in f.keys()})
    if any(k.startswith("language_model.") for k in out):  # of a model that also sees, posttrain takes the text part
        return {k.removeprefix("language_model."): v for k, v in out.items() if k.startswith("language_model.")}
    return out


def check_weights(folder, ref):
    """No tensor is missing, unexpected or of another shape (a tied head may be stored or not)."""
    _, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    faults = {k: v for k, v in info.items() if v}
    got, want = ({k: s for k, (_, s) in stored(d).items()} for d in (folder, ref))
    different = {k for k in want if got.get(k) != want[k]} | (got.keys() - want.keys() - {"lm_head.weight"})
    dtypes = sorted({d for d, _ in stored(folder).values()})
    said = f"{len(got)} tensors, {', '.join(dtypes)} {faults or ''} {sorted(different) or ''}"
    return not faults and not different, said


def check_logits(folder, oracle, tolerance):
    model = load(folder)
    want = [torch.tensor(row["logits"]) for row in oracle["rows"]]
    alone = worst([logits_of(model, row["ids"]) for row in oracle["rows"]], want)
    padded = {side: worst(padded_logits(model, b), want) for side, b in oracle["padded"].items()}
    most = max(alone, *padded.values())
    return most <= tolerance, f"largest difference {most:.2g}, accepted {tolerance:g}"


def check_tokens(folder, oracle):
    tok = AutoTokenizer.from_pretrained(folder)
    faults = [row["text"] for row in oracle["rows"] if tok(row["text"])["input_ids"] != row["ids"]]
    keys = ("prompt_text", "chosen_text", "rejected_text", "prompt_ids", "chosen_ids", "rejected_ids")
    for pair in oracle["pairs"]:
        got = render_pair(tok, {k: pair[k] for k in ("prompt", "chosen", "rejected")})
        faults += [f"{k}: {got[k]!r}, want {pair[k]!r}" for k in keys if got[k] != pair[k]]
    return not faults, "; ".join(faults) or f"{len(oracle['rows'])} texts and {len(oracle['pairs'])} pairs"


def check_generation(folder, ref):
    """The ids that stop a generation and pad a batch are unchanged."""
    got, want = (transformers.GenerationConfig.from_pretrained(d) for d in (folder, ref))
    keys = ("bos_token_id", "eos_token_id", "pad_token_id")
    faults = [f"{k} {getattr(got, k)}, want {getattr(want, k)}" for k in keys if getattr(got, k) != getattr(want, k)]
    return not faults, "; ".join(faults) or "bos, eos and pad"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("ref", type=pathlib.Path)
    parser.add_argument("--tolerance", type=float, default=1e-4,
        help="largest accepted difference of a logit (default 1e-4)")
    parser.add_argument("--tokens-only", action="store_true", help="do not compare logits")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    oracle = json.loads((args.ref / "oracle.json").read_text())
    checks = {
        "weights": lambda: check_weights(args.dir, args.ref),
        "logits": lambda: check_logits(args.dir, oracle, args.tolerance),
        "tokens": lambda: check_tokens(args.dir, oracle),
        "generation": lambda: check_generation(args.dir, args.ref),
    }
    if args.tokens_only:
        del checks["logits"]
    results = {name: run() for name, run in checks.items()}
    for name, (good, said) in results.items():
        print(f"{name:10} {'ok' if good else 'WRONG'}: {said}")
    sys.exit(0 if all(good for good, _ in results.values()) else 1)


if __name__ == "__main__":
    main()
