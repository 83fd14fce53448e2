"""What transformers computes with a real model: log-probs and logits of texts, and greedy continuations of prompts.

  python scripts/models/answers.py --model models/smollm2-135m --data pairs.jsonl.gz model/testdata/smollm2/answers.json

--data has preference pairs: texts are conversations of a prompt and its chosen answer, prompts the same without the
answer, of different lengths. The tests take a file of more, too: --texts 20 --length 1024 --prompts 20 --new 64.

A text has the log-prob of each of its tokens after the first. At some positions, the last among them, it has the logits
of the ids in "sample", the largest logits, and the means of the logits over equal parts of the vocabulary. A
continuation has for each token the logit's margin before the second best. It wants the packages of
scripts/oracle/requirements.txt.
"""

import argparse
import gzip
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

POSITIONS, SAMPLE, TOP, PARTS = 6, 64, 5, 64


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--texts", type=int, default=6)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--length", type=int, default=640, help="longer texts are cut")
    parser.add_argument("--new", type=int, default=32, help="tokens of a continuation")
    parser.add_argument("out", type=pathlib.Path)
    return parser.parse_args()


def rows(path):
    """A row for each prompt."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as lines:
        found = {row["prompt"]: row for row in map(json.loads, lines)}
    return list(found.values())


def spread(all, count):
    """`count` items, evenly from the first to the last."""
    return [all[i * (len(all) - 1) // (count - 1)] for i in range(count)]


def render(tokenizer, row, answer):
    turns = [{"role": "user", "content": row["prompt"]}]
    if answer:
        turns.append({"role": "assistant", "content": row["chosen"]})
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=not answer)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def short(numbers):
    return [round(x, 5) for x in numbers.tolist()]


def measure(model, ids, sample):
    logits = model(torch.tensor([ids])).logits[0].double()  # [length, vocabulary]
    logps = logits.log_softmax(-1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    at = []
    for position in spread(range(len(ids)), POSITIONS + 1)[1:]:  # the first token is the same in all texts
        row = logits[position]
        top = row.topk(TOP)
        at.append({"position": position, "logits": short(row[sample]), "top": top.indices.tolist(),
                   "top_logits": short(top.values), "means": short(row.view(PARTS, -1).mean(1))})  # fmt: skip
    return {"ids": ids, "logps": short(logps), "at": at}


def answer(model, ids, new):
    made = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                          do_sample=False, max_new_tokens=new, return_dict_in_generate=True,
                          output_logits=True)  # fmt: skip
    best = torch.cat(made.logits).topk(2).values  # [new, 2]
    return {"ids": ids, "greedy": made.sequences[0, len(ids) :].tolist(), "margins": short(best[:, 0] - best[:, 1])}


@torch.no_grad()
def main():
    args = parse()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    model.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=0)  # each has all its tokens
    data = rows(args.data)
    texts = sorted((render(tokenizer, r, True)[: args.length] for r in data), key=len)
    prompts = sorted((ids for ids in (render(tokenizer, r, False) for r in data) if len(ids) <= args.length), key=len)
    sample = torch.randint(model.config.vocab_size, [SAMPLE], generator=torch.Generator().manual_seed(0))
    found = {"sample": sample.tolist(), "texts": [measure(model, ids, sample) for ids in spread(texts, args.texts)],
             "prompts": [answer(model, ids, args.new) for ids in spread(prompts, args.prompts)]}  # fmt: skip
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [f'"{k}":[\n' + ",\n".join(json.dumps(x, separators=(",", ":")) for x in v) + "]" for k, v in found.items()]
    args.out.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
