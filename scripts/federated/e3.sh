#!/bin/sh
# Measures AFedPG, vanilla, FedPG and A3C on cartpole with 1, 2, 4 and 8 agents, and prints the tables of
# docs/federated.md. Takes about 20 minutes of processor time. Runs that have ended are kept in e3.jsonl; what is there
# is not run again. Flags: see internal/bench/federated.
# Swimmer, with 1 and 8 agents, whose runs are kept in e3-swimmer.jsonl: e3.sh --task swimmer --curves e3-swimmer.png
cd "$(dirname "$0")/../.." && exec go run ./internal/bench/federated e3 "$@"
