"""validate.py DOC CRDS OUT: checks the YAML blocks of a document strictly, and writes its bash blocks to OUT."""

import pathlib
import re
import sys

import jsonschema
import kubernetes_validate
import yaml

VERSION = "1.34.0"


def strict(schema):
    """Refuses fields that a schema does not name."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            strict(value)
    elif isinstance(schema, list):
        for value in schema:
            strict(value)


def custom(folder):
    """Schemas of custom resources, by version and kind."""
    found = {}
    for path in pathlib.Path(folder).glob("*_*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            strict(schema)
            schema["properties"]["metadata"] = {"type": "object"}
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return found


def main(document, folder, out):
    text, schemas, checked = pathlib.Path(document).read_text(), custom(folder), 0
    for block in re.findall(r"```yaml\n(.*?)```", text, re.S):
        for resource in yaml.safe_load_all(block):
            key = resource["apiVersion"], resource["kind"]
            if key in schemas:
                jsonschema.validate(resource, schemas[key])
            else:
                kubernetes_validate.validate(resource, VERSION, strict=True)
            print(*key, resource["metadata"]["name"], "is valid")
            checked += 1
    if not checked:
        sys.exit(f"{document}: found no YAML block")
    for i, block in enumerate(re.findall(r"```bash\n(.*?)```", text, re.S)):
        pathlib.Path(out, f"{i}.bash").write_text(block)


main(*sys.argv[1:])
