"""Records the objective of TRL's GRPOTrainer and RLOOTrainer under the settings of papers, for grpo's tests.

Writes grpo/testdata/recipes-trl.json, for every recipe of posttrain grpo that TRL has:

  rewards     [prompts*group]
  masked      [prompts*group] true if mask_truncated_completions leaves the completion out
  steps[i]    update i+1 on the same rollouts: advantages, loss, and of every completion's tokens logps, old, and grad,
              the derivative of the loss by logps
  reference   [prompts*group][tokens] where KL is in the reward: log-probs of a model with weights 0.9 times as large

The objective is computed in float64, by TRL's own _compute_loss, from log-probs of float32. norm_length is 16 where the
loss is dr_grpo's.

Run (half a minute):

  python scripts/oracle/trl_recipes.py [--out grpo/testdata/recipes-trl.json]
"""

import argparse
import json
import pathlib
import tempfile

import datasets
import torch
from models import significant
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl_grpo import BASE, MODELS, Given, GivenRLOO, config, rollouts
from trl_runs import ROOT, quiet

RECIPES = {
    "rloo": dict(loss_type="rloo", beta=0.05, epsilon_high=0.2),
    "dr-grpo": dict(loss_type="dr_grpo", scale_rewards="none", beta=0.0, epsilon_high=0.2),
    "cispo": dict(loss_type="cispo", beta=0.0, epsilon_high=5.0),
    "gspo": dict(loss_type="grpo", importance_sampling_level="sequence", beta=0.0, epsilon=3e-4, epsilon_high=4e-4),
    "dapo": dict(loss_type="dapo", beta=0.0, mask_truncated_completions=True),
}


def watched(cls, steps):
    """A trainer that keeps what its loss is computed from."""

    class Watched(cls):
        def _get_per_token_logps_and_entropies(self, *args, **kwargs):
            logps, *others = super()._get_per_token_logps_and_entropies(*args, **kwargs)
            logps = logps.double()
            if logps.requires_grad:
                logps.retain_grad()
                self.logps = logps
            return logps, *others

        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            steps.append({"loss": loss.item(), "inputs": inputs, "logps": self.logps})
            return loss

    return Watched


def run_once(recipe):
    options = dict(BASE, **RECIPES[recipe])
    folder = MODELS / "qwen2-newer"
    tok = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    before = {k: p.detach().clone() for k, p in model.named_parameters()}
    prompts, completions, rewards = rollouts(options, tok)
    rloo, seen, kept = options["loss_type"] == "rloo", [], {}
    base = watched(GivenRLOO if rloo else Given, seen)

    class Trainer(base):
        def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
            out = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
            if model is self.ref_model:
                kept["reference"] = out[0]
            elif not out[0].requires_grad:
                kept.setdefault("old", out[0])
            return out

    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(model=model, args=config(options, out), processing_class=tok,
                          train_dataset=datasets.Dataset.from_list(
                              [{"prompt": str(i)} for i in range(options["prompts"])]),
                          reward_funcs=[lambda **_: rewards])
        trainer.given = (prompts, completions)
        if trainer.ref_model is not None:
            trainer.ref_model.float()
            trainer.ref_model.load_state_dict({k: 0.9 * p for k, p in before.items()}, strict=False)
        trainer.train()

    def rows(x, order):
        return [[significant(v, 15) for v in x[k, :len(ids)].tolist()] for k, ids in zip(order, completions)]

    def order_of(inputs):  # RLOOTrainer shuffles the completions
        texts = [tuple(ids) for ids in inputs["completion_ids"].tolist()]
        return [next(k for k, text in enumerate(texts) if text[:len(ids)] == tuple(ids)) for ids in completions]

    steps, straight = [], range(len(completions))
    for s in seen:
        order, advantages = order_of(s["inputs"]), s["inputs"]["advantages"].tolist()
        steps.append({"loss": significant(s["loss"], 15), "logps": rows(s["logps"], order),
                      "grad": rows(s["logps"].grad, order), "old": rows(kept["old"], straight),
                      "advantages": [significant(advantages[k], 15) for k in order]})
    masked = [options["mask_truncated_completions"] and ids[-1] != tok.eos_token_id for ids in completions]
    result = {"rewards": rewards, "masked": masked, "steps": steps}
    if "reference" in kept:
        result["reference"] = rows(kept["reference"], straight)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "grpo" / "testdata" / "recipes-trl.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with quiet():
        all_runs = {name: run_once(name) for name in RECIPES}
    args.out.write_text(json.dumps(all_runs, separators=(",", ":")) + "\n")
    for name, r in all_runs.items():
        print(name, *(s["loss"] for s in r["steps"]))


if __name__ == "__main__":
    main()
