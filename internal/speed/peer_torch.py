"""The plain PyTorch DPO step as a child process that runs one step for each line it reads.

A driver alternates it with posttrain, so that both meet the same machine at the same time:

  python internal/speed/peer_torch.py --preset 5.4M --write DIR

With --write it first writes DIR: a Hugging Face model folder with its weights, and batch.json with its batch and
reference log-probs, so that the other side can train the same thing. Then it prints a ready line. For each line read
  step   one DPO step: forward of chosen and rejected, loss, backward, clip, AdamW
  quit   (or the end of the input) ends the process
it prints one line of JSON: {"did", "seconds", "loss", "peak_rss_mb"}. Pause 0.3 s before timing anything else: OpenMP's
threads spin for a while after a step.
"""

import argparse
import json
import pathlib
import resource
import sys
import time

import torch
from decoder import PRESETS, answer_logps, batch, build, dpo_step, save


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="5.4M")
    parser.add_argument("--pairs", type=int, default=4, help="pairs a step; rows are twice as many (default 4)")
    parser.add_argument("--length", type=int, default=128, help="tokens a row (default 128)")
    parser.add_argument("--prompt", type=int, default=64, help="of these, tokens of the prompt (default 64)")
    parser.add_argument("--rate", type=float, default=1e-6, help="learning rate (default 1e-6)")
    parser.add_argument("--threads", type=int, default=0, help="0: torch's default")
    parser.add_argument("--fused", action="store_true", help="torch's fused AdamW instead of its default")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="bfloat16: autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", type=pathlib.Path, help="write the model folder and batch.json here")
    return parser.parse_args()


def peak_rss_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write(folder, model, tokens, reference, args):
    save(model, folder, bos_token_id=None, eos_token_id=0, pad_token_id=0)
    value = {
        "prompt": args.prompt, "beta": 0.1, "max_grad_norm": 1.0, "learning_rate": args.rate, "weight_decay": 0.0,
        "tokens": tokens.tolist(), "reference": reference.tolist(),
    }  # fmt: skip
    (folder / "batch.json").write_text(json.dumps(value) + "\n")


def say(**value):
    print(json.dumps(value), flush=True)


def main():
    args = parse()
    if args.threads:
        torch.set_num_threads(args.threads)
    shape = PRESETS[args.preset]
    model = build(shape).to(args.device)
    dtype = getattr(torch, args.dtype)
    tokens = batch(shape, args.pairs, args.length, args.prompt).to(args.device)
    with torch.no_grad():
        reference = answer_logps(model, tokens, args.prompt)
    if args.write:
        write(args.write, model, tokens, reference, args)
    forward_model = torch.compile(model) if args.compile else model
    autocast = torch.autocast(args.device.split(":")[0], torch.bfloat16, enabled=dtype == torch.bfloat16)
    fused = {"fused": True} if args.fused else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, weight_decay=0.0, **fused)
    parameters = sum(p.numel() for p in model.parameters())
    say(ready=True, torch=torch.__version__, threads=torch.get_num_threads(), parameters=parameters,
        tokens=tokens.numel())

    def step():
        with autocast:  # backward under it changes nothing: its operations run in the types that forward chose
            return dpo_step(forward_model, optimizer, tokens, reference, args.prompt)

    for line in sys.stdin:
        did = line.strip()
        if did == "quit":
            return
        if did != "step":
            sys.exit(f"{did!r}: want step or quit")
        begin = time.perf_counter()
        loss = step().item()
        say(did=did, seconds=time.perf_counter() - begin, loss=loss, peak_rss_mb=round(peak_rss_mb(), 1))


if __name__ == "__main__":
    main()
