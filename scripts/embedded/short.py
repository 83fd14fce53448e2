"""Keeps the first COUNT preference pairs whose prompt and two answers have at most MOST tokens together, so that a
training row of 192 tokens holds a pair.

usage: short.py TOKENIZER.json COUNT MOST < PAIRS.jsonl > SHORT.jsonl   (needs the package `tokenizers`)
"""

import json
import sys

from tokenizers import Tokenizer

tokenizer, count, most = Tokenizer.from_file(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for line in sys.stdin:
    pair = json.loads(line)
    texts = [pair[part][0]["content"] for part in ("prompt", "chosen", "rejected")]
    if sum(len(tokenizer.encode(text).ids) for text in texts) <= most and count > 0:
        sys.stdout.write(line)
        count -= 1
if count > 0:
    sys.exit(f"short.py: {count} pairs are missing: sample answers to more scenarios")
