#!/bin/sh
# The form of the paper's Table 1: log p of both answers of one pair that is nearly a tie, before training, after DPO and
# after MaPPO. scripts/mappo/table1.sh [PAIRS [FLAG…]] takes the pair with the smallest gap of scores, which is trained on
# like all others. PAIRS has the columns prompt, chosen, rejected, chosen_score and rejected_score; without it, it is the
# quick start's. FLAGs go to both runs, such as --model DIR. OUT changes the folder.
set -eu
cd "$(dirname "$0")/../.."
pairs=${1:-internal/embedded/pairs.jsonl}
[ $# -gt 0 ] && shift
out=${OUT:-runs/table1}
mkdir -p "$out"
GOEXPERIMENT=simd go build -o "$out/posttrain" ./cmd/posttrain
python3 - "$pairs" >"$out/pair.jsonl" <<'END'
import json, sys

gap = lambda row: row["chosen_score"] - row["rejected_score"]
print(json.dumps(min((r for r in map(json.loads, open(sys.argv[1], encoding="utf-8")) if gap(r) > 0), key=gap)))
END
for prior in none mappo; do
    rm -rf "${out:?}/$prior"
    "$out/posttrain" mappo --config configs/mappo.yaml --data "$pairs" --set data.eval="$out/pair.jsonl" \
        --set data.eval_fraction=0 --prior "$prior" --out "$out/$prior" --quiet "$@" >/dev/null
done
python3 - "$out" <<'END'
import json, sys

def ends(prior):
    rows = [r for r in map(json.loads, open(f"{sys.argv[1]}/{prior}/metrics.jsonl")) if "eval_logps/chosen" in r]
    return rows[0], rows[-1]

pair = json.load(open(f"{sys.argv[1]}/pair.jsonl", encoding="utf-8"))
(before, dpo), (_, mappo) = ends("none"), ends("mappo")
print(f"scores {pair['chosen_score']:.3f} and {pair['rejected_score']:.3f}\n")
print("| | log p(chosen) | log p(rejected) | difference |\n|---|---|---|---|")
for name, row in ("before", before), ("after DPO", dpo), ("after MaPPO", mappo):
    chosen, rejected = row["eval_logps/chosen"], row["eval_logps/rejected"]
    print(f"| {name} | {chosen:.2f} | {rejected:.2f} | {chosen - rejected:+.2f} |")
END
