#!/usr/bin/env bash
# Compiles the programs of the first parts of run.sh for a GPU, on any machine: scripts/gpu/programs.sh CHIP FOLDER, such as
# h100 programs. PROGRAMS=FOLDER scripts/gpu/run.sh then finds them, with the plugin of the same package.
#
# Variables: MODEL and ITEMS, as for run.sh; POSTTRAIN the program (default: built with Go).
set -euo pipefail
chip=$1
folder=$(realpath -m "$2")
for name in MODEL ITEMS; do
    [[ -z ${!name:-} || ! -e ${!name} ]] || printf -v "$name" %s "$(realpath "${!name}")"
done
cd "$(dirname "$0")/../.."
source scripts/gpu/runs.sh
posttrain=${POSTTRAIN:-build/posttrain}
[[ -n ${POSTTRAIN:-} ]] || GOEXPERIMENT=simd go build -o "$posttrain" ./cmd/posttrain
"$posttrain" plan --device "$chip" --compile-into "$folder"
"$posttrain" plan --device "$chip" --compile-into "$folder" "${cirl[@]}"
