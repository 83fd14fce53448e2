# shellcheck shell=bash disable=SC2034
# The two runs of run.sh, for which programs.sh compiles ahead: mappo without options, and ci-rl.
cirl=(--config configs/ci-rl-quickstart.yaml)
if [[ -n ${MODEL:-} ]]; then
    cirl=(--config scripts/gpu/ci-rl.yaml --model "$MODEL")
fi
if [[ -n ${ITEMS:-} ]]; then
    cirl+=(--data "$ITEMS")
fi
