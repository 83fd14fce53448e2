#!/usr/bin/env bash
# Runs everything that needs a GPU: engines, parity, the quick start, speed. Not run on a GPU yet: see docs/gpu.md.
#
#   scripts/gpu/run.sh /path/to/xla_cuda_plugin.so [PYTHON with torch, transformers and trl]
set -euo pipefail
plugin=${1:?usage: scripts/gpu/run.sh /absolute/path/of/xla_cuda_plugin.so [PYTHON]}
python=${2:-}
[[ $plugin == /* && -f $plugin ]] || { echo "run.sh: $plugin: want the absolute path of a PJRT plugin" >&2; exit 1; }
cd "$(dirname "$0")/../.."

# CUDA's libraries are in the same site-packages as the plugin.
site=$(dirname "$(dirname "$(dirname "$plugin")")")
for lib in "$site"/nvidia/*/lib; do
    [[ -d $lib ]] && LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}

mkdir -p build
go build -o build/posttrain ./cmd/posttrain
go build -o build/bench ./bench
build/posttrain version
build/posttrain backends
nvidia-smi || true

echo "== parity in float32: XLA against the Go engine"
build/bench parity --backend "xla:$plugin,tf32=false" --against go

echo "== the quick start"
rm -rf build/gpu-quickstart
time build/posttrain mappo --backend "xla:$plugin" --out build/gpu-quickstart

echo "== speed: the DPO step of a Qwen2.5-0.5B-shaped model in bfloat16"
build/bench gpu --backend "xla:$plugin" ${python:+--python "$python"}
build/bench gpu --backend "xla:$plugin" --share ${python:+--python "$python"}

echo "== speed: sampling at batch 256"
build/bench gpu sample --backend "xla:$plugin" ${python:+--python "$python"}

echo "== speed: a step of GRPO"
build/bench gpu grpo --backend "xla:$plugin" ${python:+--python "$python"}
