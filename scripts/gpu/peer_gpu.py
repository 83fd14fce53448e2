"""The plain PyTorch DPO step in bfloat16 on a CUDA GPU, for comparison with posttrain on XLA.

  python scripts/gpu/peer_gpu.py [--pairs 4] [--length 512] [--prompt 256] [--steps 20]

A random model of Qwen2.5-0.5B's shape, float32 weights with bfloat16 autocast (or --pure: bfloat16 weights and
moments), PyTorch's fused AdamW and its own attention kernels. Prints one line of JSON: median seconds a step; tokens a
second (all tokens of both rows of every pair); the model's floating-point operations a step (6 for each parameter in a
matrix product and token, and attention's 12 x layers x width x T x T/2 a row, both passes); and the peak memory.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from decoder import PRESETS, answer_logps, batch, build, dpo_step  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="qwen2.5-0.5b")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--pure", action="store_true", help="bfloat16 weights and moments instead of autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--device", default="cuda", help="cpu is only for a trial of the script")
    return parser.parse_args()


def flops(shape, rows, length):
    """Operations of the matrix products in one step: forward, and twice that for backward."""
    attention = shape.hidden * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    layer = attention + 3 * shape.hidden * shape.intermediate
    products = shape.layers * layer + shape.hidden * shape.vocab
    scores = 12 * shape.layers * shape.heads * shape.head_dim * length * length // 2
    return rows * (6 * products * length + scores)


def timed(step, count, wait):
    out = []
    for _ in range(count):
        wait()
        begin = time.perf_counter()
        loss = step()
        wait()
        out.append(time.perf_counter() - begin)
    return out, loss.item()


def main():
    args = parse()
    cuda = args.device.startswith("cuda")
    if cuda and not torch.cuda.is_available():
        sys.exit("no CUDA GPU that this PyTorch can use")
    shape = PRESETS[args.preset]
    model = build(shape).to(args.device)
    if args.pure:
        model = model.bfloat16()
    forward = torch.compile(model) if args.compile else model
    tokens = batch(shape, args.pairs, args.length, args.prompt).to(args.device)
    autocast = contextlib.nullcontext() if args.pure else torch.autocast(args.device.split(":")[0], torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    with torch.no_grad(), autocast:
        reference = answer_logps(forward, tokens, args.prompt)

    def step():
        # backward under autocast changes nothing: its operations run in the types that forward chose.
        with autocast:
            return dpo_step(forward, optimizer, tokens, reference, args.prompt)

    wait = torch.cuda.synchronize if cuda else (lambda: None)
    timed(step, args.warmup, wait)
    seconds, loss = timed(step, args.steps, wait)
    name = torch.cuda.get_device_name() if cuda else "cpu"
    median, work = statistics.median(seconds), flops(shape, 2 * args.pairs, args.length)
    result = {
        "device": name,
        "torch": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "rows": tokens.shape[0],
        "length": args.length,
        "seconds": median,
        "tokens_per_second": tokens.numel() / median,
        "tflop_per_step": work / 1e12,
        "peak_memory_gb": torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
        "loss": loss,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
