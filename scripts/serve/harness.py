"""Runs EleutherAI's lm-evaluation-harness on a model folder twice: with transformers (its model hf), and with the
folder served by `posttrain serve` (its model local-completions). Prints both tables and the largest difference of a
log-likelihood; fails above 1e-3, or if a greedy flag, a generated text or a result differs.

    pip install "lm_eval[api,hf]==0.4.13"
    posttrain serve --model internal/embedded/model --name tiny --addr 127.0.0.1:8080
    python scripts/serve/harness.py internal/embedded/model http://127.0.0.1:8080/v1/completions \
        --write internal/serve/testdata/harness.json

--write keeps the requests that the harness sent, with transformers' numbers, for the test of internal/serve. The two
tasks are its own, so that nothing is downloaded: questions with several choices, and answers up to a stop text.
"""

import argparse
import json
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import lm_eval
import requests
from lm_eval.tasks import TaskManager

CHOICES = [
    ("Email the shop to return a brown helmet.", ["It is about a brown helmet.", "I have severe colitis."], 0),
    ("Book a table for dinner on May 19.", ["I have a new phone.", "The day is May 19.", "It is June 2."], 1),
    ("Tell the landlord that the heating is broken.", ["My salary is $4,100.", "The heating is broken."], 1),
    ("Ask the doctor for an appointment: a rash.", ["The patient has a rash.", "I like brown helmets."], 0),
]
FACTS = "Email the shop support to return a product.\n- I have severe colitis\n- it is about a brown helmet\n"
THINK = "Think about what fits, then answer."
TASKS = {
    "posttrain_choice": dict(
        output_type="multiple_choice", doc_to_text="{{question}}\nAnswer:", doc_to_choice="{{choices}}",
        doc_to_target="answer", metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}]),
    "posttrain_answer": dict(
        output_type="generate_until", doc_to_text="{{question}}", doc_to_target="{{answer}}",
        generation_kwargs={"until": ["</answer>", "the day"], "max_gen_toks": 40, "do_sample": False},
        metric_list=[{"metric": "exact_match", "regexes_to_ignore": ["<think>.*"]}]),
}
ROWS = {
    "posttrain_choice": [dict(question=q, choices=c, answer=a) for q, c, a in CHOICES],
    "posttrain_answer": [dict(question=q, answer="") for q in
                         (FACTS + THINK, "eCommerce. " + FACTS + "- the day is May 19\n" + THINK, "Hello")],
}


def task_files(folder):
    """Writes the task files with their rows and gives their names."""
    for name, task in TASKS.items():
        rows = os.path.join(folder, name + ".jsonl")
        with open(rows, "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in ROWS[name])
        with open(os.path.join(folder, name + ".yaml"), "w") as f:  # JSON is YAML
            json.dump(dict(task=name, dataset_path="json", test_split="test",
                           dataset_kwargs={"data_files": {"test": rows}}, **task), f)
    return list(TASKS)


def run(folder, chat, kind, **args):
    out = lm_eval.simple_evaluate(model=kind, model_args=args, tasks=task_files(folder), log_samples=True,
                                  task_manager=TaskManager(include_path=folder), apply_chat_template=chat,
                                  bootstrap_iters=0)
    print(lm_eval.utils.make_table(out))
    return out


def answers(out):
    """What the model gave to each request: (log-likelihood, is it greedy) or a text."""
    return [(name, s["doc_id"], r[0] if isinstance(r[0], str) else (float(r[0][0]), bool(r[0][1])))
            for name in TASKS for s in sorted(out["samples"][name], key=lambda s: s["doc_id"]) for r in s["resps"]]


def compare(mine, theirs):
    worst = 0.0
    for a, b in zip(answers(mine), answers(theirs), strict=True):
        if isinstance(a[2], str) or a[2][1] != b[2][1]:
            assert a == b, (a, b)
        else:
            worst = max(worst, abs(a[2][0] - b[2][0]))
    for name in TASKS:
        a, b = (({k: v for k, v in out["results"][name].items() if "stderr" not in k}) for out in (mine, theirs))
        assert a == b, (a, b)
    assert worst < 1e-3, worst
    return worst


def record(sent):
    """Keeps the bodies of all requests."""
    post = requests.post

    def keep(url, json=None, **kwargs):
        sent.append(json)
        return post(url, json=json, **kwargs)

    requests.post = keep


def tokens(tokenizer, request):
    context, rest = request[:2]
    n = len(context) - len(context.rstrip())  # as the harness moves spaces
    if n:
        context, rest = context[:-n], context[-n:] + rest
    whole = tokenizer.encode(context + rest)
    return whole, len(tokenizer.encode(context))


def expectations(hf, sent, tokenizer):
    """Gives each request the numbers of transformers."""
    known, texts = {}, {}
    for name in TASKS:
        for s in hf["samples"][name]:
            for request, r in zip(s["arguments"], s["resps"], strict=True):
                if isinstance(r[0], str):
                    texts[tuple(tokenizer.encode(request[0]))] = r[0]
                else:
                    ids, context = tokens(tokenizer, request)
                    known[tuple(ids)] = dict(context=context, logp=round(float(r[0][0]), 5), greedy=bool(r[0][1]))
    ids = lambda p: tuple(tokenizer.encode(p) if isinstance(p, str) else p)
    out = []
    for body in sent:
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        if "echo" in body:
            out.append(dict(body=body, scores=[known[ids(p)] for p in prompts]))
        else:
            out.append(dict(body=body, texts=[texts[ids(p)] for p in prompts]))
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="the folder")
    p.add_argument("url", help="where it is served, with /v1/completions")
    p.add_argument("--name", default="tiny", help="the model's name on the server")
    p.add_argument("--write", help="file of the requests and numbers")
    o = p.parse_args()
    kept = []
    with tempfile.TemporaryDirectory() as folder:
        for chat in (False, True):
            hf = run(folder, chat, "hf", pretrained=o.model, dtype="float32", device="cpu")
            for form in (dict(), dict(batch_size=4), dict(num_concurrent=3), dict(tokenized_requests=False)):
                if chat and form.get("tokenized_requests") is False:
                    continue  # the harness then sends conversations to the other endpoint
                sent, post = [], requests.post
                record(sent)
                api = run(folder, chat, "local-completions", model=o.name, tokenizer=o.model, base_url=o.url,
                          tokenizer_backend="huggingface", max_length=512, **form)
                requests.post = post
                print(f"chat {chat}, {form}: log-likelihoods differ by at most {compare(api, hf):.1e}\n")
                kept += expectations(hf, sent, lm_eval.models.huggingface.transformers.AutoTokenizer.from_pretrained(o.model))
    if o.write:
        with open(o.write, "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(k) for k in kept) + "\n]\n")


if __name__ == "__main__":
    main()
