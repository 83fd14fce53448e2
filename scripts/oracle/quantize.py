"""Records what bitsandbytes makes of a small model's weights on a CPU, and a QLoRA run of TRL, peft and bitsandbytes.

  python scripts/oracle/quantize.py [--out model/testdata/quantized] [--runs train/testdata]

It writes nf4.json: model (the folder under model/testdata); tensors: by name the codes, the scales (the bytes of both in hexadecimal) and the
SHA-256 of the dequantised float32 weights; edge: the same of a matrix whose blocks are not whole, with zeros and with
weights between two codes, beside its shape and weights; rows as in models.py: ids, logits to five decimals.

The model is as transformers loads it with load_in_4bit and bnb_4bit_quant_type nf4, in float32. bitsandbytes 0.50.2
has two implementations for CPUs. This uses the one in PyTorch: the other one, in C++ with AVX-512, takes scales of other
blocks where rows are not a multiple of 64 weights.

The run, <runs>/lora-llama-nf4-sft.json and lora-llama-nf4-sft/, is in the form of lora.py runs; its options have
quantize, too.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import tempfile

import bitsandbytes
import lora
import peft
import torch
import transformers
import trl
import trl_runs
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from bitsandbytes.functional import get_4bit_type, quantize_4bit
from bitsandbytes.nn import Linear4bit, Params4bit
from models import compact, decimals, load, logits_of, significant
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "llama-newer"


def dequantize_4bit(codes, scales, blocksize, quant_type, shape, dtype):
    return _dequantize_4bit_compute(codes.reshape(-1), scales, get_4bit_type(quant_type, device="cpu"), blocksize, shape, dtype)


CPU = torch.library.Library("bitsandbytes", "IMPL")
CPU.impl("dequantize_4bit", dequantize_4bit, "CPU", allow_override=True)


def linears(model):
    return [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"]


def in_nf4(model):
    """Replaces the linear layers as transformers does for load_in_4bit."""
    for name, old in linears(model):
        new = Linear4bit(old.in_features, old.out_features, bias=old.bias is not None, quant_type="nf4",
                         compress_statistics=False, compute_dtype=torch.float32)
        new.weight = Params4bit(old.weight.data.clone(), requires_grad=False, quant_type="nf4",
                                compress_statistics=False, blocksize=64)
        if old.bias is not None:
            new.bias = old.bias
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, new.to("cpu"))
    return model


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes().hex()


def quantize(weight):
    """Gives codes, scales and dequantised weights."""
    codes, state = quantize_4bit(weight, blocksize=64, quant_type="nf4")
    return codes, state.absmax, bitsandbytes.functional.dequantize_4bit(codes, state)


def stored(weight):
    codes, scales, whole = quantize(weight)
    return whole, {"codes": bits(codes), "scales": bits(scales),
                   "sha256": hashlib.sha256(bytes.fromhex(bits(whole))).hexdigest()}


def edge():
    torch.manual_seed(3)
    weight = torch.randn(7, 38)
    weight[1:3] = 0
    table = get_4bit_type("nf4", device="cpu")
    weight[4, :16], weight[4, 16:31], weight[5, :20] = table, (table[1:] + table[:-1]) / 2, torch.arange(20) / 254
    return weight


def record():
    model, tensors = load(trl_runs.MODELS / MODEL), {}
    for name, layer in linears(model):
        _, tensors[name + ".weight"] = stored(layer.weight.data)
    _, odd = stored(edge())
    odd.update(shape=list(edge().shape), weights=bits(edge()))
    in_nf4(model)
    texts = json.loads((trl_runs.MODELS / MODEL / "oracle.json").read_text())["rows"][:1]
    rows = [{"ids": row["ids"], "logits": decimals(logits_of(model, row["ids"]))} for row in texts]
    made = {"bitsandbytes": bitsandbytes.__version__, "transformers": transformers.__version__,
            "torch": torch.__version__}
    return {"made_by": made, "model": MODEL, "tensors": tensors, "edge": odd, "rows": rows}


def train(out):
    options = dict(lora.BASE, completion_only_loss=True)
    adapter = dict(r=4, lora_alpha=8, target_modules=lora.ALL)
    place = trl_runs.MODELS / MODEL
    tok, model = AutoTokenizer.from_pretrained(place), in_nf4(trl_runs.load_model(place, "eager"))
    for p in model.parameters():
        p.requires_grad = False
    model = peft.get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **adapter))
    data = trl_runs.datasets.Dataset.from_list(trl_runs.PAIRS).rename_column("chosen", "completion")
    with tempfile.TemporaryDirectory() as temporary:
        trainer = SFTTrainer(model=model, args=trl_runs.settings(SFTConfig, options, temporary),
                             train_dataset=data.remove_columns("rejected"), processing_class=tok)
        shutil.rmtree(out, ignore_errors=True)
        lora.keep(trainer.model, out, MODEL)
        trained = {k: p for k, p in trainer.model.named_parameters() if p.requires_grad}
        assert trained and all("lora_" in k for k in trained)
        before = {k: p.detach().clone() for k, p in trained.items()}
        trainer.train()
    steps = [{k: log[k] for k in trl_runs.LOGGED if k in log} for log in trainer.state.log_history if "loss" in log]
    assert len(steps) == options["steps"]
    weights = {}
    for key, p in trained.items():
        w = p.detach().double()
        change = (w - before[key].double()).norm().item()
        short = key.removeprefix("base_model.model.").replace(".default", "")
        weights[short] = {k: significant(v, 9) for k, v in (("sum", w.sum().item()), ("norm", w.norm().item()),
                                                            ("change", change))}
    made = {"bitsandbytes": bitsandbytes.__version__, "peft": peft.__version__, "trl": trl.__version__,
            "transformers": transformers.__version__, "torch": torch.__version__}
    return {"made_by": made, "model": MODEL, "trainer": "SFTTrainer",
            "options": dict(options, quantize="nf4", **adapter), "steps": steps, "weights": weights, "noise": {}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=trl_runs.MODELS / "quantized")
    parser.add_argument("--runs", type=pathlib.Path, default=trl_runs.ROOT / "train" / "testdata")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    result = record()
    (args.out / "nf4.json").write_text(compact(result))
    print(len(result["tensors"]), "tensors,", len(result["rows"]), "rows")
    with trl_runs.quiet():
        result = train(args.runs / "lora-llama-nf4-sft")
    (args.runs / "lora-llama-nf4-sft.json").write_text(compact(result))
    print("run, loss", " ".join(f"{s['loss']:.4f}" for s in result["steps"]))


if __name__ == "__main__":
    main()
