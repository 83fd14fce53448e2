"""Which files make a split, by Hugging Face's datasets: the fixture internal/hubcache/testdata/choices.json.

    pip install datasets
    python scripts/oracle/dataset_files.py internal/hubcache/testdata/choices.json

Each case has a data set's files and README.md. The fixture has its configs, the default one, and the files of each
split, as load_dataset_builder finds them in a folder with these files.
"""

import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets

def front(configs):
    return "---\nlicense: mit\n" + configs + "language:\n- en\n---\n# A data set\n"

CASES = {
    "one file": ["train.jsonl"],
    "names of files": ["train.jsonl", "test.jsonl", "LICENSE", "notes.pdf"],
    "other keywords": ["my_training-set.json", "dev.json", "evaluation_0.json"],
    "no keywords": ["a.jsonl", "b/c.jsonl", "trainer.jsonl"],
    "shards": ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet",
               "data/test-00000-of-00001.parquet", "data/train_sft-00000-of-00001-abcdef0123456789.parquet"],
    "shards beside others": ["data/validation-00000-of-00001.parquet", "train.jsonl"],
    "shards in another folder": ["en/train-00000-of-00001.parquet", "en/test-00000-of-00001.parquet"],
    "split folders": ["train/0.jsonl", "train/more/1.jsonl", "test/0.jsonl", "dev/a.jsonl"],
    "folders with a keyword inside": ["my-train-data/0.jsonl", "valid.1/0.jsonl", "x/eval 2/y/0.jsonl"],
    "folders win over names": ["train/test.jsonl", "valid.jsonl"],
    "two forms": ["train.jsonl", "train-2.jsonl", "train.parquet"],
    "two forms, equally many": ["train.jsonl", "train.parquet"],
    "jsonl with json": ["train-1.jsonl", "train-2.json", "train-3.jsonl"],
    "packed": ["train.jsonl.gz", "test.json.gz"],
    "hidden": [".hidden/train.jsonl", "__cache__/train.jsonl", "data/.train.jsonl", "data/train.jsonl"],
    "about the data": ["train.json", "dataset_infos.json", "config.json", "dataset_info.json"],
    "declared": (["a/x.jsonl", "a/y.jsonl", "b.jsonl"], front(
        "configs:\n- config_name: default\n  data_files:\n  - split: first\n    path: a/*\n"
        "  - split: second\n    path: b.jsonl\n")),
    "declared, one text": (["a/x.jsonl", "b.jsonl"], front("configs:\n- config_name: only\n  data_files: a/*.jsonl\n")),
    "declared, list of texts": (["a/x.jsonl", "b.jsonl", "c.jsonl"],
        front("configs:\n- config_name: only\n  data_files:\n  - b.jsonl\n  - a/**\n")),
    "declared, list of paths": (["a/x.jsonl", "b.jsonl", "c.jsonl"], front(
        "configs:\n- config_name: only\n  data_files:\n  - split: train\n    path:\n    - c.jsonl\n    - \"a/*\"\n")),
    "several": (["a/train.jsonl", "a/test.jsonl", "b/train.jsonl"], front(
        "configs:\n  - config_name: a\n    data_dir: a\n  - config_name: b\n    data_dir: ./b\n")),
    "several with a default": (["a.jsonl", "b.jsonl"], front(
        "configs:\n- config_name: a\n  data_files: a.jsonl\n"
        "- config_name: b\n  data_files: b.jsonl\n  default: true\n")),
    "named default": (["a.jsonl", "b.jsonl"], front(
        "configs:\n- config_name: a\n  data_files: a.jsonl\n- config_name: default\n  data_files: b.jsonl\n")),
    "patterns": (["s-1.jsonl", "s-2.jsonl", "s-10.jsonl", "t/s-1.jsonl", "u/v/s-1.jsonl"], front(
        "configs:\n- config_name: p\n  data_files:\n  - split: one\n    path: s-?.jsonl\n"
        "  - split: all\n    path: \"**/s-*.jsonl\"\n  - split: deep\n    path: \"*/s-1.jsonl\"\n"
        "  - split: some\n    path: \"s-[12]*.jsonl\"\n  - split: others\n    path: \"s-[!1]*.jsonl\"\n")),
    "front matter without configs": (["train.jsonl", "test.jsonl"], front("")),
}


def choices(files, readme):
    with tempfile.TemporaryDirectory() as folder:
        for name in files:
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w") as out:
                out.write("{}")
        if readme:
            with open(os.path.join(folder, "README.md"), "w") as out:
                out.write(readme)
        found = {}
        for config in datasets.get_dataset_config_names(folder):
            data_files = datasets.load_dataset_builder(folder, config).config.data_files
            found[config] = {str(split): [os.path.relpath(p, os.path.realpath(folder)) for p in paths]
                             for split, paths in data_files.items()}
        default = datasets.get_dataset_default_config_name(folder)
        return {"default": default, "configs": found}


def main():
    out = []
    for name, case in CASES.items():
        files, readme = case if isinstance(case, tuple) else (case, "")
        out.append({"name": name, "files": files, "readme": readme, **choices(files, readme)})
    with open(sys.argv[1], "w") as f:
        json.dump({"datasets": datasets.__version__, "cases": out}, f, indent=1)
        f.write("\n")


main()
