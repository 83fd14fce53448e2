#!/usr/bin/env python3
"""Writes the prompt layout of CI-RL's release as a template for `posttrain ci-rl --prompt FILE`.

Run it with a checkout of CI-RL (https://github.com/EricGLan/CI-RL); Python's standard library is enough:

    python export_prompts.py --root CI-RL --out prompts
    posttrain ci-rl --model DIR --data dataset.json --prompt prompts/released.tmpl

prompts/released.tmpl is the prompt of examples/data_preprocess/contextual_integrity.py in the template's form
(posttrain's docs/data.md). prompts/prompts.jsonl has what that code itself makes of each item that it keeps, in the
order that it drew (the seed of Python's random is the row's number here; the release sets none):

    {"row": 1, "keys": ["Name", ...], "prompt": "..."}

One of posttrain's tests compares the two. --fixtures FOLDER writes the test's files (data/ci/testdata/released):
released.tmpl, and hashes.jsonl, which has the SHA-256 of each prompt in place of it.
"""
import argparse
import ast
import contextlib
import hashlib
import io
import json
import os
import random
import sys
import tempfile
import types

PREPROCESS = "verl-supp/examples/data_preprocess/contextual_integrity.py"
DATASET = "posttraining-research-ci-supp/datasets/synthetic/dataset.json"

# What the release's f-string refers to, and the template's field for it.
FIELDS = {
    "d['seed']['scenario']": "{{.Scenario}}",
    "d['seed']['domain']": "{{.Domain}}",
    "d['seed']['user_intention']": "{{.Intention}}",
    "d['seed']['sender']": "{{.Sender}}",
    "d['seed']['recipient']": "{{.Recipient}}",
    "d['seed']['data_subject']": "{{.Subject}}",
    "d['seed']['transmission_principle']": "{{.Principle}}",
    "d['dataset_item']['user_task']": "{{.Task}}",
}


def assigned(tree, name):
    """Gives the value that a variable is set to; it must be set once."""
    found = [n.value for n in ast.walk(tree) if isinstance(n, ast.Assign)
             and any(isinstance(t, ast.Name) and t.id == name for t in n.targets)]
    if len(found) != 1:
        sys.exit(f"{name} is set {len(found)} times: want it once, as in the release")
    return found[0]


def escape(text):
    return text.replace("{{", '{{"{{"}}')


def of_string(node, fields):
    """Gives an f-string as a template."""
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(escape(part.value))
            continue
        name = ast.unparse(part.value)
        if name not in fields or part.conversion != -1 or part.format_spec:
            sys.exit(f"line {part.lineno}: the prompt uses {name}: want one of {', '.join(fields)}")
        parts.append(fields[name])
    return "".join(parts)


def attributes(tree):
    """Gives the template of the attributes' list: s = SEPARATOR.join(f"…" for (key, value) in l)."""
    join = assigned(tree, "s")
    line = join.args[0]
    names = [ast.unparse(e) for e in line.generators[0].target.elts]
    if names != ["key", "value"] or ast.unparse(line.generators[0].iter) != "l":
        sys.exit(f"line {join.lineno}: the list of attributes has another form than the release's")
    text = of_string(line.elt, {"key": "{{$a.Key}}", "value": "{{$a.Text}}"})
    return "{{range $i, $a := .Annotated}}{{if $i}}" + escape(join.func.value.value) + "{{end}}" + text + "{{end}}"


def template(code):
    tree = ast.parse(code)
    return of_string(assigned(tree, "PROMPT"), {**FIELDS, "s": attributes(tree)})


class Rows:
    """Takes the place of a data set of the library datasets, which the release writes its prompts with."""

    def __init__(self, rows):
        self.rows = rows

    @classmethod
    def from_list(cls, rows):
        return cls(rows)

    def shuffle(self, seed=None):
        return self

    def train_test_split(self, test_size):
        return {"train": self, "test": self}

    def to_parquet(self, path):
        pass


def rendered(code, items):
    """Runs the release's code on one item after the other."""
    sys.modules["datasets"] = types.ModuleType("datasets")
    sys.modules["datasets"].Dataset = Rows
    program = compile(code, PREPROCESS, "exec")
    with tempfile.TemporaryDirectory() as folder:
        arguments, sys.argv = sys.argv, [PREPROCESS, "--local_dir", folder]
        for number, item in enumerate(items, 1):
            with open(os.path.join(folder, "contextual_integrity.json"), "w") as file:
                json.dump([item], file)
            random.seed(number)
            names = {"__name__": "__main__"}
            with contextlib.redirect_stdout(io.StringIO()):
                exec(program, names)
            for row in names["dataset"]["train"].rows:
                messages = row["prompt"]
                if [m["role"] for m in messages] != ["user"]:
                    sys.exit(f"row {number}: {len(messages)} messages: want one of the user, as in the release")
                yield {"row": number, "keys": [key for key, _ in names["l"]], "prompt": messages[0]["content"]}
        sys.argv = arguments


def with_hash(row):
    return {"row": row["row"], "keys": row["keys"], "sha256": hashlib.sha256(row["prompt"].encode()).hexdigest()}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--root", default=".", help="the checkout of CI-RL")
    args.add_argument("--data", help="the items (default: those of the checkout)")
    args.add_argument("--out", default="prompts", help="folder to write released.tmpl and prompts.jsonl to")
    args.add_argument("--fixtures", help="folder for the files of posttrain's test, in place of --out")
    args = args.parse_args()

    source, data = os.path.join(args.root, PREPROCESS), args.data or os.path.join(args.root, DATASET)
    for path in source, data:
        if not os.path.exists(path):
            sys.exit(f"{path}: not found: want a checkout of CI-RL (--root)")
    with open(source, encoding="utf-8") as file:
        code = file.read()
    with open(data, encoding="utf-8") as file:
        items = json.load(file)
    rows = rendered(code, items)
    folder, name = args.out, "prompts.jsonl"
    if args.fixtures:
        folder, name, rows = args.fixtures, "hashes.jsonl", map(with_hash, rows)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "released.tmpl"), "w", encoding="utf-8", newline="") as file:
        file.write(template(code))
    kept = 0
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            kept += 1
    print(f"{folder}: released.tmpl, and {name} with {kept} of {len(items)} items", file=sys.stderr)


if __name__ == "__main__":
    main()
