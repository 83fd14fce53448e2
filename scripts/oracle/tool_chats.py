"""Makes rollout/agent/testdata/chats.json: conversations with tools as transformers' apply_chat_template writes them.

The tokenizers of tokenizer/testdata have the three native forms of tool calls. The fourth conversation has PrivacyLens's
form, in a chat template that is given no tools.

Run: python scripts/oracle/tool_chats.py [--out rollout/agent/testdata/chats.json]
"""

import argparse
import json
import pathlib

from transformers import AutoTokenizer

TOOLS = [
    {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {key: {"type": "string", "description": about} for key, about in keys.items()},
        "required": list(keys)}}}
    for name, description, keys in [
        ("search_mail", "Finds messages.", {"query": "Words to look for"}),
        ("send_mail", "Sends a message.", {"to": "Who gets it", "body": "The text"})]]
CALLS = [("search_mail", {"query": "visit \"May\" <b>"}), ("send_mail", {"to": "Åsa", "body": "May 10,\nat nine."})]
RESULTS = ["1 message: the visit is on May 10.", "sent\n"]
ASK, END = "When is my visit? Write it to Åsa.", "It is on May 10; Åsa knows."


def native():
    messages = [{"role": "user", "content": ASK}]
    for i, ((name, arguments), result) in enumerate(zip(CALLS, RESULTS)):
        identity = f"call{i + 1:05d}"
        messages.append({"role": "assistant", "content": "", "tool_calls": [
            {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}]})
        messages.append({"role": "tool", "content": result, "name": name, "tool_call_id": identity})
    return messages + [{"role": "assistant", "content": END}]


def text():
    messages = [{"role": "user", "content": ASK}]
    for (name, arguments), result in zip(CALLS, RESULTS):
        messages.append({"role": "assistant", "content": f"Thought: next.\nAction: {name}\nAction Input: "
                         + json.dumps(arguments, ensure_ascii=False)})
        messages.append({"role": "user", "content": "Observation: " + result})
    return messages + [{"role": "assistant", "content": "Final Answer: " + END}]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="rollout/agent/testdata/chats.json")
    out = pathlib.Path(parser.parse_args().out)
    chats = []
    for form, folder, messages in [("hermes", "qwen2-older", native()), ("llama3", "llama3-newer", native()),
                                   ("mistral", "mistral-newer", native()), ("text", "qwen2-older", text())]:
        tokenizer = AutoTokenizer.from_pretrained(f"tokenizer/testdata/{folder}")
        tools = TOOLS if form != "text" else None
        whole = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
        chats.append({"form": form, "folder": folder, "messages": messages, "text": whole})
    rows = ",\n".join(json.dumps(c, ensure_ascii=False) for c in chats)
    out.write_text('{"tools": ' + json.dumps(TOOLS) + ', "chats": [\n' + rows + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
