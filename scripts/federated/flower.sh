#!/bin/sh
# Runs the Flower app of this folder on this machine: a SuperLink and two SuperNodes, three rounds of FedNPG-ADMM on
# cartpole, each step by `posttrain federated step`. The parameters must be those of `posttrain federated simulate`, bit
# for bit. Needs Go, and Python with pip; Flower is installed into a virtual environment in the folder that the first
# argument names, or a temporary one. Takes a few minutes, most of which Flower starts processes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)
(cd "$here" && GOEXPERIMENT=simd go build -o "$work/posttrain" ../../cmd/posttrain)
cd "$work"
rm -rf flwr server server-out agent-0 agent-1 simulated
[ -e venv/bin/flwr ] || { python3 -m venv venv && venv/bin/pip install -q flwr==1.41.0; }
export PATH="$work/venv/bin:$PATH" FLWR_HOME="$work/flwr" FLWR_TELEMETRY_ENABLED=0

for command in simulate step; do
	cat >"$command.yaml" <<END
command: federated $command
method: fednpg-admm
agents: 2
rounds: 3
seed: 5
control:
  steps: 200
  hidden: [8]
END
done
./posttrain federated simulate --config simulate.yaml --set compare=none --out simulated --quiet

set -- $(python3 - <<'END'
import socket
s = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(x.getsockname()[1] for x in s))
END
)
link=127.0.0.1:$1
mkdir flwr
cat >flwr/config.toml <<END
[superlink]
default = "here"

[superlink.here]
address = "$link"
insecure = true
END
pids=
trap 'kill $pids 2>/dev/null; wait' EXIT
flower-superlink --insecure --disable-runtime-dependency-installation --port "$1" >superlink.log 2>&1 &
pids=$!
i=0
until flwr list here >/dev/null 2>&1; do
	i=$((i + 1))
	[ $i -lt 60 ] || { cat superlink.log; exit 1; }
	sleep 0.5
done
agent=0
for port in "$2" "$3"; do
	flower-supernode --insecure --superlink "$link" --port "$port" \
		--node-config "agent=$agent state=\"$work/agent-$agent\"" >"node-$agent.log" 2>&1 &
	pids="$pids $!"
	agent=$((agent + 1))
done
timeout 900 flwr run "$here/flower" here --stream \
	--run-config "posttrain=\"$work/posttrain\" config=\"$work/step.yaml\" state=\"$work/server\""

./posttrain federated replay server
python3 - <<'END'
import json, pathlib
import numpy as np
with open(next(pathlib.Path("simulated/checkpoints").glob("*/simulation.bin")), "rb") as f:
    for part in json.loads(f.readline())["numbers"]:
        numbers = np.fromfile(f, "<f8", part["count"])
        if part["name"] == "server/theta":
            simulated = numbers
flower = np.fromfile("server-out/weights.bin", "<f8")
assert simulated.tobytes() == flower.tobytes(), "the parameters differ from the simulation's"
print(f"{len(flower)} parameters: Flower's run and the simulation have the same bits")
END
