#!/usr/bin/env python3
"""An OpenAI-compatible server whose judge is no model: it likes the longer of two texts. For trying commands out.

    python3 scripts/alignment/test_judge.py --port 9000 [--faults 0.1] [--no-logprobs]

It finds the texts between the headings of posttrain's own prompts. --faults is the share of requests that it answers
with status 500 or 429, a cut connection, or something that is no chat completion.
"""
import argparse
import http.server
import json
import math
import random
import re


def choose(prompt):
    """The log-probabilities of m and M."""
    parts = re.split(r"^# .*$", prompt, flags=re.M)
    if len(parts) < 5:
        return {"m": -0.7, "M": -0.7}
    gap = math.tanh((len(parts[3].strip()) - len(parts[2].strip())) / 200)
    return {"m": -math.log1p(math.exp(gap)), "M": -math.log1p(math.exp(-gap))}


class Judge(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if random.random() < self.server.faults:
            return self.fail(random.randrange(4))
        top = choose(asked["messages"][-1]["content"])
        choice = {"index": 0, "finish_reason": "stop",
                  "message": {"role": "assistant", "content": max(top, key=top.get)}}
        if asked.get("logprobs") and self.server.logprobs:
            likeliest = [{"token": token, "logprob": logprob} for token, logprob in top.items()]
            choice["logprobs"] = {"content": [{**likeliest[0], "top_logprobs": likeliest}]}
        self.reply(200, {"object": "chat.completion", "choices": [choice],
                         "usage": {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101}})

    def fail(self, kind):
        if kind < 2:
            return self.reply((500, 429)[kind], {"error": {"message": "later"}})
        if kind == 2:
            return self.reply(200, "this is no chat completion")
        self.close_connection = True

    def reply(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--faults", type=float, default=0)
    parser.add_argument("--no-logprobs", dest="logprobs", action="store_false")
    args = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Judge)
    server.faults, server.logprobs = args.faults, args.logprobs
    server.serve_forever()


if __name__ == "__main__":
    main()
