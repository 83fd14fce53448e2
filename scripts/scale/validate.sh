#!/usr/bin/env bash
# Holds the manifests in docs/scale.md against the schemas of Kubernetes (the package kubernetes-validate) and of
# Kubeflow's training operator (its Go module), and the shell scripts against bash. Needs Python and Go.
set -euo pipefail
cd "$(dirname "$0")/../.."

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'kubernetes-validate==1.37.0'
operator="$(cd "$work" && go mod download -json github.com/kubeflow/training-operator@v1.9.2 |
  sed -n 's/.*"Dir": "\(.*\)".*/\1/p')"
"$work/venv/bin/python" scripts/scale/validate.py docs/scale.md "$operator/manifests/base/crds" "$work"
for script in "$work"/*.bash; do
  bash -n "$script"
  echo "$(grep -c '^#SBATCH' "$script") lines of Slurm's, and bash reads the script"
done
