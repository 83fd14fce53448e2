#!/bin/sh
# Measures FedNPG-ADMM on Swimmer with 8 agents, of which 100, 75 or 50 % take part in a round, absent ones held or
# dropped, and prints the table of docs/federated.md; the curves go to e2.png. Takes hours. Runs that have ended are kept
# in e2.jsonl; what is there is not run again: with --runs e1.jsonl the runs of all agents are those of e1.sh. Needs
# scripts/install-mujoco.sh. Flags: see internal/bench/federated.
cd "$(dirname "$0")/../.." && exec go run ./internal/bench/federated e2 --runs e2.jsonl --curves e2.png "$@"
