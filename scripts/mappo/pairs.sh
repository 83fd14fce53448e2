#!/bin/sh
# MaPPO beside DPO, IPO, SimPO and CPO on a real model and real scored pairs, all weights, for the table of docs/mappo.md:
# scripts/mappo/pairs.sh MODEL PAIRS [FLAG…]
#
#   MODEL   a model folder, from the repository's root, such as the one that scripts/models/smollm2.sh makes
#   PAIRS   AlpacaEval's pairs (.jsonl.gz) with the columns prompt, chosen, rejected, chosen_score and rejected_score
#   FLAG    of go run ./internal/speed seeds, such as --seeds 2 --arms ipo-none,ipo-mappo
#
# The 600 shortest pairs are taken, of which 500 are trained on once and 100 are held out. OUT changes the folder
# (runs/pairs). Each run that has ended is a line of internal/speed/results/prior.jsonl, and is not made again; one that
# was stopped continues from OUT.
set -eu
cd "$(dirname "$0")/../.."
model=${1:?MODEL} pairs=${2:?PAIRS} out=${OUT:-runs/pairs}
shift 2
mkdir -p "$out"
python3 - "$pairs" >"$out/short.jsonl" <<'END'
import gzip, json, sys

rows = [json.loads(line) for line in gzip.open(sys.argv[1], "rt", encoding="utf-8")]
length = lambda i: len(rows[i]["prompt"]) + max(len(rows[i]["chosen"]), len(rows[i]["rejected"]))
for i in sorted(sorted(range(len(rows)), key=length)[:600]):
    print(json.dumps(rows[i]))
END
# The kept runs name their settings: none may have a path of this machine.
ln -sfn "$(realpath "$model")" "$out/model"
GOEXPERIMENT=simd go run ./internal/speed seeds prior --runs "$out" --set model="$out/model" \
    --set data.train="$out/short.jsonl" --set data.eval_fraction=0.1667 --set train.max_steps=63 --set train.eval_every=21 \
    --set train.learning_rate=1e-5 --set data.reward_transform=rank --set train.warmup_steps=6 \
    --set train.schedule=cosine "$@"
