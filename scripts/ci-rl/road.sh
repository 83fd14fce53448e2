#!/usr/bin/env bash
# The road of a real small model to contextual integrity. Each stage is measured on the same test items, and the tables
# of docs/ci-rl.md are printed: scripts/ci-rl/road.sh MODEL ITEMS [FOLDER].
#
#   MODEL   a model folder, such as the one that scripts/models/smollm2.sh makes
#   ITEMS   the data set released with CI-RL (dataset.json), or a file of its form
#   FOLDER  where everything is written (default runs/road)
#
# For each seed, which splits the items: sft on ideal answers to the training items, which templates write, and ci-rl
# from there, with each of SETTINGS. The first seed also measures the task alone and the CI-CoT instruction. A setting is
# one word of keys, such as train.learning_rate=1e-5,grpo.kl=k3. The validation items choose among them: the first table
# has their mean reward, the second the test items of all. A stage that is in the folder is not done again; a training
# that was stopped continues. The rows of ci-rl are of the last step, which need not be the best by held-out reward.
#
# Variables: SEEDS; BACKEND and DTYPE choose the engine; SFT_STEPS and STEPS the steps of sft and of ci-rl; PROMPTS and
# GROUP the prompts of a ci-rl step and the completions of each; MAX_NEW the tokens of an answer; SAMPLES the answers to
# a test item; JOBS how much is done at a time; POSTTRAIN the program (default: built with Go); KEEP a file to which the
# rows are added, as internal/speed/results/road.jsonl.
set -eu
model=$1 items=$2 out=${3:-runs/road}
read -ra seeds <<<"${SEEDS:-1 2 3}"
read -ra settings <<<"${SETTINGS:-train.learning_rate=1e-5}"
backend=${BACKEND:-auto} dtype=${DTYPE:-auto} max_new=${MAX_NEW:-256} steps=${STEPS:-60}
mkdir -p "$out"
posttrain=${POSTTRAIN:-$out/posttrain}
[ -x "$posttrain" ] || (cd "$(dirname "$0")/../.." && GOEXPERIMENT=simd go build -o "$posttrain" ./cmd/posttrain)

# measure SEED/NAME MODEL PROMPT lets a model answer the test items of a seed, a prompt of the form cot or plain.
measure() {
    [ -e "$out/$1/summary.json" ] ||
        "$posttrain" eval ci --quiet --config "$out/${1%%/*}/$3.yaml" --model "$2" --backend "$backend" \
            --temperature 0.7 --samples "${SAMPLES:-8}" --batch 64 --max-new-tokens "$max_new" --out "$out/$1"
}

# trained SEED/NAME ARGUMENT… trains, or continues a training that was stopped.
trained() {
    local name=$1
    shift
    if [ -e "$out/$name/summary.txt" ]; then
        return
    elif [ -e "$out/$name/config.yaml" ]; then
        "$posttrain" "$1" --resume "$out/$name" --quiet
    else
        "$posttrain" "$@" --quiet --backend "$backend" --set train.dtype="$dtype" --out "$out/$name"
    fi
}

# begun SEED fine-tunes.
begun() {
    mkdir -p "$out/$1"
    local form
    for form in cot plain; do
        printf 'command: ci-rl\nseed: %s\nmodel: %s\ndata: {train: %s, items: released, prompt: %s, test_fraction: 0.1}\n' \
            "$1" "$model" "$items" "$form" >"$out/$1/$form.yaml"
    done
    [ -e "$out/$1/format.jsonl" ] ||
        "$posttrain" data pairs --templates --config "$out/$1/cot.yaml" --out "$out/$1/format.jsonl"
    trained "$1/sft" sft --model "$model" --data "$out/$1/format.jsonl" --seed "$1" --max-steps "${SFT_STEPS:-24}" \
        --set data.max_tokens=1024 --set train.batch_size=8 --set train.micro_batch_size=4 \
        --set train.learning_rate=1e-4 --set train.warmup_steps=3 --set data.eval_fraction=0.05
}

# reinforced SEED SETTING trains with ci-rl and measures the last step.
reinforced() {
    local set=() name=$1/$2 key
    for key in ${2//,/ }; do set+=(--set "$key"); done
    trained "$name" ci-rl --config "$out/$1/cot.yaml" --model "$out/$1/sft/model" --max-steps "$steps" \
        --set sampling.max_new_tokens="$max_new" --set grpo.prompts_per_step="${PROMPTS:-4}" \
        --set grpo.group_size="${GROUP:-4}" --set grpo.kl=none --set validation.every=20 --set train.warmup_steps=2 --set train.checkpoint_every=20 \
        "${set[@]}"
    measure "$1/after-$2" "$out/$name/checkpoints/$(printf 'step-%08d' "$steps")/model" cot
}

# together COMMAND… runs commands, JOBS at a time.
together() {
    local command jobs=0
    for command in "$@"; do
        if [ "$jobs" -eq "${JOBS:-1}" ]; then
            wait -n
            jobs=$((jobs - 1))
        fi
        $command &
        jobs=$((jobs + 1))
    done
    for (( ; jobs > 0; jobs--)); do wait -n; done
}

together "${seeds[@]/#/begun }"
commands=("measure ${seeds[0]}/zero-shot $model plain" "measure ${seeds[0]}/ci-cot $model cot")
for seed in "${seeds[@]}"; do
    commands+=("${settings[@]/#/reinforced $seed }" "measure $seed/after-sft $out/$seed/sft/model cot")
done
together "${commands[@]}"
MODEL=$(basename "$model") COMMIT=$(git -C "$(dirname "$0")" rev-parse --short HEAD) \
    SET="sft ${SFT_STEPS:-24} steps, ci-rl $steps of ${PROMPTS:-4} x ${GROUP:-4}, at most $max_new tokens, $backend $dtype" \
    python3 "$(dirname "$0")/road.py" "$out" "${seeds[*]}" "${settings[*]}"
for seed in "${seeds[@]}"; do
    "$posttrain" eval compare "$out/$seed/after-sft" "${settings[@]/#/$out/$seed/after-}"
done
