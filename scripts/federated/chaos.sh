#!/bin/sh
# The long form of the fault tests of federated runs: real processes on loopback. A server is killed with SIGKILL KILLS
# (20) times at random places of a 200-update AFedPG run and of a 30-round FedNPG-ADMM run, and finds full disks and
# folders in use; agents and servers restart. Each run must end, and its replay have the bits of every checkpoint. Then
# REPEAT (5) times: agents are killed or gone, a proxy damages, doubles, swaps, delays and cuts what passes it.
set -eu
cd "$(dirname "$0")/../.."
export POSTTRAIN_FEDERATED_KILLS="${KILLS:-20}"
go test -count=1 -timeout 30m -v -run 'TestFaults[A-Z]' ./cmd/posttrain
go test -count="${REPEAT:-5}" -timeout 30m -run 'TestFaults(Clients|Agent|Orphans|Proxy|TLS)' ./cmd/posttrain
go test -count=1 -timeout 30m ./federated/link
