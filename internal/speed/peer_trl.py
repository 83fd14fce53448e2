"""TRL's DPOTrainer on real preference pairs, timed as a user meets it: tokenisation, reference pass and training.

  python internal/speed/peer_trl.py --model DIR --data ../shared/data/hh-rlhf/harmless-base-test.jsonl.gz --pairs 256

DIR is a model folder. One epoch over the first --pairs rows in file order, batch 8, with precomputed reference
log-probs, without gradient checkpointing (TRL's default would recompute every layer). --dtype bfloat16 is TRL's
`bf16=True`, autocast with float32 weights. --prior mappo multiplies the rejected answer's log-probs, of the policy and
the reference, by the gap between chosen_score and rejected_score, at least 0: the loss of the MaPPO paper. Prints one
line of JSON: seconds for loading, preparing (tokenisation and reference pass)
and training, pairs_per_second over the three together, the loss of every step and their mean, the tokens trained on,
and peak_rss_mb. Imports are not counted.
"""

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets
import torch
import transformers
import trl
from texts import read_pairs
from transformers import AutoModelForCausalLM, AutoTokenizer


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=1024,
        help="TRL cuts longer sequences (default 1024, as TRL's)")
    parser.add_argument("--rate", type=float, default=1e-5)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--prior", choices=["none", "mappo"], default="none")
    parser.add_argument("--reference-in-step", action="store_true",
        help="TRL's default: a reference forward in every step")
    parser.add_argument("--defaults", action="store_true", help="leave gradient checkpointing on, as TRL does")
    return parser.parse_args()


def settings(args, out):
    return trl.DPOConfig(
        output_dir=out,
        per_device_train_batch_size=args.batch,
        num_train_epochs=1,
        learning_rate=args.rate,
        lr_scheduler_type="constant",
        train_sampling_strategy="sequential",
        precompute_ref_log_probs=not args.reference_in_step,
        gradient_checkpointing=args.defaults,
        max_length=args.max_length,
        bf16=args.dtype == "bfloat16",
        torch_compile=args.compile,
        remove_unused_columns=False,
        use_cpu=args.device == "cpu",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


class MaPPO(trl.DPOTrainer):
    """DPO whose rejected log-probs are scaled by each pair's gap between the scores, given in file order."""

    gaps = None

    def _compute_loss(self, model, inputs, return_outputs=False):
        rows = inputs["input_ids"].shape[0] // 2
        gap, self.gaps = self.gaps[:rows], self.gaps[rows:]
        scale = torch.cat([torch.ones(rows), gap])[:, None]

        def scaled(**kwargs):
            found = model(**kwargs)
            found.log_probs = found.log_probs * scale
            return found

        inputs["ref_rejected_logps"] = inputs["ref_rejected_logps"] * gap
        return super()._compute_loss(scaled, inputs, return_outputs)


def run(args, out):
    """Seconds of the three parts, and the trainer afterwards."""
    begin = time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    # In memory: a data set read from a file would leave a cache, and the next run its reference log-probs for nothing.
    pairs = read_pairs(args.data, args.pairs)
    rows = datasets.Dataset.from_list([{k: r[k] for k in ("prompt", "chosen", "rejected") if k in r} for r in pairs])
    loaded = time.perf_counter()
    kind = MaPPO if args.prior == "mappo" else trl.DPOTrainer
    trainer = kind(model=model, args=settings(args, out), train_dataset=rows, processing_class=tokenizer)
    if args.prior == "mappo":
        trainer.gaps = torch.tensor([max(0.0, r["chosen_score"] - r["rejected_score"]) for r in pairs])
    prepared = time.perf_counter()
    trainer.train()
    return loaded - begin, prepared - loaded, time.perf_counter() - prepared, trainer


def main():
    args = parse()
    # TRL prints its logs on standard output, which is for the one line of JSON.
    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(sys.stderr):
        load, prepare, train, trainer = run(args, out)
    pairs = len(trainer.train_dataset)
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    result = {
        "trl": trl.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "pairs": pairs,
        "tokens": int(steps[-1]["num_tokens"]),
        "load_seconds": load,
        "prepare_seconds": prepare,
        "train_seconds": train,
        "pairs_per_second": pairs / (load + prepare + train),
        "loss": sum(entry["loss"] for entry in steps) / len(steps),
        "losses": [entry["loss"] for entry in steps],
        "peak_gpu_gb": torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0,
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    os.environ["TQDM_DISABLE"] = "1"
    main()
