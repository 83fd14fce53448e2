#!/usr/bin/env bash
# Holds the manifests in docs/scale.md against the schemas of Kubernetes (the package kubernetes-validate), and the shell
# scripts against bash. Needs Python.
set -euo pipefail
cd "$(dirname "$0")/../.."

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'kubernetes-validate==1.37.0'
"$work/venv/bin/python" scripts/scale/validate.py docs/scale.md "$work"
for script in "$work"/*.bash; do
  bash -n "$script"
  echo "$(grep -c '^#SBATCH' "$script") lines of Slurm's, and bash reads the script"
done
