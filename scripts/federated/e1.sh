#!/bin/sh
# Measures FedNPG, FedNPG-ADMM and FedPPO on Swimmer with 1, 2, 4 and 8 agents, and prints the tables of
# docs/federated.md with the published ones; the curves go to e1.png. Takes hours. Runs that have ended are kept in
# e1.jsonl; what is there is not run again. Needs scripts/install-mujoco.sh.
# Hopper: e1.sh --task hopper --agents 1,8 --seeds 3 --runs e1-hopper.jsonl --curves e1-hopper.png
cd "$(dirname "$0")/../.." && exec go run ./internal/bench/federated e1 --runs e1.jsonl --curves e1.png "$@"
