"""Checks with transformers and peft what a federated run left: a model folder or an adapter.

  python scripts/federated/load.py POSTTRAIN RESULT [--base DIR] [--samples 8] [--tolerance 1e-4]

POSTTRAIN is the program, RESULT the folder model or adapter of a run with the workload ci-rl or mappo; an adapter needs
its base. The program draws answers to a few prompts, with each token's log-prob. transformers (and peft) load the same
folders and compute the log-probs of the same tokens. Prints the largest difference; the exit status is 1 if it is
above the tolerance. It wants the packages of scripts/oracle/requirements.txt.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = ["Write an email.", "Task: tell my doctor what I take. Name: Ann.", "{}", "Was weißt du? 你好"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("posttrain")
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--base", type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    return parser.parse_args()


def drawn(args, prompt, out):
    """Answers of the program: rows with tokens and logps."""
    folders = ["--model", args.base, "--adapter", args.result] if args.base else ["--model", args.result]
    command = [args.posttrain, "generate", *folders, "--prompt", prompt, "--samples", str(args.samples), "--seed", "3",
               "--max-new-tokens", "32", "--logps", "--out", out]
    subprocess.run(command, check=True, capture_output=True)
    return [json.loads(line) for line in out.read_text().splitlines()]


def load(args):
    model = AutoModelForCausalLM.from_pretrained(args.base or args.result, dtype=torch.float32)
    return (PeftModel.from_pretrained(model, args.result) if args.base else model).eval()


@torch.no_grad()
def logps(model, prompt, answer):
    ids = torch.tensor([prompt + answer])
    rows = torch.log_softmax(model(ids).logits[0].double(), -1)
    return [rows[len(prompt) - 1 + i, token].item() for i, token in enumerate(answer)]


def main():
    args = parse()
    model, tokenizer, worst, tokens = load(args), AutoTokenizer.from_pretrained(args.result), 0.0, 0
    with tempfile.TemporaryDirectory() as work:
        for i, prompt in enumerate(PROMPTS):
            for row in drawn(args, prompt, pathlib.Path(work) / f"{i}.jsonl"):
                theirs = logps(model, tokenizer(prompt)["input_ids"], row["tokens"])
                off = [abs(a - b) for a, b in zip(row["logps"], theirs, strict=True)]
                worst = max([worst] + [math.inf if math.isnan(d) else d for d in off])
                tokens += len(theirs)
    print(f"log-probs of {tokens} tokens differ by at most {worst:.2g}, accepted {args.tolerance:g}")
    sys.exit(not worst <= args.tolerance or tokens == 0)


if __name__ == "__main__":
    main()
