"""TRL's GRPOTrainer as a child process that does one whole step for each line it reads.

A driver alternates it with posttrain:

  python internal/speed/peer_grpo.py --world DIR --group 16

DIR is a world of the driver: a Hugging Face model folder and prompts.json ({"new", "prompts"}).
A step is GRPO with the k3 estimate of KL: a rollout of `group` completions a prompt by transformers' generate, rewards,
the reference's log-probs, forward, backward, clip, AdamW. The reward is the share of even token ids, which both sides
can compute. Without a tokenizer in the folder text is words t2, t3, ... of one token each.

First line out: {"ready": true, ...}. Then for each line in, one line out:
  step       {"did": "step", "seconds", "rollout_seconds", "scoring_seconds", "training_seconds", "tokens", ...}
  quit       (or the end of the input) ends the process
Seconds count from the batch's arrival to the end of the update; rollout is TRL's _generate (tokenisation and decoding
included), scoring the rest before the loss (rewards, advantages, reference), training the rest of the step.

Faster for TRL than its defaults: no gradient checkpointing, float32 instead of emulated bfloat16 on a CPU.
"""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["TQDM_DISABLE"] = "1"

import datasets
import tokenizers
import torch
import transformers
import trl


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=pathlib.Path, required=True)
    parser.add_argument("--group", type=int, default=16, help="completions a prompt")
    parser.add_argument("--micro", type=int, default=0, help="completions a forward pass; 0: all of a step")
    parser.add_argument("--kl", type=float, default=0.001, help="coefficient of KL")
    parser.add_argument("--rate", type=float, default=1e-6, help="learning rate, constant")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="bfloat16: autocast")
    parser.add_argument("--vllm", action="store_true", help="vLLM in this process samples, on a GPU")
    parser.add_argument("--defaults", action="store_true", help="leave gradient checkpointing on, as TRL does")
    return parser.parse_args()


def words(vocab):
    """A tokenizer of the words t2, t3, ...; token 0 ends a text, 1 pads. No word may hold the text of these two."""
    ids = {"<end>": 0, "<pad>": 1} | {f"t{i}": i for i in range(2, vocab)}
    t = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="<pad>"))
    t.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<end>", pad_token="<pad>",
        padding_side="left")


def even(completion_ids, **_):
    return [sum(i % 2 == 0 for i in ids) / len(ids) for ids in completion_ids]


def settings(args, out, prompts, new):
    rows = prompts * args.group
    micro = args.micro or rows
    return trl.GRPOConfig(
        output_dir=out,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=rows // micro,
        num_generations=args.group,
        max_completion_length=new,
        max_steps=10**6,
        learning_rate=args.rate,
        lr_scheduler_type="constant",
        beta=args.kl,
        temperature=1.0,
        loss_type="dapo",  # the mean over all tokens of the step
        scale_rewards="group",
        shuffle_dataset=False,
        gradient_checkpointing=args.defaults,
        use_vllm=args.vllm,
        **({"vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3} if args.vllm else {}),
        bf16=args.dtype == "bfloat16",
        use_cpu=args.device == "cpu",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
    )


class Timed(trl.GRPOTrainer):
    """GRPOTrainer with a clock on its two parts."""

    rollout = scored = 0.0

    def _generate(self, *args, **kwargs):
        begin = time.perf_counter()
        out = super()._generate(*args, **kwargs)
        self.rollout += time.perf_counter() - begin
        return out

    def _generate_and_score_completions(self, *args, **kwargs):
        begin = time.perf_counter()
        out = super()._generate_and_score_completions(*args, **kwargs)
        self.scored += time.perf_counter() - begin
        return out


class OnDemand(transformers.TrainerCallback):
    """Waits for a line before every step and answers it afterwards."""

    trainer = None

    def __init__(self, rows, say, wait):
        self.rows, self.say, self.wait = rows, say, wait

    def on_step_begin(self, *_, **__):
        line = sys.stdin.readline().strip()
        if line in ("", "quit"):
            raise SystemExit(0)
        if line != "step":
            raise SystemExit(f"{line!r}: want step or quit")
        self.trainer.rollout = self.trainer.scored = 0.0
        self.begin = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.wait()
        self.seconds = time.perf_counter() - self.begin

    def on_log(self, args, state, control, logs=None, **__):
        if "loss" not in logs:
            return
        t = self.trainer
        names = {"reward": "reward", "kl": "kl", "entropy": "entropy", "norm": "grad_norm", "loss": "loss"}
        self.say(
            did="step", seconds=self.seconds, rollout_seconds=t.rollout, scoring_seconds=t.scored - t.rollout,
            training_seconds=self.seconds - t.scored, tokens=round(float(logs["completions/mean_length"]) * self.rows),
            **{ours: float(logs[theirs]) for ours, theirs in names.items()},
            peak_rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        )  # fmt: skip


def train(args, world, out, say):
    if (args.world / "tokenizer.json").exists():
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.world, padding_side="left")
    else:
        tokenizer = words(json.loads((args.world / "config.json").read_text())["vocab_size"])
    prompts = [tokenizer.decode(ids) for ids in world["prompts"]]
    if tokenizer(text=prompts)["input_ids"] != world["prompts"]:
        raise SystemExit("the prompts' text does not have the prompts' tokens")
    wait = torch.cuda.synchronize if args.device != "cpu" else (lambda: None)
    callback = OnDemand(len(prompts) * args.group, say, wait)
    trainer = Timed(
        model=str(args.world),
        args=settings(args, out, len(prompts), world["new"]),
        reward_funcs=even,
        train_dataset=datasets.Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        callbacks=[callback],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    callback.trainer = trainer
    parameters = sum(p.numel() for p in trainer.model.parameters())
    say(ready=True, torch=torch.__version__, trl=trl.__version__, threads=torch.get_num_threads(),
        parameters=parameters,
        tokens=len(prompts) * args.group * world["new"])  # fmt: skip
    trainer.train()


def main():
    args = parse()
    world = json.loads((args.world / "prompts.json").read_text())
    answers = sys.stdout

    def say(**value):
        print(json.dumps(value), flush=True, file=answers)

    # TRL prints its logs on standard output, which is for the answers.
    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(sys.stderr):
        train(args, world, out, say)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    main()
