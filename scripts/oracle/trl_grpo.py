"""Records updates of TRL's GRPOTrainer and RLOOTrainer on given completions and rewards, for grpo's tests.

Writes grpo/testdata/trl-<run>.json:

  model, options  folder under model/testdata, and the settings that matter
  prompts         token ids; every one has `group` completions
  completions     [prompts*group] token ids
  rewards         [prompts*group]
  others          [prompts*group] a second reward with weight 0.5, where each is normalised by itself
  masked          [prompts*group] true if mask_truncated_completions leaves the completion out
  steps[i]        the trainer's own log of update i+1 on the same rollouts: loss, grad_norm (before clipping), kl,
                  clip_ratio/*, and weight_change, the distance that all weights together have travelled so far

Prompts and completions are random tokens, some of them repeated. float32, eager attention, constant learning rate,
AdamW 0.9/0.999/1e-8 without weight decay, KL not weighted with the ratio (use_bias_correction_kl off). The learning
rate is so high that ratios are clipped from the second update on.

Run (half a minute):

  python scripts/oracle/trl_grpo.py [--out grpo/testdata] [run ...]
"""

import argparse
import pathlib
import random
import tempfile

import datasets
import torch
import transformers
import trl
from models import compact, significant
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl_runs import MODELS, ROOT, quiet

BASE = dict(learning_rate=1e-3, prompts=3, group=4, updates=3, beta=0.05, epsilon=0.2, epsilon_high=0.28,
    max_grad_norm=1.0,
            scale_rewards="group", importance_sampling_level="token", max_completion_length=16,
            mask_truncated_completions=False)
RUNS = {
    "qwen2-newer-token-mean": dict(loss_type="bnpo"),
    "llama-newer-seq-mean": dict(loss_type="grpo", importance_sampling_level="sequence"),
    "qwen3-newer-norm": dict(loss_type="dr_grpo", scale_rewards="none", beta=0.0),
    "mistral-newer-masked": dict(loss_type="bnpo", mask_truncated_completions=True, epsilon_high=0.2),
    # the bound of the ratio itself, and none below
    "qwen2-newer-cispo": dict(loss_type="cispo", epsilon_high=1.28),
    "qwen3-newer-each": dict(loss_type="bnpo", multi_objective_aggregation="normalize_then_sum"),
    # the ratio of whole answers; trl_recipes.py has KL in the reward
    "llama-newer-rloo": dict(loss_type="rloo", scale_rewards="none", importance_sampling_level="answer", beta=0.0),
}
LOGGED = ("loss", "grad_norm", "kl", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean")


def rollouts(options, tok, seed=3):
    """Random prompts, completions that mostly end with EOS, and rewards; the last group's rewards are equal."""
    r = random.Random(seed)
    words = [i for i in range(len(tok)) if i not in tok.all_special_ids]
    prompts = [[r.choice(words) for _ in range(r.randint(3, 9))] for _ in range(options["prompts"])]
    completions, rewards = [], []
    for i in range(options["prompts"] * options["group"]):
        n = r.randint(1, options["max_completion_length"] - 1)
        ids = [r.choice(words[:20]) for _ in range(n)]
        completions.append(ids if i % 5 == 1 else ids + [tok.eos_token_id])
        rewards.append(0.5 if i // options["group"] == options["prompts"] - 1 else r.randint(-4, 4) / 4)
    return prompts, completions, rewards


class Given(GRPOTrainer):
    """A trainer with given completions instead of sampled ones."""

    def _generate(self, prompts):
        group = self.args.num_generations
        ids = [p for p in self.given[0] for _ in range(group)]
        return ids, self.given[1], None, ["-"] * len(ids), None, {}, None, None


class GivenRLOO(RLOOTrainer):
    """The same of the other trainer."""

    def _generate(self, prompts):
        ids = [p for p in self.given[0] for _ in range(self.args.num_generations)]
        return ids, self.given[1], ["-"] * len(ids)


def config(options, folder):
    rloo, own = options["loss_type"] == "rloo", {}
    if not rloo:
        own = dict(loss_type=options["loss_type"], scale_rewards=options["scale_rewards"],
                   importance_sampling_level=options["importance_sampling_level"], use_bias_correction_kl=False,
                   multi_objective_aggregation=options.get("multi_objective_aggregation", "sum_then_normalize"))
    if "multi_objective_aggregation" in options:
        own["reward_weights"] = [1.0, 0.5]
    return (RLOOConfig if rloo else GRPOConfig)(
        output_dir=folder, learning_rate=options["learning_rate"], lr_scheduler_type="constant", warmup_steps=0,
        weight_decay=0.0,
        per_device_train_batch_size=options["prompts"] * options["group"], gradient_accumulation_steps=1,
        num_generations=options["group"],
        steps_per_generation=1, num_iterations=options["updates"], max_steps=options["updates"], beta=options["beta"],
        epsilon=options["epsilon"], epsilon_high=options["epsilon_high"],
        max_completion_length=options["max_completion_length"],
        mask_truncated_completions=options["mask_truncated_completions"],
        max_grad_norm=options["max_grad_norm"], temperature=1.0, shuffle_dataset=False, disable_dropout=True,
        bf16=False, fp16=False,
        gradient_checkpointing=False, use_cpu=True, logging_steps=1, save_strategy="no", report_to=[],
        disable_tqdm=True, seed=0,
        optim="adamw_torch", **own,
    )


def distance(before, model):
    return sum((p.detach().double() - before[k].double()).square().sum().item() for k,
        p in model.named_parameters()) ** 0.5


def run_once(name):
    folder, options = MODELS / "-".join(name.split("-")[:2]), dict(BASE, **RUNS[name])
    tok = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    before = {k: p.detach().clone() for k, p in model.named_parameters()}
    prompts, completions, rewards = rollouts(options, tok)
    others = [(7 * i) % 5 * 10.0 for i in range(len(rewards))]
    several = "multi_objective_aggregation" in options
    changes = []

    class Watch(transformers.TrainerCallback):
        def on_step_end(self, *args, **kwargs):
            changes.append(distance(before, model))

    with tempfile.TemporaryDirectory() as out:
        trainer = (GivenRLOO if options["loss_type"] == "rloo" else Given)(model=model, args=config(options, out), processing_class=tok, callbacks=[Watch()],
                        train_dataset=datasets.Dataset.from_list(
                            [{"prompt": str(i)} for i in range(options["prompts"])]),
                        reward_funcs=[lambda **_: rewards] + [lambda **_: others] * several)
        trainer.given = (prompts, completions)
        if trainer.ref_model is not None:  # the same weights in float32
            trainer.ref_model.load_state_dict(before, strict=False)  # a tied head is stored once
            trainer.ref_model.float()
        trainer.train()
    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert len(logs) == options["updates"] == len(changes)
    steps = [{k: significant(log[k], 9) for k in LOGGED if k in log} | {"weight_change": significant(c, 9)} for log,
        c in zip(logs, changes)]
    masked = [options["mask_truncated_completions"] and ids[-1] != tok.eos_token_id for ids in completions]
    return {"made_by": {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__},
            "model": folder.name, "options": options, "prompts": prompts, "completions": completions,
            "rewards": rewards, **({"others": others} if several else {}),
            "masked": masked, "steps": steps}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "grpo" / "testdata")
    parser.add_argument("run", nargs="*", default=list(RUNS), help=", ".join(RUNS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.run:
        with quiet():
            result = run_once(name)
        (args.out / f"trl-{name}.json").write_text(compact(result))
        for s in result["steps"]:
            print(name, *(f"{k} {v:.6g}" for k, v in s.items()))


if __name__ == "__main__":
    main()
