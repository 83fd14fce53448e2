"""Asks a server with OpenAI's own Python client for what posttrain serve can do, and checks what comes back.

    BASE_URL=http://127.0.0.1:8080/v1 API_KEY=token MODEL=name python python_client.py

Prints a line for each check; the exit code is 1 where one fails. A test of package serve runs it.
"""
import os
import sys
import traceback

import openai

model = os.environ["MODEL"]
client = openai.OpenAI(base_url=os.environ["BASE_URL"], api_key=os.environ["API_KEY"], max_retries=0, timeout=20)
messages = [{"role": "user", "content": "Please book the tickets for $665."}]
ask = {"model": model, "messages": messages, "seed": 7, "max_completion_tokens": 16}
tools = [{"type": "function", "function": {"name": "weather", "description": "Says it.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]


def chat():
    c = client.chat.completions.create(**ask)
    assert c.choices[0].message.content and c.choices[0].message.tool_calls is None
    assert c.choices[0].finish_reason in ("stop", "length")
    text = "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**ask, stream=True))
    assert text == c.choices[0].message.content


def likely_tokens():
    c = client.chat.completions.create(**ask, logprobs=True, top_logprobs=5)
    for token in c.choices[0].logprobs.content:
        assert [t.logprob for t in token.top_logprobs] == sorted((t.logprob for t in token.top_logprobs), reverse=True)
        assert len(token.top_logprobs) == 5


def bias_and_penalties():
    c = client.chat.completions.create(**ask, logprobs=True, logit_bias={"70": 100}, presence_penalty=1,
                                       frequency_penalty=1, extra_body={"repetition_penalty": 1.1})
    assert len({t.token for t in c.choices[0].logprobs.content}) == 1


def template_variables_and_special_tokens():
    c = client.chat.completions.create(**ask, extra_body={"chat_template_kwargs": {"enable_thinking": False},
                                                          "skip_special_tokens": False})
    assert c.choices[0].message.content


def tools_and_results():
    call = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    turns = messages + [{"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": call["id"], "content": "rain"}]
    rest = {k: v for k, v in ask.items() if k != "messages"}
    without = client.chat.completions.create(**rest, messages=turns)
    c = client.chat.completions.create(**rest, messages=turns, tools=tools, tool_choice="auto", parallel_tool_calls=False)
    assert c.usage.prompt_tokens > without.usage.prompt_tokens
    chunks = client.chat.completions.create(**rest, messages=turns, tools=tools, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == c.choices[0].message.content


def completions():
    plain = {"model": model, "prompt": ["Hello", "Dear"], "seed": 7, "max_tokens": 8, "logprobs": 2, "echo": False}
    whole, texts = client.completions.create(**plain), ["", ""]
    for chunk in client.completions.create(**plain, stream=True, stream_options={"include_usage": True}):
        for c in chunk.choices:
            texts[c.index] += c.text
    assert texts == [c.text for c in whole.choices] and chunk.usage == whole.usage
    scored = client.completions.create(model=model, prompt="Hello Dear", max_tokens=1, logprobs=1, echo=True, temperature=0)
    assert scored.choices[0].logprobs.token_logprobs[0] is None and scored.choices[0].text.startswith("Hello Dear")


def refusals():
    for more in ({"response_format": {"type": "json_object"}}, {"tools": tools, "tool_choice": "required"}):
        try:
            client.chat.completions.create(**ask, **more)
        except openai.BadRequestError as e:
            assert e.param in more, e
        else:
            raise AssertionError(f"{more} was accepted")


failed = False
for check in (chat, likely_tokens, bias_and_penalties, template_variables_and_special_tokens, tools_and_results,
              completions, refusals):
    try:
        check()
        print("ok", check.__name__)
    except Exception:
        failed = True
        print("FAILED", check.__name__, traceback.format_exc())
sys.exit(failed)
