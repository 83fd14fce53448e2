#!/bin/sh
# Compares online MaPPO, online DPO and ci-rl on the embedded scenarios at equal numbers of sampled answers, and prints
# the table of docs/mappo.md: scripts/mappo/online.sh [FOLDER]. All train on the same prompts, 8 answers to each, and
# are tested on the same 1000 scenarios, one answer each at temperature 0.7. SEEDS and PROMPTS (a multiple of 48) change
# the size. A run that is in the folder is not done again.
set -eu
cd "$(dirname "$0")/../.."
out=${1:-runs/online}
prompts=${PROMPTS:-240}
mkdir -p "$out"
GOEXPERIMENT=simd go build -o "$out/posttrain" ./cmd/posttrain

# run NAME ARGUMENT… does a run and keeps its seconds.
run() {
    name=$1
    shift
    [ -e "$out/$name/seconds" ] && return
    rm -rf "${out:?}/$name"
    begin=$(date +%s)
    "$out/posttrain" "$@" --seed "$seed" --out "$out/$name" --quiet
    echo $(($(date +%s) - begin)) >"$out/$name/seconds"
}

# measure NAME tests a run's model on the test scenarios of the ci-rl run of the seed.
measure() {
    [ -e "$out/$1/test/summary.json" ] && return
    rm -rf "${out:?}/$1/test"
    "$out/posttrain" eval ci --config "$out/ci-rl-$seed/config.yaml" --model "$2" --out "$out/$1/test" >/dev/null
}

for seed in ${SEEDS:-1 2 3}; do
    run "ci-rl-$seed" ci-rl --config configs/ci-rl-quickstart.yaml --max-steps $((prompts / 16)) \
        --set validation.every=0
    for prior in mappo none; do
        run "online-$prior-$seed" mappo --config configs/mappo-online.yaml --prior $prior \
            --set online.prompts="$prompts"
    done
    mkdir -p "$out/before-$seed"
    echo 0 >"$out/before-$seed/seconds"
    measure "before-$seed" embedded
    for name in ci-rl online-mappo online-none; do
        measure "$name-$seed" "$out/$name-$seed/model"
    done
done
python3 - "$out" ${SEEDS:-1 2 3} <<'END'
import json, os, sys

out, seeds = sys.argv[1], sys.argv[2:]
names = {"before": "before training", "ci-rl": "ci-rl", "online-mappo": "online MaPPO", "online-none": "online DPO"}
print("| run | seed | I % | U % | C % | reward | seconds |\n|---|---|---|---|---|---|---|")
for name, words in names.items():
    for seed in seeds:
        folder = os.path.join(out, f"{name}-{seed}")
        with open(os.path.join(folder, "test", "summary.json")) as f:
            tally = json.load(f)["all"]
        share = lambda key: 100 * tally[key]["value"]
        seconds = open(os.path.join(folder, "seconds")).read().strip()
        print(f"| {words} | {seed} | {share('integrity'):.1f} | {share('utility'):.1f} | {share('complete'):.1f} | "
              f"{tally['reward']['value']:.3f} | {seconds} |")
END
