"""What transformers computes with a real model: logits of texts, and greedy continuations of prompts.

  python scripts/models/answers.py --model models/smollm2-135m --data pairs.jsonl.gz OUT
  POSTTRAIN_REAL_MODEL=models/smollm2-135m POSTTRAIN_REAL_ANSWERS=OUT go test ./model ./rollout -v -run TestReal

--data has preference pairs: texts are conversations of a prompt and its chosen answer, prompts the same without the
answer. It takes 20 of different lengths. OUT gets answers.json (token ids) and a file of little-endian float32 numbers
[length, vocabulary] for each text, about 100 MB each. It wants the packages of scripts/oracle/requirements.txt.
"""

import argparse
import gzip
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--length", type=int, default=1024, help="longer texts are cut")
    parser.add_argument("--new", type=int, default=64, help="tokens of a continuation")
    parser.add_argument("out", type=pathlib.Path)
    return parser.parse_args()


def rows(path):
    """A row for each prompt."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as lines:
        found = {row["prompt"]: row for row in map(json.loads, lines)}
    return list(found.values())


def spread(all, count):
    """`count` items, evenly from the shortest to the longest."""
    all = sorted(all, key=len)
    return [all[i * (len(all) - 1) // (count - 1)] for i in range(count)]


def render(tokenizer, row, answer):
    turns = [{"role": "user", "content": row["prompt"]}]
    if answer:
        turns.append({"role": "assistant", "content": row["chosen"]})
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=not answer)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@torch.no_grad()
def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    model.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=0)  # each has all its tokens
    data = rows(args.data)
    texts, prompts = [], []
    for i, ids in enumerate(spread([render(tokenizer, r, True)[: args.length] for r in data], args.count)):
        logits = model(torch.tensor([ids])).logits[0].float().numpy()
        logits.astype("<f4").tofile(args.out / f"{i}.f32")
        texts.append({"ids": ids, "logits": f"{i}.f32"})
    questions = [ids for ids in (render(tokenizer, r, False) for r in data) if len(ids) <= args.length]
    for ids in spread(questions, args.count):
        made = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                              do_sample=False, max_new_tokens=args.new)  # fmt: skip
        prompts.append({"ids": ids, "greedy": made[0, len(ids) :].tolist()})
    (args.out / "answers.json").write_text(json.dumps({"texts": texts, "prompts": prompts}))


if __name__ == "__main__":
    main()
