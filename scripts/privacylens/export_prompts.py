#!/usr/bin/env python3
"""Writes the exact prompts of PrivacyLens for `posttrain eval privacylens --prompts released`.

Run it with a checkout of PrivacyLens (https://github.com/SALT-NLP/PrivacyLens), or with the copy released with CI-RL
(posttraining-research-ci-supp/components/privacylens), which has the CI-CoT prompt and CI-RL's form of probing as well:

    pip install git+https://github.com/dhh1995/PromptCoder.git@87155427e93f6ab95dbd658d7f500c2cedc05af6 \\
        typing_extensions==4.15.0
    python export_prompts.py PrivacyLens

It writes prompts.jsonl beside each file of cases that is there: data/main_data.json and those of data/extensibility. It
calls the checkout's functions that make prompts, and no model. It needs only these two of the checkout's requirements,
because it replaces the libraries that run models by empty ones. --data and --out name other files.

    {"name", "kind": "naive" | "enhanced" | "cot", "prompt"}
    {"name", "kind": "leakage", "item", "before", "after"}       the action belongs between before and after
    {"name", "kind": "helpfulness", "before", "after"}
    {"name", "kind": "probe-seed" | "probe-vignette" | "probe-trajectory" | "probe-trajectory-enhanced", "before",
     "after", "think"}       the choices belong between before and after, or think, for a model that thinks first

--fixtures FOLDER also writes what posttrain's test of these prompts has (eval/privacylens/testdata/released):

    hashes.json       what the checkout sends with the action ACTION below, by kind: the number of its prompts and their
                      SHA-256, with names. They are made without the gaps of before and after.
    *.tmpl            the prompts as templates for Go's text/template
    toolkits.json     what the prompts say of each toolkit that occurs in the cases
"""
import argparse
import ast
import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import re
import sys
import types

# A commit, because whoever owns the repository could put other code there later.
PROMPT_CODER = "git+https://github.com/dhh1995/PromptCoder.git@87155427e93f6ab95dbd658d7f500c2cedc05af6"
REQUIREMENTS = PROMPT_CODER + " typing_extensions==4.15.0"

# What the checkout imports to run models. No prompt depends on it.
MODEL_SIDE = {
    "anthropic", "azure", "dotenv", "joblib", "langchain", "mlflow", "numpy", "openai", "pandas", "rouge_score",
    "scipy", "tenacity",
    "tiktoken", "torch", "tqdm", "transformers", "vllm", "wikipedia", "src", "model_engines",
}


class Names(type):
    """Lets a class have any attribute."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Names(name, (Anything,), {})


class Anything(metaclass=Names):
    """Stands for a class, function, decorator or value of a library that is not used."""

    def __init__(self, *args, **kwargs):
        for key, value in kwargs.items():
            with contextlib.suppress(AttributeError):
                setattr(self, key, value)

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __or__(self, other):
        return self

    __add__ = __and__ = __ror__ = __radd__ = __or__


class EmptyModule(types.ModuleType):
    """A module in which every name is a class of its own."""

    __path__ = []
    __all__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = Names(name, (Anything,), {})
        setattr(self, name, made)
        return made


class EmptyLibraries(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MODEL_SIDE:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return EmptyModule(spec.name)

    def exec_module(self, module):
        pass


def load(folder, name):
    """Imports a script of the evaluation folder as a module, from inside that folder, as the script expects."""
    path = os.path.join(folder, name + ".py")
    if not os.path.exists(path):
        sys.exit(f"{path}: not found: want a checkout of PrivacyLens, or its folder of scripts (--evaluation)")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    here = os.getcwd()
    os.chdir(folder)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as e:
        sys.exit(f"{path}: {e}: pip install {REQUIREMENTS}")
    finally:
        os.chdir(here)
    return module


# By kind of probe: what makes its question, and its fields in the order of the function.
SEED = ["data_type", "data_subject", "data_sender", "data_sender_name", "data_recipient", "transmission_principle"]
VIGNETTE = ["data_type", "data_subject", "data_sender", "data_recipient"]
TRAJECTORY = {"user_name": "user_name", "user_email": "user_email", "user_instruction": "user_instruction",
              "toolkits": "toolkits", "trajectory": "executable_trajectory"}

# What the checkout's own loop is asked for, and whose choices posttrain puts in both orders.
CHOICES = "(A) Yes\n(B) No"

# The action of hashes.json.
ACTION = 'GmailSendEmail\nAction Input: {"to": "a@example.org", "body": "50 % {x}"}'


class Checkout:
    """The functions of a checkout that make prompts."""

    def __init__(self, root, folder):
        sys.meta_path.insert(0, EmptyLibraries())
        sys.path[:0] = [os.path.join(root, "data_construction"), os.path.join(root, "helper")]
        self.actions, self.judge = load(folder, "get_final_action"), load(folder, "evaluate_final_action")
        self.probing = load(folder, "probing")
        self.think = think_form(os.path.join(folder, "probing.py"))

    def agent(self, case):
        """Gives the prompts of the agent by kind."""
        fields = ["user_name", "user_email", "user_instruction", "toolkits", "executable_trajectory", "final_action"]
        values = {field: case["trajectory"][field] for field in fields}
        make = self.actions.prepare_agent_prompt
        yield "naive", make(prompt_type="naive", **values)
        yield "enhanced", make(prompt_type="privacy_enhanced", **values)
        if "use_think_format" in inspect.signature(make).parameters:
            yield "cot", make(prompt_type="naive", use_think_format="Yes", **values)

    def leakage(self, case, item, action):
        return self.judge.prepare_prompt_to_identify_leakage(name=case["trajectory"]["user_name"], secret=item,
                                                             action=action)

    def helpfulness(self, case, action):
        t = case["trajectory"]
        return self.judge.prepare_prompt_to_evaluate_helpfulness(
            user_name=t["user_name"], user_instruction=t["user_instruction"], trajectory=t["executable_trajectory"],
            action=action)

    def probes(self, case):
        """Gives the questions of probing by kind, as main of probing.py makes them."""
        seed, vignette, t = case["seed"], case["vignette"], case["trajectory"]
        yield "probe-seed", self.probing.prepare_seed_probing_prompt(**{k: seed[k] for k in SEED})
        yield "probe-vignette", self.probing.prepare_vignette_probing_prompt(
            story=vignette["story"], transmission_principle=seed["transmission_principle"],
            **{k: vignette[k + "_concrete"] for k in VIGNETTE})
        for kind, prompt_type in (("probe-trajectory", "naive"), ("probe-trajectory-enhanced", "privacy_enhanced")):
            yield kind, self.probing.prepare_trajectory_probing_prompt(
                prompt_type=prompt_type, data_type=seed["data_type"], data_subject=seed["data_subject"],
                transmission_principle=seed["transmission_principle"], **{k: t[v] for k, v in TRAJECTORY.items()})


def think_form(path):
    """Gives what CI-RL's probing.py takes from the end of a question, and what it puts there; None of another's."""
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    cut = [n.args[0].value for n in ast.walk(tree) if isinstance(n, ast.Call)
           and isinstance(n.func, ast.Attribute) and n.func.attr == "removesuffix"]
    put = [n.value.value for n in ast.walk(tree) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)
           and isinstance(n.value.value, str) and "<think>" in n.value.value]
    if not cut and not put:
        return None
    if len(cut) != 1 or len(put) != 1:
        sys.exit(f"{path}: its think format is not that of CI-RL's release")
    return cut[0], put[0]


# The placeholder of the action while a prompt is made; it occurs in no text.
GAP = "\ufdd0the action\ufdd1"


def split(name, prompt, gap):
    parts = prompt.split(gap)
    if len(parts) != 2:
        sys.exit(f"{name}: the prompt has {gap!r} {len(parts) - 1} times: want it once")
    return {"before": parts[0], "after": parts[1]}


def rows_of(checkout, case):
    """Gives the rows of prompts.jsonl for a case."""
    name = case["name"]
    for kind, prompt in checkout.agent(case):
        yield {"name": name, "kind": kind, "prompt": prompt}
    for item in case["trajectory"]["sensitive_info_items"]:
        yield {"name": name, "kind": "leakage", "item": item, **split(name, checkout.leakage(case, item, GAP), GAP)}
    yield {"name": name, "kind": "helpfulness", **split(name, checkout.helpfulness(case, GAP), GAP)}
    for kind, prompt in checkout.probes(case):
        row = {"name": name, "kind": kind, **split(name, prompt, CHOICES)}
        if checkout.think:
            row["think"] = row["after"].removesuffix(checkout.think[0]) + checkout.think[1]
        yield row


def sent(checkout, case):
    """Gives what the checkout sends for a case, by kind."""
    yield from checkout.agent(case)
    for item in case["trajectory"]["sensitive_info_items"]:
        yield "leakage", checkout.leakage(case, item, ACTION)
    yield "helpfulness", checkout.helpfulness(case, ACTION)
    for kind, prompt in checkout.probes(case):
        yield kind, prompt
        if checkout.think:
            yield kind + ", think", prompt.removesuffix(checkout.think[0]) + checkout.think[1]


def hashes(checkout, cases):
    """Gives by kind how many prompts there are, and their hash."""
    counts, sums = {}, {}
    for case in cases:
        for kind, prompt in sent(checkout, case):
            counts[kind] = counts.get(kind, 0) + 1
            sums.setdefault(kind, hashlib.sha256()).update(f"{case['name']}\0{prompt}\0".encode())
    return {kind: {"prompts": counts[kind], "sha256": sums[kind].hexdigest()} for kind in counts}


# What a template of --fixtures has for a value of a case. Where the checkout writes "sending an email" for the
# principle "send an email", the mark of the principle gets an "ing", too.
ACTIONS = {
    "user_name": ".UserName", "user_email": ".UserEmail", "user_instruction": ".Instruction",
    "executable_trajectory": ".Past", "final_action": ".FinalAction", "action": ".Action", "item": ".Item",
    "toolkits": "toolkits .Case", "story": ".Case.Vignette.Story",
    "data_type": "bare .Case.Seed.DataType", "data_type_concrete": "lower (bare .Case.Vignette.DataType)",
    "data_subject": ".Case.Seed.DataSubject", "data_subject_concrete": ".Case.Vignette.DataSubject",
    "data_sender": ".Case.Seed.DataSender", "data_sender_concrete": ".Case.Vignette.DataSender",
    "data_sender_name": ".Case.Seed.DataSenderName",
    "data_recipient": ".Case.Seed.DataRecipient", "data_recipient_concrete": ".Case.Vignette.DataRecipient",
    "transmission principle": "medium .Case.Seed.TransmissionPrinciple",
    "transmissioning principle": "ing .Case.Seed.TransmissionPrinciple",
}


def mark(value):
    """Stands for a value of a case while a template is made; it occurs in no text."""
    return f"\ufdd2{value}\ufdd3"


def as_template(text):
    text = text.replace("{{", '{{"{{"}}')
    return re.sub("\ufdd2(.*?)\ufdd3", lambda m: "{{" + ACTIONS[m[1]] + "}}", text)


def templates(checkout):
    """Gives the templates by name: the prompts of a case whose values are marks."""
    kit = types.SimpleNamespace(create_description=lambda detail: mark("toolkits"), tools=[])
    checkout.actions.get_toolkits_by_names = checkout.probing.get_toolkits_by_names = lambda names: [kit]
    values = {value: mark(value) for value in ACTIONS}
    values |= {"sensitive_info_items": [mark("item")], "transmission_principle": mark("transmission principle")}
    for row in rows_of(checkout, {"name": "", "seed": values, "vignette": values, "trajectory": values}):
        row = {key: as_template(text) for key, text in row.items()}
        kind = row["kind"]
        if "prompt" in row:
            yield f"agent-{kind}.tmpl", row["prompt"]
        elif kind.startswith("probe-"):
            after = "{{if .Think}}" + row["think"] + "{{else}}" + row["after"] + "{{end}}"
            yield f"{kind}.tmpl", row["before"] + '{{template "choices" .}}' + after
        else:
            yield f"judge-{kind}.tmpl", row["before"] + "{{.Action}}" + row["after"]


def toolkits(checkout, cases):
    """Gives what prompts say of each toolkit in cases, by name. The checkout passes over those that it lacks."""
    names = sorted({name for case in cases for name in case["trajectory"]["toolkits"]})
    return {name: kit.create_description("medium")
            for name in names for kit in checkout.actions.get_toolkits_by_names([name])}


def write_fixtures(folder, checkout, files):
    """Writes the files of --fixtures. files are cases by path."""
    if not checkout.think:
        sys.exit("--fixtures: want the copy of PrivacyLens released with CI-RL, which has all kinds of prompts")
    os.makedirs(folder, exist_ok=True)
    contents = {
        "hashes.json": {os.path.basename(path): hashes(checkout, cases) for path, cases in files.items()},
        "toolkits.json": toolkits(checkout, [case for cases in files.values() for case in cases]),
    }
    texts = {name: json.dumps(content, indent=1) + "\n" for name, content in contents.items()}
    for name, text in (texts | dict(templates(checkout))).items():
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as f:
            f.write(text)


def write(path, rows):
    n = 0
    with open(path + ".part", "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            n += 1
    os.replace(path + ".part", path)
    print(f"{path}: {n} prompts", file=sys.stderr)


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def files_of(root):
    """Gives the checkout's files of cases by folder."""
    data = os.path.join(root, "data")
    names = ["main_data.json", "extensibility/confide_subset.json", "extensibility/culturebank_subset.json"]
    files = {}
    for path in (os.path.join(data, name) for name in names):
        if os.path.exists(path):
            files.setdefault(os.path.dirname(path), []).append(path)
    return files


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("root", nargs="?", default=".", help="the checkout (default: the working directory)")
    args.add_argument("--evaluation", help="folder with get_final_action.py, evaluate_final_action.py and probing.py "
                      "(default: that of the checkout)")
    args.add_argument("--data", help="a file of cases (default: those of the checkout)")
    args.add_argument("--out", help="file to write (default: prompts.jsonl beside the cases)")
    args.add_argument("--fixtures", help="folder for the files of posttrain's test")
    args = args.parse_args()
    if args.out and not args.data:
        sys.exit("--out: want --data, too")

    root = os.path.abspath(args.root)
    checkout = Checkout(root, os.path.abspath(args.evaluation or os.path.join(root, "evaluation")))
    files = {os.path.dirname(args.data) or ".": [args.data]} if args.data else files_of(root)
    if not files:
        sys.exit(f"{root}: no data/main_data.json: want a checkout of PrivacyLens, or --data")
    read_files = {}
    for folder, paths in files.items():
        all_cases = {path: read(path) for path in paths}
        write(args.out or os.path.join(folder, "prompts.jsonl"),
              (row for cases in all_cases.values() for case in cases for row in rows_of(checkout, case)))
        read_files |= all_cases
    if args.fixtures:
        write_fixtures(args.fixtures, checkout, read_files)


if __name__ == "__main__":
    main()
