"""Compares llama.cpp with the proof of posttrain model export, and prints a table. Exit code 1: token ids differ.

  pip install xllamacpp
  python scripts/gguf/llama_cpp.py model.gguf

It reads model.proof.json beside the file: the folder's token ids of conversations and plain texts, and its greedy
answers with their log-probs. llama.cpp renders the conversations by the file's own template, tokenizes all texts and
answers the same prompts. Its cache and attention are in float32.
"""

import json
import os
import pathlib
import sys
import urllib.request

import xllamacpp


def serve(path):
    p = xllamacpp.CommonParams()
    p.model.path, p.n_parallel, p.n_ctx, p.use_jinja = str(path), 1, 2048, True
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = len(os.sched_getaffinity(0))
    p.n_ctx_checkpoints = p.cache_ram_mib = 0
    return xllamacpp.Server(p)


def ask(server, path, body):
    request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})  # fmt: skip
    return json.load(urllib.request.urlopen(request))


def tokens(server, proof):
    """Texts with other ids, and conversations that are rendered otherwise."""
    other, rendered = [], []
    for text in proof["texts"]:
        plain = not text.get("question")
        body = {"content": text["text"], "add_special": plain, "parse_special": True}
        ids = ask(server, "/tokenize", body)["tokens"]
        if ids != (text["ids"] or []):
            other.append((text["text"], ids, text["ids"]))
        if not plain:
            turns = {"messages": [{"role": "user", "content": text["question"]}]}
            made = ask(server, "/apply-template", turns)["prompt"]
            if made not in (text["text"], text["text"].removeprefix("<s>")):
                rendered.append((made, text["text"]))
    return other, rendered


def answers(server, proof):
    """Answers that are equal, tokens before the first that differs, and the differences of their log-probs."""
    equal, same, gaps = 0, 0, []
    for answer in proof["answers"]:
        body = {"prompt": answer["prompt"], "n_predict": len(answer["tokens"]), "temperature": 0.0, "logprobs": 2,
                "cache_prompt": False}  # fmt: skip
        choice = server.handle_completions(body)["choices"][0]
        drawn = choice["logprobs"]["content"]  # it leaves out tokens within a character
        ids, want = [t["id"] for t in drawn], answer["tokens"]
        n = next((i for i, (a, b) in enumerate(zip(ids, want)) if a != b), min(len(ids), len(want)))
        whole = choice["text"] == answer["text"]
        equal += whole
        same += len(want) if whole else n
        gaps += [abs(a["logprob"] - b) for a, b in zip(drawn[:n], answer["logps"])]
        if not whole and n < len(ids) and n < len(want):
            best = ", ".join(f"{t['token']!r} {t['logprob']:.5f}" for t in drawn[n]["top_logprobs"])
            print(f"  token {n} differs: llama.cpp has {best}, the folder {want[n]} {answer['logps'][n]:.5f}")
    return equal, same, gaps


def main():
    path = pathlib.Path(sys.argv[1])
    proof = json.loads(path.with_name(path.name.removesuffix(".gguf") + ".proof.json").read_text())
    server = serve(path)
    other, rendered = tokens(server, proof)
    print(f"{path.name} ({proof['type']}), llama.cpp {xllamacpp.__version__}")
    print(f"token ids      equal in {len(proof['texts']) - len(other)} of {len(proof['texts'])} texts")
    for text, found, want in other:
        print(f"  {text!r}: llama.cpp {found}, the folder {want}")
    asked = sum(bool(t.get("question")) for t in proof["texts"])
    print(f"chat template  equal in {asked - len(rendered)} of {asked} conversations")
    for found, want in rendered:
        print(f"  llama.cpp {found!r}, the folder {want!r}")
    equal, same, gaps = answers(server, proof)
    count = sum(len(a["tokens"]) for a in proof["answers"] or [])
    print(f"greedy answers {equal} of {len(proof['answers'] or [])} equal; {same} of {count} tokens before the first "
          "that differs")  # fmt: skip
    if gaps:
        mean = sum(gaps) / len(gaps)
        print(f"log-probs      of these tokens differ by at most {max(gaps):.3g}, on average {mean:.3g}")
    sys.stdout.flush()
    os._exit(1 if other else 0)  # its threads would not end


if __name__ == "__main__":
    main()
