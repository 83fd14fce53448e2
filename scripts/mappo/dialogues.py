#!/usr/bin/env python3
"""Short pairs and demonstrations of hh-rlhf, for the table of docs/mappo.md: dialogues.py PAIRS [FOLDER]

PAIRS is harmless-base's test.jsonl.gz. In FOLDER (default: this one) train.jsonl and held-out.jsonl get 500 and 100 pairs,
chats.jsonl and held-out-chats.jsonl their chosen dialogues.
"""
import gzip
import json
import pathlib
import sys


def messages(dialogue):
    for turn in dialogue.split("\n\nHuman: ")[1:]:
        question, _, rest = turn.partition("\n\nAssistant:")
        yield {"role": "user", "content": question.strip()}
        if rest:
            yield {"role": "assistant", "content": rest.split("\n\nAssistant: ")[0].strip()}


pairs, folder = sys.argv[1], pathlib.Path(*sys.argv[2:3])
rows = map(json.loads, gzip.open(pairs, "rt", encoding="utf-8"))
rows = [r for r in rows if max(len(r["chosen"]), len(r["rejected"])) < 700]
for name, part in ("", rows[:500]), ("held-out", rows[500:600]):
    for end, form in ("", lambda r: r), ("chats", lambda r: {"messages": list(messages(r["chosen"]))}):
        file = folder / ("-".join(filter(None, (name, end))) or "train")
        file.with_suffix(".jsonl").write_text("".join(json.dumps(form(r)) + "\n" for r in part), encoding="utf-8")
