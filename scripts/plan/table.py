"""table.py POSTTRAIN RUNS: forecasts of `posttrain plan` beside the peaks of the same runs, as a table in Markdown.

POSTTRAIN is the program, with words before it if need be. Each line of the file RUNS is a config, then flags that
`posttrain plan` takes. Each run has a process of its own, one after the other, and its folder is removed. The peak is
the largest resident memory that the system saw.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time


def forecast(program, flags):
    """The plan, also of a run that it refuses."""
    done = subprocess.run([*program, "plan", "--json", *flags], capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def measured(program, command, flags):
    """Peak in bytes and seconds of a run; flags of plan that the command lacks are not used here."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.time()
        child = subprocess.Popen([*program, *command.split(), "--quiet", "--out", folder + "/run", *flags],
                                 stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{command} {shlex.join(flags)}: exit status {status}")
        return usage.ru_maxrss * 1024, time.time() - begin


def main():
    program = shlex.split(sys.argv[1])
    print("| run | engine | forecast | peak | ratio | time forecast | time | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for line in open(sys.argv[2], encoding="utf-8"):
        flags = shlex.split(line, comments=True)
        if not flags:
            continue
        plan = forecast(program, flags)
        peak, seconds = measured(program, plan["command"], flags)
        expected, likely = plan["memory"]["peak"], plan["time"]["likely_seconds"]
        print(f"| `{line.strip()}` | {plan['engine']} | {expected / 1e6:.0f} MB | {peak / 1e6:.0f} MB | "
              f"{expected / peak:.2f} | {likely:.0f} s | {seconds:.0f} s | {likely / seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
