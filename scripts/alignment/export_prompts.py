#!/usr/bin/env python3
"""Writes a benchmark's own prompts for posttrain's --prompts.

    python3 export_prompts.py alpaca CHECKOUT/src/alpaca_eval/evaluators_configs/NAME/PROMPT.txt > prompts.jsonl

alpaca: a template of AlpacaEval, in ChatML (<|im_start|>role … <|im_end|>) with the fields {instruction}, {output_1} and
{output_2}, becomes JSON lines {"role", "content"}, in which every other brace is doubled.
"""
import argparse
import json
import re
import sys

FIELDS = ("instruction", "output_1", "output_2")


def escape(text):
    """Doubles the braces that are not those of a field."""
    fields = "|".join(FIELDS)
    return re.sub(r"(\{(?:%s)\})|([{}])" % fields, lambda m: m.group(1) or 2 * m.group(2), text)


def alpaca(text):
    messages = re.findall(r"<\|im_start\|>(\w+)\n(.*?)\n?<\|im_end\|>", text, flags=re.S)
    if not messages:
        sys.exit("no messages: want <|im_start|>role, a line end, the text and <|im_end|>")
    missing = [f for f in FIELDS if not any("{%s}" % f in content for _, content in messages)]
    if missing:
        sys.exit("the template has no {%s}" % "}, {".join(missing))
    for role, content in messages:
        print(json.dumps({"role": role, "content": escape(content)}, ensure_ascii=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=["alpaca"])
    parser.add_argument("file")
    args = parser.parse_args()
    with open(args.file, encoding="utf-8") as file:
        alpaca(file.read())


if __name__ == "__main__":
    main()
