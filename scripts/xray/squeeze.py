#!/usr/bin/env python3
"""Compares the squeeze forecast of `posttrain data check` with what DPO does to log p(chosen).

  scripts/xray/squeeze.py POSTTRAIN MODEL ALPACA HH [--seeds 3] [--pairs 64] [--steps 16]

POSTTRAIN is the program, MODEL a model folder or embedded, ALPACA and HH files of preference pairs with texts, such as
AlpacaEval's judged outputs and the test part of hh-rlhf. Six data sets are made of them: both as they are, hh-rlhf with
the labels the other way round, ALPACA with rejected answers that are the chosen ones but for their last third, with the
chosen answers of other prompts as rejected ones, and with chosen answers cut to their first third. Each is trained on
with plain DPO for every seed: the measured change is that of the mean log p(chosen) over the same pairs. Prints a table
and Spearman's rank correlations of all runs. Needs Python alone.
"""

import argparse
import gzip
import json
import pathlib
import random
import subprocess
import tempfile


def rows(path):
    opened = gzip.open(path, "rt") if str(path).endswith(".gz") else open(path)
    with opened as f:
        return [json.loads(line) for line in f]


def texts(row):
    """prompt, chosen, rejected as text, without scores"""
    if "prompt" in row:
        return {k: row[k] for k in ("prompt", "chosen", "rejected")}
    at = 0
    for a, b in zip(row["chosen"], row["rejected"]):
        if a != b:
            break
        at += 1
    at = row["chosen"].rfind("\n\nAssistant:", 0, at + 1) + len("\n\nAssistant:")
    return {"prompt": row["chosen"][:at], "chosen": row["chosen"][at:], "rejected": row["rejected"][at:]}


def third(text, first):
    words = text.split(" ")
    n = max(1, len(words) // 3)
    return " ".join(words[:n] if first else words[:-n] or words[:1])


def variants(alpaca, hh, rng):
    """name -> pairs"""
    others = [p["chosen"] for p in alpaca[1:]] + [alpaca[0]["chosen"]]
    return {
        "alpaca": alpaca,
        "hh": hh,
        "hh, labels turned": [dict(p, chosen=p["rejected"], rejected=p["chosen"]) for p in hh],
        "alpaca, near copies": [dict(p, rejected=third(p["chosen"], False) + " No.") for p in alpaca],
        "alpaca, other prompts": [dict(p, rejected=o) for p, o in zip(alpaca, others)],
        "alpaca, short chosen": [dict(p, chosen=third(p["chosen"], True)) for p in alpaca],
    }


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    i = 0
    while i < len(order):
        j = i
        while j < len(order) and values[order[j]] == values[order[i]]:
            j += 1
        for k in range(i, j):
            out[order[k]] = (i + j - 1) / 2
        i = j
    return out


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    ma, mb = sum(a) / len(a), sum(b) / len(b)
    top = sum((x - ma) * (y - mb) for x, y in zip(a, b))
    return top / (sum((x - ma) ** 2 for x in a) * sum((y - mb) ** 2 for y in b)) ** 0.5


def short(p):
    return p["chosen"] and p["rejected"] and len(p["prompt"]) + max(len(p["chosen"]), len(p["rejected"])) < 400


def measure(args, pairs, seed, work):
    """the forecast, and the measured change of log p(chosen)"""
    file, out = work / "pairs.jsonl", work / "run"
    file.write_text("".join(json.dumps(p) + "\n" for p in pairs))
    check = subprocess.run([args.posttrain, "data", "check", "--json", "--model", args.model, "--squeeze", file],
                           capture_output=True, text=True)
    forecast = json.loads(check.stdout)["files"][0]["squeeze"]
    sets = {"data.eval": file, "train.max_steps": args.steps, "train.batch_size": 16, "train.learning_rate": args.rate,
            "train.warmup_steps": 4, "loss.beta": 0.1, "loss.prior": "none", "data.truncate": "both",
            "data.max_tokens": 192, "train.eval_every": 0, "train.checkpoint_every": 0, "seed": seed}
    command = [args.posttrain, "mappo", "--loss", "dpo", "--model", args.model, "--data", file, "--out", out, "--quiet"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, capture_output=True)
    held = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    held = [r for r in held if "eval_logps/chosen" in r]
    return forecast, held[-1]["eval_logps/chosen"] - held[0]["eval_logps/chosen"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("posttrain")
    parser.add_argument("model")
    parser.add_argument("alpaca", type=pathlib.Path)
    parser.add_argument("hh", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rate", type=float, default=3e-5)
    args = parser.parse_args()
    alpaca, hh = ([p for p in map(texts, rows(f)) if short(p)] for f in (args.alpaca, args.hh))
    found = []
    print("| data set | seed | cosine | forecast | change of log p(chosen) |\n|---|---|---|---|---|")
    for seed in range(1, args.seeds + 1):
        rng = random.Random(seed)
        some = [rng.sample(data, args.pairs) for data in (alpaca, hh)]
        for name, pairs in variants(*some, rng).items():
            with tempfile.TemporaryDirectory() as work:
                forecast, change = measure(args, pairs, seed, pathlib.Path(work))
            found.append((forecast["alignment"], forecast["rise"], change))
            print(f"| {name} | {seed} | {forecast['alignment']:.3f} | {forecast['rise']:+.3f} | {change:+.3f} |",
                  flush=True)
    change = [f[2] for f in found]
    rise, cosine = (spearman([f[i] for f in found], change) for i in (1, 0))
    print(f"\n{len(found)} runs. Spearman's correlation with the change: forecast {rise:+.2f}, cosine {cosine:+.2f}")


if __name__ == "__main__":
    main()
