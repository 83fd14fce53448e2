"""Records what peft computes with LoRA adapters, and whole runs of TRL with peft; checks adapters that posttrain wrote.

  python scripts/oracle/lora.py adapters [--out model/testdata/lora]
  python scripts/oracle/lora.py runs [--out train/testdata]
  python scripts/oracle/lora.py check BASE ADAPTER LOGITS.json [--tolerance 1e-4]

adapters writes for each of ADAPTERS a folder as peft saves it, with random A and B, and oracle.json: model (the folder
under model/testdata), and rows as in models.py: ids, logits to five decimals.

runs writes for each of RUNS train/testdata/lora-<run>.json, in the form of trl_runs.py (options has peft's, too;
weights are the adapter's tensors), and lora-<run>/, the adapter that the run began with. The pairs are those of
trl_runs.py; the reference of DPO is the model with the adapter switched off.

check loads ADAPTER with peft onto BASE and compares logits with LOGITS.json: {"rows": [{"ids", "logits"}]}. The test
TestWriteForPeft of package model writes ADAPTER and LOGITS.json into the folder that POSTTRAIN_LORA_OUT names.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import peft
import torch
import transformers
import trl
import trl_runs
from models import compact, decimals, load, logits_of, significant, worst
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "llama-all": ("llama-newer", dict(r=4, lora_alpha=8, target_modules=ALL)),
    "qwen2-rslora": ("qwen2-newer", dict(r=3, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "v_proj"])),
}
RUNS = {
    "llama-dpo": ("llama-newer", "dpo", dict(loss_type="sigmoid", beta=0.1),
                  dict(r=4, lora_alpha=8, target_modules=ALL)),
    "llama-ipo": ("llama-newer", "dpo", dict(loss_type="ipo", beta=0.1, batch=2, accumulate=2, weight_decay=0.5),
                  dict(r=2, lora_alpha=8, target_modules=["q_proj", "down_proj"])),
    "qwen2-sft": ("qwen2-newer", "sft", dict(completion_only_loss=True),
                  dict(r=4, lora_alpha=8, use_rslora=True, target_modules=ALL)),
}
BASE = dict(trl_runs.BASE, learning_rate=1e-2)


def keep(model, out, parent):
    """Saves an adapter without what names this machine."""
    model.save_pretrained(out)
    (out / "README.md").unlink()
    path = out / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = parent
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2) + "\n")


def make_adapter(out, name):
    folder, options = ADAPTERS[name]
    model = get_peft_model(load(trl_runs.MODELS / folder), LoraConfig(task_type="CAUSAL_LM", **options))
    torch.manual_seed(7)
    for key, p in model.named_parameters():
        if "lora_" in key:
            torch.nn.init.normal_(p, std=0.3)
    shutil.rmtree(out / name, ignore_errors=True)
    keep(model, out / name, folder)
    texts = json.loads((trl_runs.MODELS / folder / "oracle.json").read_text())["rows"]
    rows = [{"ids": row["ids"], "logits": decimals(logits_of(model, row["ids"]))} for row in texts]
    made = {"peft": peft.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
    (out / name / "oracle.json").write_text(compact({"made_by": made, "model": folder, "rows": rows}))
    print(name, len(rows), "rows")


def train(name, attention, out):
    folder, kind, changes, lora = RUNS[name]
    options = dict(BASE, **changes)
    place = trl_runs.MODELS / folder
    tok, model = AutoTokenizer.from_pretrained(place), trl_runs.load_model(place, attention)
    config = LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **lora)
    data = trl_runs.datasets.Dataset.from_list(trl_runs.PAIRS)
    with tempfile.TemporaryDirectory() as temporary:
        if kind == "dpo":
            args, make = trl_runs.settings(DPOConfig, options, temporary), DPOTrainer
        else:
            args, make = trl_runs.settings(SFTConfig, options, temporary), SFTTrainer
            data = data.rename_column("chosen", "completion").remove_columns("rejected")
        trainer = make(model=model, args=args, train_dataset=data, processing_class=tok, peft_config=config)
        if out:
            shutil.rmtree(out, ignore_errors=True)
            keep(trainer.model, out, folder)
        trained = {k: p for k, p in trainer.model.named_parameters() if p.requires_grad}
        assert all("lora_" in k for k in trained)
        before = {k: p.detach().clone() for k, p in trained.items()}
        trainer.train()
    steps = [{k: log[k] for k in trl_runs.LOGGED if k in log} for log in trainer.state.log_history if "loss" in log]
    assert len(steps) == options["steps"]
    weights = {}
    for key, p in trained.items():
        w = p.detach().double()
        change = (w - before[key].double()).norm().item()
        short = key.removeprefix("base_model.model.").replace(".default", "")
        numbers = (("sum", w.sum().item()), ("norm", w.norm().item()), ("change", change))
        weights[short] = {k: significant(v, 9) for k, v in numbers}
    made = {"peft": peft.__version__, "trl": trl.__version__, "transformers": transformers.__version__,
            "torch": torch.__version__}
    return {"made_by": made, "model": folder, "trainer": make.__name__, "options": dict(options, **lora),
            "steps": steps, "weights": weights}


def make_run(out, name):
    with trl_runs.quiet():
        result = train(name, "eager", out / f"lora-{name}")
        result["noise"] = trl_runs.noise(result, train(name, "sdpa", None))
    (out / f"lora-{name}.json").write_text(compact(result))
    losses = " ".join(f"{s['loss']:.4f}" for s in result["steps"])
    print(f"{name:12} loss {losses}; noise {max(result['noise'].values()):.1g}")


def check(base, adapter, logits, tolerance):
    model = PeftModel.from_pretrained(load(base), adapter)
    rows = json.loads(logits.read_text())["rows"]
    most = worst([logits_of(model, row["ids"]) for row in rows], [torch.tensor(row["logits"]) for row in rows])
    plain = worst([logits_of(load(base), row["ids"]) for row in rows], [torch.tensor(row["logits"]) for row in rows])
    good = most <= tolerance < plain
    print(f"{'ok' if good else 'WRONG'}: largest difference {most:.2g}, accepted {tolerance:g}; without the adapter "
          f"{plain:.2g}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["adapters", "runs", "check"])
    parser.add_argument("paths", nargs="*", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.action == "check":
        sys.exit(0 if check(*args.paths, args.tolerance) else 1)
    out = args.out or {"adapters": trl_runs.MODELS / "lora", "runs": trl_runs.ROOT / "train" / "testdata"}[args.action]
    out.mkdir(parents=True, exist_ok=True)
    for name in ADAPTERS if args.action == "adapters" else RUNS:
        (make_adapter if args.action == "adapters" else make_run)(out, name)


if __name__ == "__main__":
    main()
