"""Reads preference pairs for the benchmarks."""

import gzip
import json
import pathlib


def read_pairs(path, count=None):
    """The first `count` rows of a .jsonl or .jsonl.gz file: {"chosen", "rejected"} plain dialogues."""
    path = pathlib.Path(path)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(count) if count else iter(int, 1))]
    if count and len(rows) < count:
        raise SystemExit(f"{path}: {len(rows)} pairs, want {count}")
    return rows
