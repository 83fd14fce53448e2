#!/usr/bin/env python3
"""Writes the exact prompts of ConfAIde for `posttrain eval confaide --prompts released`.

    git clone https://github.com/skywalker023/confAIde
    python export_prompts.py confAIde            # writes confAIde/benchmark/prompts.jsonl

It lets the checkout's own eval.py make the prompts of a folder with one entry in each file, made of marks, and puts
fields in the places of the marks. It calls no model, and needs none of the checkout's requirements: it replaces the
libraries by empty ones. --no-privacy leaves out the instruction to guard privacy, as the benchmark can.

prompts.jsonl: {"name": kind of question, "template": text with fields such as {story}}
"""
import argparse
import importlib.util
import json
import os
import sys
import tempfile
import types

# What the checkout imports besides the standard library. No prompt depends on it.
EMPTY = ["torch", "torch.utils", "torch.utils.data", "numpy", "pandas", "tqdm", "colorful", "agents", "agents.gpt",
         "agents.huggingface"]

# By field: what the one entry has in its place. The names are distinct, and no other text has them.
MARKS = {"story": "Qstory", "about": "Qabout", "questionee": "Qquestionee", "questioner": "Qquestioner",
         "secret": "qsecret", "question": "Qquestion", "meeting": "Qmeeting"}
FILES = {
    "tier_1.txt": "{question}\n",
    "tier_2a.txt": "{question}\n",
    "tier_3.txt": "<BEGIN><t,a,o,r>\n{story}. What now?\n<END><t,a,o,r><About: {about},Questionee: {questionee},"
                  "Questioner: {questioner},Topic: {secret}>\n",
    "tier_3_control.txt": "{question}\n",
    "tier_4.txt": "<BEGIN><private, public>\n{meeting}\n<END><private, public>\n",
}


class Empty(types.ModuleType):
    """A module in which every name is an empty class, or a function that does nothing."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"pandas": staticmethod(lambda *args: None)}) if name[:1].isupper() or name == "tqdm" \
            else (lambda *args, **kwargs: None)


def load(root):
    """Imports the checkout's eval.py."""
    path = os.path.join(root, "eval.py")
    if not os.path.exists(path):
        sys.exit(f"{path}: not found: want a checkout of ConfAIde")
    for name in EMPTY:
        sys.modules[name] = Empty(name)
    spec = importlib.util.spec_from_file_location("confaide_eval", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entries(module, tier, privacy):
    """The entries that the checkout makes of a tier's files in the working directory, one answer each."""
    args = types.SimpleNamespace(n_samples=1, add_privacy_prompt=privacy,
                                 tier_3_questions="free-response,info-accessibility,privacy-sharing,control",
                                 tier_4_questions="meeting-summary,action-item")
    module.args = args
    agent = module.EvalAgent.__new__(module.EvalAgent)
    agent.args = args
    return agent.load_dataset(tier).data


def template(text, kind):
    """Puts fields in the places of the marks."""
    text = text.replace("{", "{{").replace("}", "}}")
    for field, mark in MARKS.items():
        end = "\n" if field == "meeting" else "." if field == "story" else ""  # what the entries have behind the mark
        text = text.replace(mark + end, "{" + field + "}")
    if any(mark in text for mark in MARKS.values()):
        sys.exit(f"{kind}: a mark is left in {text!r}: the checkout makes its prompts in another way")
    return {"name": kind, "template": text}


def templates(module, privacy):
    with tempfile.TemporaryDirectory() as work:
        os.mkdir(os.path.join(work, "benchmark"))
        for name, text in FILES.items():
            for field, mark in MARKS.items():
                text = text.replace("{" + field + "}", mark)
            with open(os.path.join(work, "benchmark", name), "w", encoding="utf-8") as f:
                f.write(text)
        here = os.getcwd()
        os.chdir(work)
        try:
            rating = {tier: entries(module, tier, privacy)[0]["input"] for tier in ("1", "2a")}
            others = entries(module, "3", privacy) + entries(module, "4", privacy)
        finally:
            os.chdir(here)
    if rating["1"] != rating["2a"]:
        sys.exit("tiers 1 and 2a have other words around their questions: want the same")
    yield template(rating["1"], "rating")
    for entry in others:
        yield template(entry["input"], entry["question_type"])


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("root", help="the checkout of ConfAIde")
    args.add_argument("--out", help="file to write (default: benchmark/prompts.jsonl of the checkout)")
    args.add_argument("--no-privacy", action="store_true", help="prompts without the instruction to guard privacy")
    args = args.parse_args()
    rows = list(templates(load(os.path.abspath(args.root)), not args.no_privacy))
    out = args.out or os.path.join(args.root, "benchmark", "prompts.jsonl")
    with open(out + ".part", "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    os.replace(out + ".part", out)
    print(f"{out}: {len(rows)} templates", file=sys.stderr)


if __name__ == "__main__":
    main()
