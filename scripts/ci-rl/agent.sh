#!/bin/sh
# An agent with tools on the embedded model: demonstrations of episodes by a writer that leaks, sft on them, then CI-RL
# on norms that each prompt states. FOLDER (runs/agent) has all of it; what has ended is not made again. SEED (1).
set -eu
cd "$(dirname "$0")/../.."
folder="${FOLDER:-runs/agent}"
mkdir -p "$folder"
[ -x "$folder/posttrain" ] || GOEXPERIMENT=simd go build -o "$folder/posttrain" ./cmd/posttrain
posttrain="$folder/posttrain"
[ -f "$folder/demos.jsonl" ] ||
	"$posttrain" data synth --agent compact --policy drawn --n 8000 --seed 5 --leak 0.25 --omit 0.1 --out "$folder/demos.jsonl"
[ -d "$folder/sft/model" ] ||
	"$posttrain" sft --config scripts/ci-rl/agent-sft.yaml --data "$folder/demos.jsonl" --out "$folder/sft"
exec "$posttrain" ci-rl --config configs/ci-rl-agent.yaml --model "$folder/sft/model" --seed "${SEED:-1}" \
	--out "$folder/ci-rl-${SEED:-1}"
