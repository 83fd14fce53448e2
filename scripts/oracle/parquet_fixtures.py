"""Writes data/testdata/*.parquet and data/ci/testdata/*.parquet with pyarrow, as Hugging Face stores datasets.

Run from the repository root: python scripts/oracle/parquet_fixtures.py   (needs pyarrow)
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq


def chat(*turns):
    return [{"role": role, "content": content} for role, content in turns]


# UltraFeedback's shape: a plain prompt beside whole conversations, scores, and columns that the reader ignores.
PAIRS = [
    {"prompt": "Hi", "chosen": chat(("user", "Hi"), ("assistant", "yes é")),
     "rejected": chat(("user", "Hi"), ("assistant", "no")), "score_chosen": 0.9, "score_rejected": 0.2,
     "meta": {"tags": ["a", "b"]}},
    {"prompt": "Ho", "chosen": chat(("user", "Ho"), ("assistant", "日本")),
     "rejected": chat(("user", "Ho"), ("assistant", "no")), "score_chosen": None, "score_rejected": 0.2, "meta": None},
    {"prompt": "Ha", "chosen": chat(("user", "Ha"), ("assistant", "")),
     "rejected": chat(("user", "Ha"), ("assistant", "🙂")), "score_chosen": 3.0, "score_rejected": 4.0,
     "meta": {"tags": []}},
]

TEXTS = [{"text": f"line {i}", "n": i} for i in range(5)]

pq.write_table(pa.Table.from_pylist(PAIRS), "data/testdata/pairs.parquet", compression="zstd", row_group_size=2)
pq.write_table(pa.Table.from_pylist(TEXTS), "data/testdata/texts.parquet", compression="snappy")

# One contextual-integrity item. Its objects have free keys, which tables store in several ways.
SEED = {"scenario": "email", "domain": "Hospitality", "user_intention": "book", "sender": "user", "recipient": "desk",
    "data_subject": "user",
        "information_type": {"allowed": ["name"], "disallowed": ["health"]}, "transmission_principle": "Consent"}
FIELDS = [("Zip", "90210"), ("Name", "Mira"), ("Chats", "hi\nbye é")]
ALLOWED, DISALLOWED = [("Name", ["Mira"]), ("Chats", ["hi", "bye"])], [("Zip", ["90210"])]


def item(fields, words):
    return {"seed": SEED, "dataset_item": {"user_task": "Book a room", "information": fields(FIELDS),
            "annotation": {"allowed": words(ALLOWED), "disallowed": words(DISALLOWED)}}}


def listed(name):
    return lambda pairs: [{"key": key, name: value} for key, value in pairs]


def write_item(name, row, schema=None):
    pq.write_table(pa.Table.from_pylist([row], schema=schema), f"data/ci/testdata/{name}.parquet", compression="snappy")


write_item("ci", item(listed("text"), listed("words")))
# What pyarrow makes of the release's JSON: a struct with every key of the set, null where an item lacks it.
struct = item(dict, dict)
struct["dataset_item"]["information"]["Other"] = None
struct["dataset_item"]["annotation"]["disallowed"]["Other"] = None
write_item("ci-struct", struct)
write_item("ci-json", {"seed": json.dumps(SEED), "dataset_item": json.dumps(item(dict, dict)["dataset_item"])})
text, texts = pa.string(), pa.list_(pa.string())
seed = pa.struct([(k, text) for k in SEED if k != "information_type"]
    + [("information_type", pa.struct([("allowed", texts), ("disallowed", texts)]))])
keywords = pa.map_(text, texts)
write_item("ci-map", item(dict, dict), pa.schema([("seed", seed), ("dataset_item", pa.struct([
    ("user_task", text), ("information", pa.map_(text, text)),
    ("annotation", pa.struct([("allowed", keywords), ("disallowed", keywords)]))]))]))

# Texts that LZ4 packs to more than a third.
NUMBERS = [{"prompt": f"Q{i}", "chosen": "a", "rejected": " ".join(str(i * i * k % 997) for k in range(1, 40))}
           for i in range(60)]
pq.write_table(pa.Table.from_pylist(NUMBERS), "data/testdata/lz4.parquet", compression="lz4", use_dictionary=False)

# Many short runs of indexes into a dictionary, for FuzzParquet.
RUNS = [{"prompt": "Q", "chosen": "goods"[: i // 8 % 5] or "g", "rejected": "bad"} for i in range(240)]
pq.write_table(pa.Table.from_pylist(RUNS), "data/testdata/runs.parquet", compression="none")
