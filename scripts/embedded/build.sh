#!/usr/bin/env bash
# Rebuilds the embedded model and its preference pairs from nothing but this repository: scenarios, tokenizer, random
# weights, supervised fine-tuning, best-of-8 pairs on held-out scenarios. Every seed is fixed. Needs python3 with the
# package `tokenizers` (pip install tokenizers==0.23.3) and, to take minutes, ONNX Runtime's library.
#
#   scripts/embedded/build.sh              # leaves everything in build/embedded
#   scripts/embedded/build.sh --install    # and puts model and pairs into embedded/
#   scripts/embedded/build.sh --pairs      # only the pairs, sampled from the model that is embedded now
set -euo pipefail
cd "$(dirname "$0")/../.."
work=build/embedded
rm -rf "$work"
mkdir -p "$work"

GOEXPERIMENT=simd go build -o "$work/posttrain" ./cmd/posttrain
posttrain=$work/posttrain
python=${PYTHON:-python3}

# 1,600 held-out scenarios give 1,522 pairs, and 500 of the short ones are kept: 400 for one pass of configs/mappo.yaml
# and 100 held out. internal/embedded/pairs.jsonl was made by --pairs with ONNX Runtime 1.31.1.
pairs() {
    "$posttrain" data pairs --model "$1" --n 1600 --held-out --seed 77 --answers 8 --out "$work/all.jsonl"
    "$python" scripts/embedded/short.py "$2" 500 179 < "$work/all.jsonl" > "$work/pairs.jsonl"
}
if [[ "${1:-}" == --pairs ]]; then
    pairs embedded internal/embedded/model/tokenizer.json
    cmp "$work/pairs.jsonl" internal/embedded/pairs.jsonl && echo "the same bytes as internal/embedded/pairs.jsonl"
    exit
fi

# A writer who has a quarter of the norms wrong, so that the model knows format and copying and leaves room for CI-RL.
"$posttrain" data synth --n 24000 --seed 1 --leak 0.08 --omit 0.08 --garble 0.02 \
  --leak-habit 0.25 --omit-habit 0.25 --out "$work/demos.jsonl"
"$python" scripts/embedded/tokenizer.py "$work/demos.jsonl" "$work/tokenizer"
"$posttrain" model init --like scripts/embedded/config.json --seed 1 --tokenizer "$work/tokenizer" --out "$work/random"
"$posttrain" sft --config scripts/embedded/sft.yaml --out "$work/sft"
"$posttrain" eval ci --model "$work/sft/model" --n 400 | tee "$work/eval.txt"
pairs "$work/sft/model" "$work/sft/model/tokenizer.json"

if [[ "${1:-}" == --install ]]; then
    rm -rf internal/embedded/model
    cp -r "$work/sft/model" internal/embedded/model
    cp "$work/pairs.jsonl" internal/embedded/pairs.jsonl
fi
