"""Prints the tables of road.sh: road.py FOLDER SEEDS SETTINGS, both with spaces between.

With KEEP it also adds each row to that file as a line of JSON, with MODEL, what was SET, and COMMIT.
"""

import json
import os
import sys

out, seeds, settings = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
KEYS = ("format", "integrity", "integrity_of_answers", "utility", "complete")


def validated(seed, setting):
    """The mean reward of the validation items at the first and the last step of a run."""
    with open(os.path.join(out, seed, setting, "metrics.jsonl")) as f:
        rewards = [r["eval_reward"] for r in map(json.loads, f) if "eval_reward" in r]
    return rewards[0], rewards[-1]


def keep(seed, stage, tally):
    """Adds a row to the file of results, unless it is there."""
    row = {k.lower(): os.environ[k] for k in ("MODEL", "SET", "COMMIT")} | {"seed": int(seed), "stage": stage, **tally}
    with open(os.environ["KEEP"], "a+") as f:
        f.seek(0)
        known = [json.loads(line) for line in f]
        if not any(all(k[name] == row[name] for name in ("model", "set", "seed", "stage")) for k in known):
            f.write(json.dumps(row) + "\n")


def cell(tally, key):
    scale, digits = (1, 3) if key == "reward" else (100, 1)
    value, low, high = (tally[key][end] for end in ("value", "low", "high"))
    if value is None:
        return "-"
    return f"{scale * value:.{digits}f} ({scale * low:.{digits}f}–{scale * high:.{digits}f})"


print("| setting | " + " | ".join("validation, seed " + s for s in seeds) + " | mean |\n|---|---" + "|---" * len(seeds) + "|")
for setting in settings:
    rewards = [validated(seed, setting) for seed in seeds]
    cells = [f"{first:.3f} → {last:.3f}" for first, last in rewards]
    print(f"| {setting} | {' | '.join(cells)} | {sum(last for _, last in rewards) / len(rewards):.3f} |")

names = {"zero-shot": "the task alone", "ci-cot": "CI-CoT instruction", "after-sft": "after sft"}
names |= {"after-" + s: "after ci-rl, " + s for s in settings}
print("\n| seed, stage | format | integrity | of answers | utility | complete | mean reward |\n" + "|---" * 7 + "|")
for seed in seeds:
    for name, words in names.items():
        path = os.path.join(out, seed, name, "summary.json")
        if os.path.exists(path):  # the first two stages are the first seed's alone
            with open(path) as f:
                tally = json.load(f)["all"]
            if "KEEP" in os.environ:
                keep(seed, name, tally)
            print(f"| {seed}, {words} | {' | '.join(cell(tally, k) for k in (*KEYS, 'reward'))} |")
