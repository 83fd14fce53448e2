#!/bin/sh
# Rates of real processes whose work is a pause, asynchronous and synchronous, the rate with an agent gone, and the memory
# of a server with 64 agents of 3.4 MB. It takes two minutes on a machine that is otherwise idle.
set -eu
cd "$(dirname "$0")/../.."
POSTTRAIN_NEEDS=idle go test -count=1 -timeout 30m -v -run TestTimed ./cmd/posttrain
