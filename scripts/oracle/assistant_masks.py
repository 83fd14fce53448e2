"""Makes internal/batch/testdata/assistant-masks.json: the tokens that TRL's assistant_only_loss trains.

SFTTrainer takes them from transformers: apply_chat_template(return_assistant_tokens_mask=True) with a chat template
that has {% generation %} around what the model writes. So does this script, for two tokenizers of model/testdata, and
for rows with tools, as texts in which the order of keys is the template's.

Run: python scripts/oracle/assistant_masks.py [--out internal/batch/testdata/assistant-masks.json]
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


TOOL_TEMPLATE = """{% if tools %}{{ '<|im_start|>system\\n' }}{% for t in tools %}{{ t | tojson }}{{ '\\n' }}\
{{ t.function.name }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}\
{% for m in messages %}{{ '<|im_start|>' + m.role + (' ' + m.name if m.name else '') + '\\n' }}\
{% if m.role == 'assistant' %}{% generation %}{% if m.content is not none %}{{ m.content }}{% endif %}\
{% for c in m.tool_calls or [] %}{{ '<call>' + (c | tojson) + '</call>' }}{% endfor %}\
{{ '<|im_end|>\\n' }}{% endgeneration %}{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

CLOCK = """{"type": "function", "function": {"name": "clock", "description": "tells the time \\u00e9 <now>",
 "parameters": {"type": "object", "properties": {"zone": {"type": "string"}, "at": {"type": "number", "default": 1.5}},
 "required": ["zone"]}}}"""

ROWS = [
    """{"tools": [%s], "messages": [{"role": "user", "content": "When?"},
 {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "id": "a1",
 "function": {"name": "clock", "arguments": {"zone": "Z\u00fcrich", "at": 2, "also": null}}}]},
 {"role": "tool", "name": "clock", "content": "9:30"}, {"role": "assistant", "content": "At 9:30."}]}""" % CLOCK,
    """{"messages": [{"role": "user", "content": "And now?"}, {"tool_calls": [{"name": "b", "arguments": {}},
 {"name": "a", "arguments": {"y": [1, {"z": true}], "x": []}}], "role": "assistant", "content": "I look. "},
 {"role": "tool", "content": "{}"}, {"role": "assistant", "content": "Later."}], "tools": [%s, %s]}""" % (CLOCK, CLOCK),
    """{"tools": [], "messages": [{"role": "user", "content": "Hi", "name": "Ann"},
 {"role": "assistant", "content": "Hello."}]}""",
]


def case(folder, root, messages, template=None, tools=None):
    tokenizer = AutoTokenizer.from_pretrained(root / "model" / "testdata" / folder)
    out = tokenizer.apply_chat_template(messages, chat_template=template or TEMPLATES[folder], tools=tools, tokenize=True,
                                        return_dict=True, return_assistant_tokens_mask=True)
    return {"folder": folder, "messages": messages, "ids": out["input_ids"], "mask": out["assistant_masks"]}


def tool_case(root, text):
    row = json.loads(text)
    found = case("qwen2-newer", root, row["messages"], TOOL_TEMPLATE, row["tools"] or None)
    return {"row": text.replace("\n", ""), "ids": found["ids"], "mask": found["mask"]}


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=root / "batch" / "testdata" / "assistant-masks.json", type=pathlib.Path)
    out = parser.parse_args().out
    cases = [case(folder, root, messages) for folder in TEMPLATES for messages in CONVERSATIONS]
    out.parent.mkdir(parents=True, exist_ok=True)
    tools = {"template": TOOL_TEMPLATE, "cases": [tool_case(root, text) for text in ROWS]}
    out.write_text(json.dumps({"templates": TEMPLATES, "cases": cases, "tools": tools}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
