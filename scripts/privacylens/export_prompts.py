#!/usr/bin/env python3
"""Writes the exact prompts of PrivacyLens for `posttrain eval privacylens --agent-prompts/--judge-prompts`.

Run it inside a checkout of PrivacyLens (https://github.com/SALT-NLP/PrivacyLens):

    pip install git+https://github.com/dhh1995/PromptCoder.git@87155427e93f6ab95dbd658d7f500c2cedc05af6 \\
        typing_extensions==4.15.0
    python export_prompts.py --data data/main_data.json --agent agent.jsonl --judge judge.jsonl

It calls the checkout's functions that make prompts, and no model. It needs only these two of the checkout's
requirements, because it replaces the libraries that run models by empty ones. --evaluation names another folder with
get_final_action.py and evaluate_final_action.py, such as the one released with CI-RL. If its get_final_action.py has
the CI-CoT prompt, that is exported as kind cot.

agent.jsonl:  {"name", "kind": "naive" | "enhanced" | "cot", "prompt"}
judge.jsonl:  {"name", "kind": "leakage", "item", "before", "after"}
              {"name", "kind": "helpfulness", "before", "after"}       the action belongs between before and after
"""
import argparse
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
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
        sys.exit(f"{path}: not found: want the evaluation folder of a PrivacyLens checkout (--root, --evaluation)")
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


def agent_rows(actions, cases):
    make = actions.prepare_agent_prompt
    kinds = [("naive", "naive", {}), ("enhanced", "privacy_enhanced", {})]
    if "use_think_format" in inspect.signature(make).parameters:
        kinds.append(("cot", "naive", {"use_think_format": "Yes"}))
    fields = ["user_name", "user_email", "user_instruction", "toolkits", "executable_trajectory", "final_action"]
    for case in cases:
        values = {field: case["trajectory"][field] for field in fields}
        for kind, prompt_type, more in kinds:
            yield {"name": case["name"], "kind": kind, "prompt": make(prompt_type=prompt_type, **values, **more)}


# The placeholder of the action while a prompt is made; it occurs in no text.
GAP = "\ufdd0the action\ufdd1"


def split(name, prompt):
    parts = prompt.split(GAP)
    if len(parts) != 2:
        sys.exit(f"{name}: the prompt has the action {len(parts) - 1} times: want it once")
    return {"before": parts[0], "after": parts[1]}


def judge_rows(evaluation, cases):
    for case in cases:
        t = case["trajectory"]
        for item in t["sensitive_info_items"]:
            prompt = evaluation.prepare_prompt_to_identify_leakage(name=t["user_name"], secret=item, action=GAP)
            yield {"name": case["name"], "kind": "leakage", "item": item, **split(case["name"], prompt)}
        prompt = evaluation.prepare_prompt_to_evaluate_helpfulness(
            user_name=t["user_name"], user_instruction=t["user_instruction"], trajectory=t["executable_trajectory"],
            action=GAP)
        yield {"name": case["name"], "kind": "helpfulness", **split(case["name"], prompt)}


def write(path, rows):
    n = 0
    with open(path + ".part", "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            n += 1
    os.replace(path + ".part", path)
    print(f"{path}: {n} prompts", file=sys.stderr)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--root", default=".", help="the checkout of PrivacyLens")
    args.add_argument("--evaluation",
        help="folder with get_final_action.py and evaluate_final_action.py (default: that of the checkout)")
    args.add_argument("--data", help="the cases (default: data/main_data.json of the checkout)")
    args.add_argument("--agent", default="agent-prompts.jsonl", help="file to write the agent's prompts to")
    args.add_argument("--judge", default="judge-prompts.jsonl", help="file to write the judge's prompts to")
    args = args.parse_args()

    root = os.path.abspath(args.root)
    evaluation = os.path.abspath(args.evaluation or os.path.join(root, "evaluation"))
    with open(args.data or os.path.join(root, "data", "main_data.json"), encoding="utf-8") as f:
        cases = json.load(f)
    sys.meta_path.insert(0, EmptyLibraries())
    sys.path[:0] = [os.path.join(root, "data_construction"), os.path.join(root, "helper")]
    write(args.agent, agent_rows(load(evaluation, "get_final_action"), cases))
    write(args.judge, judge_rows(load(evaluation, "evaluate_final_action"), cases))


if __name__ == "__main__":
    main()
