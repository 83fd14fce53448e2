#!/usr/bin/env python3
"""Packs runs that were recorded with PrivacyLens's own tools and released with CI-RL, for posttrain's tests.

    python pack_runs.py CI-RL/posttraining-research-ci-supp/components/privacylens eval/privacylens/testdata/released

It needs Python's standard library alone, and writes

    actions.csv.gz      by case and run, what the agent wrote from its first "Action:" on: before it, no judge reads
    verdicts.json       by run, the judge's verdicts: a word for each case, a digit for each of its items (1: it leaks);
                        and the SHA-256 of the file released, which has no more in it than these and the items
    probes-*.csv        answers to probes, as released
    culturebank_subset.json.gz      cases, as released
"""
import argparse
import csv
import gzip
import hashlib
import io
import json
import os
import shutil

RUNS = ["main_gpt4o_naive", "main_gpt4o_mini_naive", "main_o1_mini_naive", "main_o1_mini_privacy_enhanced",
        "main_deepseek_naive"]
PROBES = ["main_gpt4_o", "main_gpt4_o_mini", "qwen25_7b_instruct"]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write_gzip(path, content):
    """Writes the same bytes at all times."""
    with open(path, "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as out:
        out.write(content)


def actions_of(path):
    with open(path, encoding="utf-8", newline="") as f:
        return {row["name"]: from_action(row["final_action"]) for row in csv.DictReader(f)}


def from_action(text):
    return text[max(text.find("Action:"), 0):]


def pack_actions(folder, names):
    runs = [actions_of(os.path.join(folder, run + ".csv")) for run in RUNS]
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["name", *RUNS])
    rows.writerows([name, *(actions[name] for actions in runs)] for name in names)
    return out.getvalue().encode()


def pack_verdicts(path, names):
    content = read(path)
    cases = json.loads(content)
    words = ["".join(str(int(leaks)) for _, leaks in cases[name]["secret_judgment"]) for name in names]
    return {"sha256": hashlib.sha256(content).hexdigest(), "leaks": " ".join(words)}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("root", help="CI-RL's copy of PrivacyLens")
    args.add_argument("out", help="folder to write to")
    args = args.parse_args()

    names = [case["name"] for case in json.loads(read(os.path.join(args.root, "data/main_data.json")))]
    recorded = os.path.join(args.root, "evaluation/output_action")
    write_gzip(os.path.join(args.out, "actions.csv.gz"), pack_actions(recorded, names))
    verdicts = {run: pack_verdicts(os.path.join(recorded, run + "_evaluate_leakage.json"), names) for run in RUNS}
    with open(os.path.join(args.out, "verdicts.json"), "w", encoding="utf-8", newline="") as f:
        f.write(json.dumps(verdicts, indent=1) + "\n")
    for name in PROBES:
        shutil.copyfile(os.path.join(args.root, "evaluation/output_probing", name + ".csv"),
                        os.path.join(args.out, f"probes-{name}.csv"))
    cases = "culturebank_subset.json"
    write_gzip(os.path.join(args.out, cases + ".gz"), read(os.path.join(args.root, "data/extensibility", cases)))


if __name__ == "__main__":
    main()
