#!/bin/sh
# Compares federated MaPPO of a real model with an adapter: 8 owners of scored preference pairs, each with those of some
# models. Rows: before, each owner alone, all pairs in one place, fedavg and afedpg, with the same number of
# pairs each.
#
#   [BACKEND=xla:amx] scripts/federated/mappo.sh MODEL PAIRS [--pairs 1024 …]
#   BACKEND an engine of posttrain; auto
#   MODEL   a model folder, such as the one that scripts/models/smollm2.sh makes
#   PAIRS   a file of pairs with chosen_score, rejected_score and rejected_model
#
# Prints a table. Takes hours. Runs that have ended are kept in mappo.jsonl; what is there is not run again. Flags: see
# internal/bench/federated.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 MODEL PAIRS [flags]" >&2; exit 2; }
model="$(realpath "$1")"
pairs="$(realpath "$2")"
shift 2
cd "$(dirname "$0")/../.."
exec go run ./internal/bench/federated mappo --set "mappo.model=$model,mappo.data.train=$pairs,mappo.lora.rank=8,\
mappo.data.max_tokens=256,mappo.split=column,mappo.split_column=rejected_model,mappo.backend=${BACKEND:-auto}" "$@"
