#!/bin/sh
# Measures federated CI-RL of the embedded model with 8 agents: the methods, one agent with all items, and agents alone;
# with equal and with different items, at equal and at four speeds. Prints the table of docs/federated.md. Takes hours.
# Runs that have ended are kept in e4.jsonl; what is there is not run again. --table prints the table of what is there.
# Those of docs/federated.md: --runs internal/bench/federated/results/e4.jsonl
cd "$(dirname "$0")/../.." && exec go run ./internal/bench/federated e4 --runs e4.jsonl "$@"
