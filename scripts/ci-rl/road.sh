#!/bin/sh
# The road of a real small model to contextual integrity. Each stage is measured on the same test items, and the table
# of docs/ci-rl.md is printed: scripts/ci-rl/road.sh MODEL ITEMS [FOLDER].
#
#   MODEL   a model folder, such as the one that scripts/models/smollm2.sh makes
#   ITEMS   the data set released with CI-RL (dataset.json), or a file of its form
#   FOLDER  where everything is written (default runs/road)
#
# The stages: the task alone; the CI-CoT instruction; sft on ideal answers to the training items, which templates write;
# ci-rl from there. BACKEND and DTYPE choose the engine, SFT_STEPS and STEPS the steps of sft and of ci-rl, PROMPTS and
# GROUP the prompts of a ci-rl step and the completions of each, MAX_NEW the tokens of an answer. A stage that is in
# the folder is not done again; a training that was stopped continues. The last row is of ci-rl's last step, which need
# not be the best by held-out reward.
set -eu
model=$1
items=$2
out=${3:-runs/road}
backend=${BACKEND:-auto}
dtype=${DTYPE:-auto}
max_new=${MAX_NEW:-256}
mkdir -p "$out"
posttrain=${POSTTRAIN:-$out/posttrain}
[ -x "$posttrain" ] || (cd "$(dirname "$0")/../.." && GOEXPERIMENT=simd go build -o "$posttrain" ./cmd/posttrain)

# measure NAME MODEL PROMPT lets a model answer the test items.
measure() {
    [ -e "$out/$1/summary.json" ] && return
    rm -rf "${out:?}/$1"
    "$posttrain" eval ci --model "$2" --data "$items" --prompt "$3" --backend "$backend" --temperature 0.7 \
        --max-new-tokens "$max_new" --out "$out/$1"
}

# trained NAME ARGUMENT… trains, or continues a training that was stopped.
trained() {
    name=$1
    shift
    [ -e "$out/$name/model" ] && return
    if [ -e "$out/$name" ]; then
        "$posttrain" "$1" --resume "$out/$name"
    else
        "$posttrain" "$@" --backend "$backend" --set train.dtype="$dtype" --out "$out/$name"
    fi
}

measure zero-shot "$model" plain
measure ci-cot "$model" cot
printf 'command: ci-rl\nmodel: %s\ndata: {train: %s, prompt: cot}\n' "$model" "$items" > "$out/ci-rl.yaml"
[ -e "$out/format.jsonl" ] ||
    "$posttrain" data pairs --templates --config "$out/ci-rl.yaml" --out "$out/format.jsonl"
trained sft sft --model "$model" --data "$out/format.jsonl" --max-steps "${SFT_STEPS:-24}" --set data.max_tokens=1024 \
    --set train.batch_size=8 --set train.micro_batch_size=4 --set train.learning_rate=1e-4 --set train.warmup_steps=3 \
    --set data.eval_fraction=0.05
measure after-sft "$out/sft/model" cot
steps=${STEPS:-12}
trained ci-rl ci-rl --model "$out/sft/model" --data "$items" --max-steps "$steps" \
    --set sampling.max_new_tokens="$max_new" --set grpo.prompts_per_step="${PROMPTS:-4}" \
    --set grpo.group_size="${GROUP:-4}" --set grpo.kl=none --set data.test_fraction=0.1 --set validation.every=20 \
    --set train.learning_rate=3e-5 --set train.warmup_steps=2
measure after-ci-rl "$out/ci-rl/checkpoints/$(printf 'step-%08d' "$steps")/model" cot
python3 - "$out" <<'END'
import json, os, sys

names = {
    "zero-shot": "the task alone",
    "ci-cot": "CI-CoT instruction",
    "after-sft": "after sft",
    "after-ci-rl": "after ci-rl",
}
keys = ("format", "integrity", "integrity_of_answers", "utility", "complete")
print("| stage | format | integrity | of answers | utility | complete | mean reward |\n|---|---|---|---|---|---|---|")
for name, words in names.items():
    with open(os.path.join(sys.argv[1], name, "summary.json")) as f:
        tally = json.load(f)["all"]
    cells = [f"{100 * tally[k]['value']:.1f} ({100 * tally[k]['low']:.1f}–{100 * tally[k]['high']:.1f})" for k in keys]
    r = tally["reward"]
    print(f"| {words} | {' | '.join(cells)} | {r['value']:.3f} ({r['low']:.3f}–{r['high']:.3f}) |")
END
