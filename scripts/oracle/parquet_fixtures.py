"""Writes data/testdata/*.parquet as pyarrow (what Hugging Face datasets are stored with) lays them out.

Run from the repository root: python scripts/oracle/parquet_fixtures.py   (needs pyarrow)
"""

import pyarrow as pa
import pyarrow.parquet as pq


def chat(*turns):
    return [{"role": role, "content": content} for role, content in turns]


# UltraFeedback's shape: a plain prompt beside whole conversations, scores, columns that nobody asked for.
PAIRS = [
    {"prompt": "Hi", "chosen": chat(("user", "Hi"), ("assistant", "yes é")),
     "rejected": chat(("user", "Hi"), ("assistant", "no")), "score_chosen": 0.9, "score_rejected": 0.2, "meta": {"tags": ["a", "b"]}},
    {"prompt": "Ho", "chosen": chat(("user", "Ho"), ("assistant", "日本")),
     "rejected": chat(("user", "Ho"), ("assistant", "no")), "score_chosen": None, "score_rejected": 0.2, "meta": None},
    {"prompt": "Ha", "chosen": chat(("user", "Ha"), ("assistant", "")),
     "rejected": chat(("user", "Ha"), ("assistant", "🙂")), "score_chosen": 3.0, "score_rejected": 4.0, "meta": {"tags": []}},
]

TEXTS = [{"text": f"line {i}", "n": i} for i in range(5)]

pq.write_table(pa.Table.from_pylist(PAIRS), "data/testdata/pairs.parquet", compression="zstd", row_group_size=2)
pq.write_table(pa.Table.from_pylist(TEXTS), "data/testdata/texts.parquet", compression="snappy")
