#!/usr/bin/env python3
"""Turns recorded answers that the authors of ConfAIde have released into `posttrain eval confaide --answers FILE`.

    git clone https://github.com/mireshghallah/confAIde results
    python released_answers.py results/eval_results/with_privacy_prompts --model gpt-4-0613 --out gpt-4-0613.jsonl
    posttrain eval confaide --data confAIde/benchmark --tiers 4 --answers gpt-4-0613.jsonl

They have their answers of tiers 3 and 4, 10 to each question, and of tiers 1 and 2 only the mean ratings. A file that
the folder lacks is left out: name the tiers and questions that are there. --first N takes the first N samples.
"""
import argparse
import collections
import glob
import json
import os
import sys

# Where several files have the answers to a kind of question, by its name there and here.
KINDS = {"free-response": "free-response", "info-accessibility": "info-accessibility",
         "privacy-sharing": "privacy-sharing", "binary": "control", "meeting-summary": "meeting-summary",
         "action-item": "action-item"}


def rows(folder, model):
    for there, here in KINDS.items():
        name = f"eval_{glob.escape(model)}_data_tier_*_q_{there}_*"
        found = sorted(glob.glob(os.path.join(glob.escape(folder), name)))
        if not found:
            continue
        with open(found[0], encoding="utf-8") as f:
            answers = json.load(f)
        samples = collections.Counter()
        for answer in answers:
            tier, index = ("3", "scenario_idx") if "scenario_idx" in answer else ("4", "meeting_idx")
            case = f"{tier}/{here}/{answer[index] + 1}"
            samples[case] += 1
            yield samples[case], {"id": f"{case}/{samples[case]}", "output": answer["model_response"]}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder", help="a folder of eval_results")
    args.add_argument("--model", required=True, help="as the names of the files have it, such as gpt-4-0613")
    args.add_argument("--first", type=int, default=10, help="samples of each question")
    args.add_argument("--out", required=True, help="file to write")
    args = args.parse_args()
    kept = [row for sample, row in rows(args.folder, args.model) if sample <= args.first]
    if not kept:
        sys.exit(f"{args.folder}: no answers of {args.model}: want files such as eval_{args.model}_data_tier_4_…")
    with open(args.out + ".part", "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in kept)
    os.replace(args.out + ".part", args.out)
    print(f"{args.out}: {len(kept)} answers", file=sys.stderr)


if __name__ == "__main__":
    main()
