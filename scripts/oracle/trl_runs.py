"""Records whole training runs of TRL on the tiny models of models.py, for train's tests.

Writes to train/testdata:

  pairs.jsonl             24 conversational preference pairs (prompt, chosen, rejected), the input of every run
  trl-tokens-<model>.json prompt_ids, chosen_ids, rejected_ids of every pair, as TRL's DPOTrainer tokenised them
  trl-<model>-<run>.json  one run: options, steps, final weights
  schedules.json          transformers' learning rates: `steps` steps with peak 1 and `warmup` steps of warm-up

Every run takes the pairs in file order (sequential sampler), float32, eager attention, no dropout, a constant learning
rate without warm-up, AdamW 0.9/0.999/1e-8. A run's file:

  model, trainer, options  what was run: folder under model/testdata, TRL's class, and the settings that matter
  steps[i]                 the trainer's own log of optimiser step i+1, unrounded: loss, grad_norm (before clipping),
                           learning_rate (used in this step), and for preference runs logps/*, rewards/*
  pairs[i]                 preference runs only: for each pair in order, log-prob sums of chosen and rejected under
                           the policy at the step that trained on it, and under the reference (DPO only);
                           for simpo means per token, there and in logps/*, as CPOTrainer has them
  tokens                   orpo: the pairs' ids, in the form of trl-tokens-<model>.json; reward: the ids of both whole
                           texts; its model has the head of model/testdata/reward/<type>.json
  desirable                kto only: of each pair in order, whether its chosen answer is an example with the label true,
                           or its rejected answer one with false
  margins                  reward-margin only: of every pair
  weights                  tensor -> sum, norm and change (norm of the difference from the initial tensor) at the end
  noise                    largest relative difference of each logged number and of each tensor's change when the same
                           run is repeated with fused attention (SDPA): how far float32 alone may lead two correct runs

Run (about a minute):

  python scripts/oracle/trl_runs.py [--out train/testdata] [run ...]
"""

import argparse
import contextlib
import json
import logging
import pathlib
import sys
import tempfile
import warnings

import datasets
import torch
import transformers
import trl
from models import compact, significant
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "model" / "testdata"


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def pair(prompt, chosen, rejected):
    """A prompt is a question or a list of messages; chosen and rejected are one answer each."""
    messages = [user(prompt)] if isinstance(prompt, str) else prompt
    return {"prompt": messages, "chosen": [assistant(chosen)], "rejected": [assistant(rejected)]}


SYSTEM = {"role": "system", "content": "Share only what the task needs."}

PAIRS = [
    pair("Where is the report?", "The report is on the board.", "I will not say."),
    pair("12 + 30?", "42", "It is 420, I think."),
    pair("Tell my landlord that I will pay.", "The rent will be paid on Friday.",
        "She works at the clinic and will pay."),
    pair([SYSTEM, user("Write to the clerk.")], "Please send the report before noon.",
        "My name is Ana, 42 Shore Street."),
    pair("What is the weather?", "Warm and bright.", "Cold."),
    pair("Count the birds.", "One, two, three.",
        "The birds were over the water in the morning, and then they were not."),
    pair([user("42?"), assistant("Yes, 42."), user("And then?")], "Then 420.", "No."),
    pair("Was steht auf der Karte?", "Der Zug nach München.", "¿Dónde?"),
    pair("Take the coat?", "Yes; it will be cold tomorrow.", "Take the coat, the boat, the board and the birds."),
    pair("Thank them for the answer.", "Thank you for the answer!", "The answer was not good."),
    pair("Say it with a sign.", "🙂", "I can not write signs."),
    pair("def send(report, to):", "    return to.receive(report)", "    return 42  # where?"),
    pair([SYSTEM, user("Who paid?"), assistant("The clerk."), user("When?")], "On Friday.",
        "On Friday, from the account 12-30."),
    pair("Is the letter ready?", "It's ready; they'll see it today.", "No, we'd have said."),
    pair("Write the date.", "The date is Friday.", "今日は晴れです。"),
    pair("Where were the children?", "On the shore.", "On the boat, in the clinic, on the board."),
    pair("Send the names.", "I will send the names that the clinic needs.", "All of the names: Ana, Ben, Cem."),
    pair("How cold is it?", "Not cold.", "12 or 30 or 42, what do I know?"),
    pair("Answer in two lines.", "The report.\nThe letter.", "The report, the letter."),
    pair([SYSTEM, user("Call the nurse.")], "I asked the nurse to call.", "The nurse is ill."),
    pair("Give the place.", "The clinic.", "The place is the clinic, and the room is on the left, after the board."),
    pair("Which train?", "The train at eight.", "The train to the shore, where she works."),
    pair("Was it warm?", "It was warm.", "Warm? It was cold!"),
    pair("Then send it.", "It was sent before noon.", "No."),
]

MARGINS = [0.25 * (i % 5) for i in range(len(PAIRS))]

# run: (kind, options), its name beginning with the model folder's. `batch` pairs a microbatch, `accumulate`
# microbatches a step. The rate moves rewards far enough from zero that float32's own noise stays under 1e-3 of every
# logged number.
BASE = dict(learning_rate=3e-3, batch=4, accumulate=1, steps=6, max_grad_norm=1.0, weight_decay=0.0)
RUNS = {
    "qwen2-newer-sigmoid": ("dpo", dict(loss_type="sigmoid", beta=0.1)),
    "qwen2-newer-ipo": ("dpo", dict(loss_type="ipo", beta=0.1)),
    "llama-newer-sigmoid": ("dpo", dict(loss_type="sigmoid", beta=0.1)),
    "llama-newer-ipo": ("dpo", dict(loss_type="ipo", beta=0.1)),
    # The same pairs a step as llama-newer-sigmoid, in two microbatches.
    "llama-newer-accumulate": ("dpo", dict(loss_type="sigmoid", beta=0.1, batch=2, accumulate=2)),
    # No clipping at all: the others are clipped at nearly every step.
    "qwen2-newer-unclipped": ("dpo", dict(loss_type="sigmoid", beta=0.1, max_grad_norm=1e9)),
    # transformers spares biases and norms from weight decay.
    "qwen2-newer-decay": ("dpo", dict(loss_type="sigmoid", beta=0.1, weight_decay=0.5, steps=4)),
    "llama-newer-simpo": ("cpo", dict(loss_type="simpo", beta=2.0, simpo_gamma=1.0, cpo_alpha=0.0)),
    # TRL's NLL is a mean over all chosen tokens of a microbatch; with one pair in each it is the mean over pairs of
    # each pair's mean per token, which does not depend on how a batch is cut.
    "llama-newer-cpo": ("cpo", dict(loss_type="sigmoid", beta=0.1, cpo_alpha=0.2, batch=1, accumulate=4)),
    "llama-newer-cpo-smooth": ("cpo", dict(loss_type="sigmoid", beta=0.1, cpo_alpha=0.0, label_smoothing=0.1, steps=3)),
    "llama-newer-hinge": ("dpo", dict(loss_type="hinge", beta=0.5)),
    "llama-newer-robust": ("dpo", dict(loss_type="robust", beta=0.1, label_smoothing=0.2)),
    # RPO is DPO and the chosen answer's NLL, whose mean TRL takes as in cpo.
    "llama-newer-rpo": (
        "dpo", dict(loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.5], beta=0.1, batch=1, accumulate=4),
    ),
    # TRL's NLL in ORPO covers the prompt, too: here prompts are the beginning-of-text token alone.
    "llama-newer-orpo": ("orpo", dict(beta=0.3, batch=1, accumulate=4)),
    # One answer of each pair, labelled; TRL's microbatch, over which it takes the mean of the KL term, is the batch.
    "llama-newer-kto": ("kto", dict(beta=0.3, desirable_weight=1.0, undesirable_weight=1.5)),
    # RewardTrainer: without margins, and with margins and centred rewards in two microbatches.
    "llama-newer-reward": ("reward", dict()),
    "qwen2-newer-reward-margin": (
        "reward", dict(center_rewards_coefficient=0.02, weight_decay=0.1, batch=2, accumulate=2),
    ),
    # Completion-only loss; then all tokens, with the mean taken over the tokens of both microbatches.
    "qwen2-newer-sft": ("sft", dict(completion_only_loss=True, steps=4)),
    "llama-newer-sft-all": ("sft", dict(completion_only_loss=False, steps=4, batch=2, accumulate=2)),
}

LOGGED = (
    "loss", "grad_norm", "learning_rate", "logps/chosen", "logps/rejected", "rewards/chosen", "rewards/rejected",
    "rewards/accuracies", "rewards/margins", "nll_loss", "kl", "accuracy", "margin", "min_reward", "mean_reward",
    "max_reward",
)  # fmt: skip


def settings(config, options, folder):
    """TRL's options class filled in, everything that could add chance or lower precision switched off."""
    o = dict(options)
    return config(
        output_dir=folder,
        per_device_train_batch_size=o.pop("batch"),
        gradient_accumulation_steps=o.pop("accumulate"),
        max_steps=o.pop("steps"),
        train_sampling_strategy="sequential",
        lr_scheduler_type="constant",
        warmup_steps=0,
        optim="adamw_torch",
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        logging_strategy="steps",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        max_length=256,
        seed=1,
        **o,
    )


def trainer_for(kind, options, model, tok, out, folder, ref):
    data = datasets.Dataset.from_list(PAIRS)
    if kind == "dpo":
        args = settings(DPOConfig, options, out)
        return DPOTrainer(model=model, ref_model=ref, args=args, train_dataset=data, processing_class=tok)
    if kind == "cpo":
        from trl.experimental.cpo import CPOConfig, CPOTrainer

        return CPOTrainer(model=model, args=settings(CPOConfig, options, out), train_dataset=data, processing_class=tok)
    if kind == "orpo":
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer

        texts = [{"prompt": "", **{s: p["prompt"][-1]["content"] + " " + p[s][0]["content"]
                                   for s in ("chosen", "rejected")}} for p in PAIRS]
        data, args = datasets.Dataset.from_list(texts), settings(ORPOConfig, options, out)
        return ORPOTrainer(model=model, args=args, train_dataset=data, processing_class=tok)
    if kind == "kto":
        from trl import KTOConfig, KTOTrainer

        data, args = datasets.Dataset.from_list(unpaired()), settings(KTOConfig, options, out)
        return KTOTrainer(model=model, ref_model=ref, args=args, train_dataset=data, processing_class=tok)
    if kind == "reward":
        if "center_rewards_coefficient" in options:
            data = data.add_column("margin", MARGINS)
        return RewardTrainer(model=model, args=settings(RewardConfig, options, out), train_dataset=data,
            processing_class=tok)
    data = data.rename_column("chosen", "completion").remove_columns("rejected")
    return SFTTrainer(model=model, args=settings(SFTConfig, options, out), train_dataset=data, processing_class=tok)


def desirable(i):
    """Two of three examples of kto are the chosen answers of their pairs."""
    return i % 3 != 1


def unpaired():
    """One labelled answer of each pair."""
    return [
        {"prompt": p["prompt"], "completion": p["chosen" if desirable(i) else "rejected"], "label": desirable(i)}
        for i, p in enumerate(PAIRS)
    ]


def load_model(folder, attention):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32)


def load_reward_model(folder, attention):
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, attn_implementation=attention, dtype=torch.float32, num_labels=1)
    fixture = MODELS / "reward" / f"{folder.name.split('-')[0]}.json"
    with torch.no_grad():
        model.score.weight.copy_(torch.tensor([json.loads(fixture.read_text())["score"]]))
    return model


def record_sums(model):
    """Catches the per-row sums of completion log-probs of every forward of a DPO model."""
    sums, forward = [], model.forward

    def wrapped(*args, **kwargs):
        out = forward(*args, **kwargs)
        if getattr(out, "log_probs", None) is not None:
            sums.append(out.log_probs.detach().double().sum(1).tolist())
        return out

    model.forward = wrapped
    return sums


def pair_rows(policy, reference):
    """Forwards of [chosen..., rejected...] rows to one record a pair, in data order."""
    rows = []
    for p, r in zip(policy, reference):
        n = len(p) // 2
        rows += [
            {"chosen_logps": p[i], "rejected_logps": p[n + i], "ref_chosen_logps": r[i], "ref_rejected_logps": r[n + i]}
            for i in range(n)
        ]
    return [{k: significant(v, 9) for k, v in row.items()} for row in rows]


def cpo_pairs(trainer):
    """Catches what CPOTrainer's loss is given: sums, or means per token for simpo."""
    rows, inner = [], trainer.cpo_loss

    def wrapped(chosen, rejected):
        for c, r in zip(chosen.tolist(), rejected.tolist()):
            rows.append({"chosen_logps": significant(c, 9), "rejected_logps": significant(r, 9)})
        return inner(chosen, rejected)

    trainer.cpo_loss = wrapped
    return rows


def weight_summary(before, model):
    """sum, norm and distance travelled of every tensor, in float64."""
    out = {}
    for name, p in model.named_parameters():
        w = p.detach().double()
        change = (w - before[name].double()).norm().item()
        out[name] = {k: significant(v, 9) for k,
            v in (("sum", w.sum().item()), ("norm", w.norm().item()), ("change", change))}
    return out


def run_once(name, attention):
    kind, changes = RUNS[name]
    folder = MODELS / "-".join(name.split("-")[:2])
    options = dict(BASE, **changes)
    tok = AutoTokenizer.from_pretrained(folder)
    model = (load_reward_model if kind == "reward" else load_model)(folder, attention)
    ref = load_model(folder, attention) if kind in ("dpo", "kto") else None
    before = {k: p.detach().clone() for k, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as out:
        trainer = trainer_for(kind, options, model, tok, out, folder, ref)
        rows = cpo_pairs(trainer) if kind == "cpo" else None
        policy, reference = (record_sums(m) for m in (model, ref)) if kind == "dpo" else ((), ())
        trainer.train()
    steps = [{k: log[k] for k in LOGGED if k in log} for log in trainer.state.log_history if "loss" in log]
    assert len(steps) == options["steps"]
    if kind == "dpo":
        rows = pair_rows(policy, reference)
        assert len(rows) == options["steps"] * options["batch"] * options["accumulate"]
    result = {
        "made_by": {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__},
        "model": folder.name,
        "trainer": type(trainer).__name__,
        "options": options,
        "steps": steps,
    }
    if rows is not None:
        result["pairs"] = rows
    if kind == "orpo":
        result["tokens"] = [orpo_tokens(row) for row in trainer.train_dataset]
    if kind == "kto":
        result["desirable"] = [row["label"] for row in trainer.train_dataset]
    if kind == "reward":
        result["tokens"] = [{k: row[k] for k in ("chosen_ids", "rejected_ids")} for row in trainer.train_dataset]
        if "margin" in trainer.train_dataset.column_names:
            result["margins"] = MARGINS
    result["weights"] = weight_summary(before, model)
    if kind != "reward":
        check_tokens(kind, trainer.train_dataset, tokens_of(folder))
    return result


def relative(a, b):
    return abs(a - b) / max(abs(a), abs(b), 1e-9)


def noise(one, two):
    """Largest relative difference of each logged number, and of the distance any tensor travelled."""
    out = {k: max(relative(a[k], b[k]) for a, b in zip(one["steps"], two["steps"])) for k in one["steps"][0]}
    out["weights"] = max(relative(w["change"], two["weights"][k]["change"]) for k, w in one["weights"].items())
    return {k: significant(v, 2) for k, v in out.items()}


def orpo_tokens(row):
    """A pair's ids, whose prompt is one token."""
    prompt = row["chosen_input_ids"][:1]
    assert row["rejected_input_ids"][:1] == prompt and row["chosen_labels"] == [-100] + row["chosen_input_ids"][1:]
    return {"prompt_ids": prompt, **{f"{s}_ids": row[f"{s}_input_ids"][1:] for s in ("chosen", "rejected")}}


_tokens = {}


def tokens_of(folder):
    """Every pair's ids as DPOTrainer makes them."""
    if folder.name not in _tokens:
        model, tok = load_model(folder, "eager"), AutoTokenizer.from_pretrained(folder)
        with tempfile.TemporaryDirectory() as out:
            trainer = trainer_for("dpo", dict(BASE), model, tok, out, folder, load_model(folder, "eager"))
        keys = ("prompt_ids", "chosen_ids", "rejected_ids")
        _tokens[folder.name] = [{k: row[k] for k in keys} for row in trainer.train_dataset]
    return _tokens[folder.name]


def check_tokens(kind, rows, want):
    """The other trainers tokenise these pairs as DPOTrainer does, so one file of ids serves all runs."""
    for row, ids in zip(rows, want):
        whole = {s: ids["prompt_ids"] + ids[s + "_ids"] for s in ("chosen", "rejected")}
        masked = {s: [-100] * len(ids["prompt_ids"]) + ids[s + "_ids"] for s in ("chosen", "rejected")}
        if kind == "cpo":
            for s in whole:
                assert row[s + "_input_ids"] == whole[s] and row[s + "_labels"] == masked[s], (s, row)
        if kind == "kto":
            answer = ids["chosen_ids" if row["label"] else "rejected_ids"]
            assert row["prompt_ids"] == ids["prompt_ids"] and row["completion_ids"] == answer, row
        if kind == "sft":
            assert row["input_ids"] == whole["chosen"], row
            assert row["labels"] in (whole["chosen"], masked["chosen"]), row


def schedules(warmup=3, steps=10):
    """The rate that each optimiser step uses; the first step of a warm-up has rate 0."""
    out = {"warmup": warmup, "steps": steps}
    for kind in ("constant_with_warmup", "linear", "cosine"):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        schedule = transformers.get_scheduler(kind, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
        out[kind] = []
        for _ in range(steps):
            out[kind].append(significant(schedule.get_last_lr()[0], 9))
            optimizer.step()
            schedule.step()
    return out


@contextlib.contextmanager
def quiet():
    """TRL and transformers talk a great deal on both streams."""
    with open("/dev/null", "w") as null, contextlib.redirect_stdout(null):
        yield


def write(path, value):
    path.write_text(compact(value))


def make(out, name):
    with quiet():
        result = run_once(name, "eager")
        result["noise"] = noise(result, run_once(name, "sdpa"))
    write(out / f"trl-{name}.json", result)
    losses = " ".join(f"{s['loss']:.4f}" for s in result["steps"])
    norms = " ".join(f"{s['grad_norm']:.2f}" for s in result["steps"])
    print(f"{name:24} loss {losses}; grad_norm {norms}; noise {max(result['noise'].values()):.1g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "train" / "testdata")
    parser.add_argument("run", nargs="*", default=list(RUNS), help=", ".join(RUNS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "pairs.jsonl").write_text("".join(json.dumps(p, ensure_ascii=False) + "\n" for p in PAIRS))
    write(args.out / "schedules.json", schedules())
    for name in args.run:
        if name not in RUNS:
            sys.exit(f"{name}: want one of {', '.join(RUNS)}")
        make(args.out, name)
    for model, rows in _tokens.items():
        write(args.out / f"trl-tokens-{model}.json", rows)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    main()
