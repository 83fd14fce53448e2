"""Sampling by llama.cpp as a child process that answers one batch of prompts for each line it reads.

  python internal/bench/peer_llama.py --world DIR --gguf FILE --rows 16

It needs `pip install xllamacpp`. DIR is a world of the driver, FILE the same model in llama.cpp's format: its weights'
type is the type of the comparison. The cache has float32 or, with --dtype bfloat16, that type. Lines and answers are
those of peer_sample.py; greedy also gives the log-probs. --rows is the most prompts of a line; llama.cpp answers all
prompts of a line at once.
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import xllamacpp


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=pathlib.Path, required=True)
    parser.add_argument("--gguf", type=pathlib.Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    return parser.parse_args()


def server(args, length):
    p = xllamacpp.CommonParams()
    p.model.path = str(args.gguf)
    p.n_parallel, p.n_ctx = args.rows, args.rows * length
    kind = {"float32": "GGML_TYPE_F32", "bfloat16": "GGML_TYPE_BF16"}[args.dtype]
    p.cache_type_k = p.cache_type_v = getattr(xllamacpp.ggml_type, kind)
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads()
    if args.dtype == "float32":  # its fused attention adds up with fewer bits: log-probs differ by more than 1e-3
        p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    p.n_ctx_checkpoints = p.cache_ram_mib = 0
    return xllamacpp.Server(p)


def threads():
    return len(os.sched_getaffinity(0))


def complete(llama, prompt, new, greedy):
    request = {"prompt": prompt, "n_predict": new, "ignore_eos": True, "cache_prompt": False}
    if greedy:
        request |= {"temperature": 0.0, "logprobs": 1}
    else:
        request |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "samplers": ["temperature"]}
    answer = llama.handle_completions(request)
    if answer["usage"]["completion_tokens"] != new:
        sys.exit(f"llama.cpp drew {answer['usage']['completion_tokens']} tokens, want {new}")
    return answer["choices"][0]


def say(**value):
    print(json.dumps(value), flush=True)


def main():
    args = parse()
    world = json.loads((args.world / "prompts.json").read_text())
    llama = server(args, len(world["prompts"][0]) + world["new"] + 8)
    say(ready=True, engine="llama.cpp " + xllamacpp.__version__, threads=threads(), parameters=0, tokens=world["new"])
    for line in sys.stdin:
        word, _, count = line.strip().partition(" ")
        if word == "quit":
            break
        if word not in ("sample", "greedy"):
            sys.exit(f"{line.strip()!r}: want sample N, greedy N or quit")
        begin, used = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(int(count)) as pool:
            prompts = world["prompts"][: int(count)]
            choices = list(pool.map(lambda p: complete(llama, p, world["new"], word == "greedy"), prompts))
        answer = {"did": word, "seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - used,
                  "tokens": world["new"] * len(choices)}  # fmt: skip
        if word == "greedy":
            drawn = [c["logprobs"]["content"] for c in choices]
            answer |= {"ids": [[t["id"] for t in row] for row in drawn],
                       "logps": [[t["logprob"] for t in row] for row in drawn]}  # fmt: skip
        say(**answer, peak_rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1))
    sys.stdout.flush()
    os._exit(0)  # its threads would not end


if __name__ == "__main__":
    main()
