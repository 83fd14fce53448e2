#!/usr/bin/env bash
# Runs everything that needs a GPU in at most 15 minutes and writes one report: docs/scale.md says what is in it.
#
#   scripts/gpu/run.sh /path/to/xla_cuda_plugin.so [PYTHON with torch, transformers and trl]
#
# Each part has its own time limit. A part that fails is written down, and the next one runs. Ctrl-C keeps the report
# of what has run. Without Go it takes build/posttrain and build/speed as they are. A trial without a GPU:
# PRESET=tiny BACKEND=xla:cpu scripts/gpu/run.sh "" [PYTHON].
#
# Variables: REPORT (build/gpu-report.md), MINUTES (15), PARTS (a pattern of titles; all), PRESET (tiny: small models
# everywhere), BACKEND (xla:PLUGIN), MODEL (a model folder, for ci-rl and for the run beside TRL; the embedded model), ITEMS
# (ci-rl's data; embedded scenarios), DATA (pairs for the run beside TRL; embedded), PROGRAMS (a folder of compiled
# programs, which scripts/gpu/programs.sh made on any machine).
set -uo pipefail
plugin=${1:-}
python=${2:-}
backend=${BACKEND:-xla:$plugin}
preset=${PRESET:-}
if [[ -z ${BACKEND:-} && ! ($plugin == /* && -f $plugin) ]]; then
    echo "run.sh: '$plugin': want the absolute path of a PJRT plugin (or BACKEND, for a trial without a GPU)" >&2
    exit 1
fi
[[ -z $preset || $preset == tiny ]] || { echo "run.sh: PRESET=$preset: want tiny, or nothing" >&2; exit 1; }
[[ -z $python || -x $(command -v "$python") ]] || { echo "run.sh: $python: want a Python that can be run" >&2; exit 1; }
start=$PWD
[[ $python == */* && $python != /* ]] && python=$start/$python
for name in PROGRAMS MODEL ITEMS DATA; do # where the script was started
    path=${!name:-}
    [[ -z $path || $path == /* || ! -e $path ]] || printf -v "$name" %s "$start/$path"
done
cd "$(dirname "$0")/../.." || exit 1
source scripts/gpu/runs.sh
[[ -z ${PROGRAMS:-} ]] || export POSTTRAIN_XLA_CACHE=$PROGRAMS
export GOEXPERIMENT=simd
report=${REPORT:-build/gpu-report.md}
[[ $report == /* || -z ${REPORT:-} ]] || report=$start/$report
end=$((SECONDS + 60 * ${MINUTES:-15}))
exact=$backend large=(qwen2.5-0.5b qwen2.5-1.5b) batches=128 device=cuda dtype=bfloat16 small=5.4M
shape=(--length 512 --prompt 256) lengths=64,256 fresh=64 steps=40 rlsteps=60
if [[ -n $plugin ]]; then # whose options end with what float32 needs
    exact=$backend,tf32=false
    site=$(dirname "$(dirname "$(dirname "$plugin")")") # where CUDA's libraries are, too
    for lib in "$site"/nvidia/*/lib; do
        [[ -d $lib ]] && LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    done
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
else
    device=cpu dtype=float32
fi
if [[ $preset == tiny ]]; then
    large=(tiny) batches=4,8 small=tiny lengths=16 fresh=8 shape=(--length 32 --prompt 16) steps=4 rlsteps=2
fi
logs=$(mktemp -d)
export PYTHONWARNINGS=ignore
failed=0 child='' stopped=''

# part TITLE SECONDS COMMAND...: runs a command for at most so long, and writes what it printed into the report.
part() {
    local title=$1 limit=$2 begin=$SECONDS left=$((end - SECONDS)) state code log=$logs/part
    shift 2
    [[ -n $stopped ]] && return 1
    [[ $title =~ ${PARTS:-.} ]] || return 0
    ((left < limit)) && limit=$left
    printf '== %s (at most %d s)\n' "$title" "$((limit > 0 ? limit : 0))" >&2
    if ((limit <= 0)); then
        code=124
        echo "not run: no time was left" >"$log"
    else
        timeout -k 10 "$limit" "$@" >"$log" 2>&1 &
        child=$!
        wait "$child"
        code=$?
        child=''
    fi
    case $code in
    0) state=done ;;
    124 | 137) state="STOPPED at its limit of $limit s" ;;
    *) state="FAILED with exit code $code" ;;
    esac
    [[ -n $stopped ]] && state="STOPPED by Ctrl-C"
    [[ $state == done ]] || failed=$((failed + 1))
    {
        printf '\n## %s\n\n%s after %d s: `%s`\n\n```\n' "$title" "$state" $((SECONDS - begin)) "$*"
        tail -n 60 "$log" | tr -d '\r' # long logs of libraries end with what went wrong
        echo '```'
    } >>"$report"
    printf '   %s after %d s\n' "$state" $((SECONDS - begin)) >&2
    return "$code"
}

stop() {
    stopped=yes
    [[ -n $child ]] && kill -TERM "$child" 2>/dev/null
}
trap stop INT TERM

finish() {
    printf '\n%d parts failed or were stopped, %d s in all.\n' "$failed" "$SECONDS" >>"$report"
    rm -rf "$logs"
    echo "run.sh: the report is $report" >&2
}
trap finish EXIT

mkdir -p build "$(dirname "$report")"
{
    gpu=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
    printf '# posttrain on %s\n\n' "${gpu:-a machine without nvidia-smi}"
    printf -- '- %s\n' "$(date -u '+%Y-%m-%d %H:%M UTC')" "engine $backend" "$(nproc) processor cores, $(uname -sr)" \
        "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    if [[ -n $python ]]; then
        printf -- '- %s\n' "$("$python" -c 'import torch, transformers, trl
print("PyTorch", torch.__version__, "transformers", transformers.__version__, "TRL", trl.__version__)' 2>&1 | tail -n 1)"
    fi
} >"$report"

build() { go build -o build/posttrain ./cmd/posttrain && go build -o build/speed ./internal/speed; }
export -f build
if [[ -n $(command -v go) ]]; then
    part "Build" 180 bash -c build || exit 1
fi
part "Engines" 60 build/posttrain version
part "Quick start" 90 build/posttrain mappo --backend "$backend" --out "$logs/quickstart" --max-steps "$steps"
part "ci-rl" 240 build/posttrain ci-rl "${cirl[@]}" --backend "$backend" --out "$logs/ci-rl" --max-steps "$rlsteps"
[[ -n $python ]] || exit $((failed > 0))
peer=(--python "$python" --device "$device")
main=${large[-1]} # the model in whose size the users' are
part "DPO step, $main" 150 build/speed step "${peer[@]}" --backend "$backend" --preset "$main" --dtype "$dtype" "${shape[@]}"
part "Rollouts, $main" 150 build/speed sample "${peer[@]}" --backend "$backend" --preset "$main" --dtype "$dtype" \
    --batch "$batches" --new "$fresh"
part "GRPO step" 150 build/speed grpo "${peer[@]}" --backend "$backend" --preset "${large[0]}" --dtype "$dtype" \
    --prompt "$lengths" --new "$fresh"
if [[ $device == cuda ]]; then
    if "$python" -c 'import vllm' 2>/dev/null; then
        part "GRPO step, vLLM samples for TRL" 240 build/speed grpo "${peer[@]}" --backend "$backend" \
            --preset "${large[0]}" --dtype "$dtype" --prompt "${lengths%%,*}" --rounds 3 --vllm
    else
        printf '\n## GRPO step, vLLM samples for TRL\n\nnot run: %s has no vllm\n' "$python" >>"$report"
    fi
fi
part "DPO step in float32" 90 build/speed step "${peer[@]}" --backend "$exact" --preset "$small" --rounds 3
part "A whole run beside TRL" 120 build/speed trl "${peer[@]}" --backend "$backend" --dtype "$dtype" --pairs 64 \
    --posttrain build/posttrain --model "${MODEL:-internal/embedded/model}" --data "${DATA:-internal/embedded/pairs.jsonl}"
for model in "${large[@]}"; do
    [[ $model == "$main" ]] && continue
    part "DPO step, $model" 150 build/speed step "${peer[@]}" --backend "$backend" --preset "$model" --dtype "$dtype" \
        "${shape[@]}"
    part "Rollouts, $model" 150 build/speed sample "${peer[@]}" --backend "$backend" --preset "$model" --dtype "$dtype" \
        --batch "$batches" --new "$fresh"
done
exit $((failed > 0))
