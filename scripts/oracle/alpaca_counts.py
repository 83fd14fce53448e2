"""What alpaca_eval counts where preferences are missing, or are draws: testdata/counts.json of eval/alpaca.

  pip install alpaca_eval==0.6.6; python scripts/oracle/alpaca_counts.py eval/alpaca/testdata/counts.json
"""

import json
import pathlib
import sys

from alpaca_eval.metrics import get_winrate

FILES = [
    [1, 2, None, 2, None, 1],
    [1, float("nan"), 2, 2],
    [0, 1.5, 1, 2, 2, 0.0],
    [1.0000001, 1.4999999, 1.5, 1.5000001, 1.73, 2, 0],
    [None, 0, 1.5, 1, 2, 1.25, float("nan"), 1.9],
]


def main():
    found = [{"preferences": json.dumps(p), "counts": get_winrate([{"preference": x} for x in p])} for p in FILES]
    text = json.dumps(found, indent=1, default=lambda number: number.item())
    pathlib.Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
