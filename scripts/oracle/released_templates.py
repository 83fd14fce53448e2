#!/usr/bin/env python3
"""Renders conversations with released chat templates, as transformers does, for a test of the jinja package.

    python scripts/oracle/released_templates.py trl/chat_templates OUT

The folder has *.jinja files, such as that of the package trl. They are other people's work, so that neither they nor
the cases are in this repository. scripts/install-test-needs.sh runs this.
"""

import datetime
import itertools
import json
import pathlib
import sys

import transformers.utils.chat_template_utils as chat_utils


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 4, 5, 6, 7, tzinfo=tz)


chat_utils.datetime = Clock

TOOLS = [{"type": "function", "function": {
    "name": "send_email", "description": "Sends an e-mail: \"now\" & <here>.", "parameters": {
        "type": "object", "required": ["to"], "properties": {
            "to": {"type": "string", "description": "Whom?"}, "copies": {"type": "array", "items": {"type": "integer"}},
            "urgent": {"type": ["boolean", "null"], "enum": [True, False]}}},
    "return": {"type": "string", "description": "the receipt"}}}]


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


def call(arguments, **more):
    return turn("assistant", "", tool_calls=[{"type": "function", "id": "abcdefghi", "function": {
        "name": "send_email", "arguments": arguments}}], **more)


ASK, ANSWER = turn("user", " Who may know?\n"), turn("assistant", "The doctor; no one else — é🙂.")
CHATS = {
    "one": [ASK],
    "answered": [ASK, ANSWER],
    "system": [turn("system", "Be  brief.\n"), ASK, ANSWER],
    "developer": [turn("developer", "Be brief."), ASK, ANSWER],
    "turns": [ASK, ANSWER, turn("user", "Why?"), turn("assistant", "It fits."), turn("user", "And the boss?")],
    "thoughts": [ASK, turn("assistant", "<think>\nIs it right?\n</think>\n\nYes."), turn("user", "Why?"),
                 turn("assistant", "<think>\nHm.\n</think>\n\nSo.")],
    "reasoning": [ASK, turn("assistant", "Yes.", reasoning_content="Is it right?", thinking="Is it right?")],
    "parts": [turn("user", [{"type": "text", "text": "Who may"}, {"type": "text", "text": " know?"}]), ANSWER],
    "empty": [turn("user", ""), turn("assistant", "")],
    "two asks": [ASK, ASK],
    "answer first": [ANSWER, ASK],
    "null": [ASK, turn("assistant", None)],
    "tools": [turn("system", "Use tools."), ASK, call({"to": "Ann \"A\" <a@b.c>", "copies": [1, 2.5], "urgent": None}),
              turn("tool", "{\"sent\": true}", name="send_email", tool_call_id="abcdefghi"), ANSWER],
    "text arguments": [ASK, call("{\"to\": \"Ann\"}"), turn("tool", "sent", name="send_email",
                                                           tool_call_id="abcdefghi")],
    "two calls": [ASK, {**call({"to": "A"}), "content": "Both.",
                        "tool_calls": call({"to": "A"})["tool_calls"] + call({"to": "B"})["tool_calls"]},
                  turn("tool", "a", tool_call_id="abcdefghi"), turn("tool", "b", tool_call_id="abcdefghi"), ANSWER],
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
VARIABLES = [{}, {"enable_thinking": False}, {"enable_thinking": True, "date_string": "1 Jan 2024"},
             {"keep_past_thinking": True, "preserve_thinking": True, "reasoning_effort": "high"}]


def render(source, variables):
    try:
        return {"text": chat_utils._compile_jinja_template(source).render(**variables)}
    except Exception as e:  # a refusal is a result, too
        return {"error": f"{type(e).__name__}: {e}"}


def main():
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jinja"))
    if not files:
        sys.exit(f"{sys.argv[1]} has no *.jinja file")
    sources = {f.name: f.read_text(encoding="utf-8") for f in files}
    cases = []
    for file, chat, tools, prompt, more in itertools.product(sources, CHATS, (None, TOOLS), (False, True), VARIABLES):
        variables = {"messages": CHATS[chat], "tools": tools, "documents": None, "add_generation_prompt": prompt,
                     **TOKENS, **more}
        cases.append({"file": file, "chat": chat, "variables": variables, **render(sources[file], variables)})
    text = json.dumps({"sources": sources, "cases": cases}, ensure_ascii=False)
    pathlib.Path(sys.argv[2]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
