"""within.py POSTTRAIN RUNS: runs that `posttrain plan` chose within limits, and what they took, as a table in Markdown.

POSTTRAIN is the program, with words before it if need be. Each line of the file RUNS has flags of `posttrain plan`,
with --memory or --within. The command line that the plan prints is run in a process of its own, and its folder is
removed. The peak is the largest resident memory that the system saw. Exit code 1: one took more than its limit of
memory.
"""

import shlex
import sys

from table import forecast, measured


def main():
    program, over = shlex.split(sys.argv[1]), False
    print("| plan | chosen | memory: limit | forecast | peak | seconds: limit | forecast | measured |")
    print("|---|---|---|---|---|---|---|---|")
    for line in open(sys.argv[2], encoding="utf-8"):
        flags = shlex.split(line, comments=True)
        if not flags:
            continue
        plan = forecast(program, flags)
        choice = plan["choice"]
        if not choice["fits"]:
            sys.exit(f"{line.strip()}: nothing fits")
        chosen = " ".join(map("=".join, choice["changed"].items())) or "as it is"
        after = len(["posttrain", *plan["command"].split()])
        peak, seconds = measured(program, plan["command"], shlex.split(choice["command"])[after:])
        over = over or peak > choice["memory"]
        print(f"| `{line.strip()}` | {chosen} | {choice['memory'] / 1e6:.0f} MB | "
              f"{plan['memory']['peak'] / 1e6:.0f} MB "
              f"| {peak / 1e6:.0f} MB | {choice.get('within_seconds', '')} | "
              f"{plan['time']['likely_seconds']:.0f} | {seconds:.0f} |", flush=True)
    sys.exit(over)


if __name__ == "__main__":
    main()
