#!/usr/bin/env python3
"""Compares what an MLflow server has of runs with the runs' folders, by MLflow's own client.

    python3 -m venv venv && venv/bin/pip install mlflow
    venv/bin/mlflow server --port 5000 &
    posttrain mappo --mlflow http://127.0.0.1:5000 --out runs/mappo
    venv/bin/python scripts/tracking/mlflow_read.py runs/mappo…

It fails where the server has another run of the same tag, a number that differs from metrics.jsonl, one too many or too
few, or other parameters than config.yaml. Times may differ: of a step that was done again after an interruption the
server keeps the first ones.
"""
import argparse
import json
import math
import pathlib
import sys

import mlflow
import yaml


def flat(config, prefix=""):
    for key, value in config.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key


TIMES = ("step_time", "tokens_per_second")


def shown(values, name):
    """Each value once, as the server keeps them; of times the steps."""
    return list(dict.fromkeys((step, "" if name in TIMES else repr(float(x))) for step, x in values))


def faults(folder):
    kept = json.loads((folder / "mlflow.json").read_text())
    client = mlflow.MlflowClient(kept["url"])
    run = client.get_run(kept["run_id"])
    twins = client.search_runs([kept["experiment_id"]], f"tags.posttrain_run = '{kept['tag']}'")
    if len(twins) != 1:
        yield f"{len(twins)} runs have its tag"
    if run.info.status != "FINISHED":
        yield f"status {run.info.status}"
    keys = set(flat(yaml.safe_load((folder / "config.yaml").read_text())))
    if keys != set(run.data.params):
        yield f"parameters {sorted(keys ^ set(run.data.params))} are in one alone"
    want = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        step = record.pop("step")
        record.pop("note", None)
        for name, x in record.items():
            want.setdefault(name, []).append((step, math.nan if x is None else x))
    if sorted(want) != sorted(run.data.metrics):
        yield f"metrics {sorted(set(want) ^ set(run.data.metrics))} are in one alone"
    for name, values in want.items():
        got = shown([(m.step, m.value) for m in client.get_metric_history(kept["run_id"], name)], name)
        if got != shown(values, name):
            yield f"{name}: {len(got)} values {got[:3]}…, want {len(values)} {values[:3]}…"
    print(f"{folder}: {len(want)} metrics with {sum(map(len, want.values()))} values, {len(keys)} parameters")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("run", nargs="+", type=pathlib.Path, help="a run folder")
    found = [f"{folder}: {f}" for folder in p.parse_args().run for f in faults(folder)]
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
