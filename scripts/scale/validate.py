"""validate.py DOC OUT: checks the YAML blocks of a document strictly, and writes its bash blocks to OUT."""

import pathlib
import re
import sys

import kubernetes_validate
import yaml

VERSION = "1.34.0"


def main(document, out):
    text, checked = pathlib.Path(document).read_text(), 0
    for block in re.findall(r"```yaml\n(.*?)```", text, re.S):
        for resource in yaml.safe_load_all(block):
            kubernetes_validate.validate(resource, VERSION, strict=True)
            print(resource["apiVersion"], resource["kind"], resource["metadata"]["name"], "is valid")
            checked += 1
    if not checked:
        sys.exit(f"{document}: found no YAML block")
    for i, block in enumerate(re.findall(r"```bash\n(.*?)```", text, re.S)):
        pathlib.Path(out, f"{i}.bash").write_text(block)


main(*sys.argv[1:])
