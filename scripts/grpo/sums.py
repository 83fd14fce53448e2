"""Sums of two numbers from 0 to 49: a task for posttrain grpo whose rewards a program gives (docs/grpo.md).

  sums.py prompts FROM TO               sums FROM to TO of the 2,500, in one fixed order, a line of JSON each:
                                        {"prompt": "17+25=", "answer": 42}
  sums.py demonstrations FROM TO SHARE  the same with completions, of which this share is right: for sft
  sums.py score                         the reward: reads lines {"prompt", "response", "row"}, and writes 1 for a right
                                        sum, 0 for others
"""

import json
import random
import sys


def sums(first, last):
    pairs = [(a, b) for a in range(50) for b in range(50)]
    random.Random(1).shuffle(pairs)
    return pairs[int(first):int(last)]


def completion(right, share, draws):
    """The right sum, or one that is a little or ten off."""
    return right if draws.random() < share else max(0, right + draws.choice([-10, -2, -1, 1, 2, 10]))


def score(line):
    given = json.loads(line)
    return int(given["response"].strip() == str(given["row"]["answer"]))


def main():
    match sys.argv[1:]:
        case ["prompts", first, last]:
            rows = [{"prompt": f"{a}+{b}=", "answer": a + b} for a, b in sums(first, last)]
        case ["demonstrations", first, last, share]:
            draws = random.Random(2)
            rows = [{"prompt": f"{a}+{b}=", "completion": str(completion(a + b, float(share), draws))}
                    for a, b in sums(first, last)]
        case ["score"]:
            rows = [score(line) for line in sys.stdin]
        case _:
            sys.exit(__doc__)
    for row in rows:
        print(json.dumps(row))


main()
