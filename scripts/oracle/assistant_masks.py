"""Makes batch/testdata/assistant-masks.json: the tokens that TRL's assistant_only_loss trains.

SFTTrainer takes them from transformers: apply_chat_template(return_assistant_tokens_mask=True) with a chat template
that has {% generation %} around what the model writes. So does this script, for two tokenizers of model/testdata.

Run: python scripts/oracle/assistant_masks.py [--out batch/testdata/assistant-masks.json]
"""

import argparse
import json
import pathlib

from transformers import AutoTokenizer

TEMPLATES = {
    "qwen2-newer": """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}\
{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>\\n' }}{% endgeneration %}\
{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "llama-newer": """{{ bos_token }}{% for m in messages %}\
{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}\
{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|eot_id|>' }}{% endgeneration %}\
{% else %}{{ m.content + '<|eot_id|>' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
}


def talk(*contents, system=None):
    messages = [{"role": "system", "content": system}] if system else []
    for i, content in enumerate(contents):
        messages.append({"role": ("user", "assistant")[i % 2], "content": content})
    return messages


CONVERSATIONS = [
    talk("What fits here?", "A word."),
    talk("1 + 1?", "2", "And then?", "3, I think.", "Why?", "It is one more."),
    talk("naïve?", "Žižek 東京 🙂🙃", "\nspaces  ", "two\n\nlines", system="Be brief."),
    talk("Same", "Same", "Same", "Same"),
]


def case(folder, root, messages):
    tokenizer = AutoTokenizer.from_pretrained(root / "model" / "testdata" / folder)
    out = tokenizer.apply_chat_template(messages, chat_template=TEMPLATES[folder], tokenize=True, return_dict=True,
                                        return_assistant_tokens_mask=True)
    return {"folder": folder, "messages": messages, "ids": out["input_ids"], "mask": out["assistant_masks"]}


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=root / "batch" / "testdata" / "assistant-masks.json", type=pathlib.Path)
    out = parser.parse_args().out
    cases = [case(folder, root, messages) for folder in TEMPLATES for messages in CONVERSATIONS]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"templates": TEMPLATES, "cases": cases}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
