#!/bin/sh
# Counts the bytes of AFedPG and FedPG with 8 agents over virtual time, and prints the table of docs/federated.md; the
# curves go to e5.png. Takes seconds. Flags: see internal/bench/federated.
cd "$(dirname "$0")/../.." && exec go run ./internal/bench/federated e5 --curves e5.png "$@"
