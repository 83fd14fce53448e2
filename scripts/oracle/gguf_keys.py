"""Lists the keys of metadata that gguf-py 0.19.0 knows, as its class Keys spells them.

  pip install gguf==0.19.0
  python scripts/oracle/gguf_keys.py recipe/exchange/testdata/gguf_keys.json
"""

import json
import pathlib
import sys

from gguf.constants import Keys


def keys(of):
    for name, value in vars(of).items():
        if isinstance(value, type):
            yield from keys(value)
        elif isinstance(value, str) and not name.startswith("__"):
            yield value


def main():
    found = sorted(set(keys(Keys)))
    pathlib.Path(sys.argv[1]).write_text("[\n" + ",\n".join(json.dumps(k) for k in found) + "\n]\n")
    print(len(found), "keys")


if __name__ == "__main__":
    main()
